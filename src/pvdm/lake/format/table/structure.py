"""How a table is built, apart from its data: one document, one hash, and a metadata document made from it again."""

from __future__ import annotations

import hashlib
from typing import Final

from pvdm.lake.format.json.document import Json, dump_json
from pvdm.lake.format.json.node import Node
from pvdm.lake.format.schema.document import TableSchema
from pvdm.lake.format.table.main_state import KNOWN_FIELDS
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.specs import order_raw, spec_raw

_NO_UUID: Final = "00000000-0000-0000-0000-000000000000"


def structure_of(metadata: TableMetadata) -> dict[str, Json]:
    """Everything that `main` is read by but snapshots, refs, statistics and logs; however old writers spelled it."""
    found: dict[str, Json] = {
        "format-version": metadata.format_version,
        "location": metadata.location,
        "last-column-id": metadata.last_column_id,
        "current-schema-id": metadata.current_schema_id,
        "schemas": [_schema(each) for each in metadata.schemas],
        "default-spec-id": metadata.default_spec_id,
        "partition-specs": [spec_raw(each.spec_id, each.fields, each.raw) for each in metadata.specs],
        "last-partition-id": metadata.last_partition_id,
        "default-sort-order-id": metadata.default_sort_order_id,
        "sort-orders": [order_raw(each.order_id, each.fields, each.raw) for each in metadata.sort_orders],
        "properties": dict(metadata.properties),
        "encryption-keys": [each.raw for each in metadata.encryption_keys],
    }
    # What nobody here knows may still be what a reader goes by.
    found.update({name: metadata.raw[name] for name in metadata.raw.keys() - KNOWN_FIELDS})
    return found


def _schema(schema: TableSchema) -> dict[str, Json]:
    """No identifier fields are spelled as an empty list by some writers, and not at all by others."""
    found: dict[str, Json] = {**schema.raw, "type": "struct", "schema-id": schema.schema_id}
    if not found.get("identifier-field-ids"):
        found.pop("identifier-field-ids", None)
    return found


def structure_bytes(structure: Json) -> bytes:
    """The structure in the one spelling that is hashed: keys sorted, no white space, numbers as they were spelled."""
    return dump_json(structure, sort_keys=True)


def structure_sha256(metadata: TableMetadata) -> str:
    """The hash that a signed state names."""
    return hashlib.sha256(structure_bytes(structure_of(metadata))).hexdigest()


def without_data(structure: Json) -> TableMetadata:
    """A table of this structure that holds nothing; updates of structure can be tried on it."""
    raw = dict(Node(structure, "$").raw)
    raw.update({"table-uuid": _NO_UUID, "last-updated-ms": 0, "last-sequence-number": 0, "next-row-id": 0})
    return TableMetadata.from_json(raw)
