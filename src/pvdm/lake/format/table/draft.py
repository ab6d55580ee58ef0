"""A table's next state while a commit is applied to it: what Iceberg's own metadata builder keeps, and how it ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Final

from pvdm.errors import Code
from pvdm.lake.format.json.document import Json
from pvdm.lake.format.json.node import INT_LAST, Raw, shown
from pvdm.lake.format.schema.document import TableSchema
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import EncryptedKey, Snapshot, SnapshotRef, StatisticsFile
from pvdm.lake.format.table.specs import TableOrder, TableSpec, spec_raw
from pvdm.lake.format.table.structural_index import Alike

PREVIOUS_VERSIONS_PROPERTY: Final = "write.metadata.previous-versions-max"
PREVIOUS_VERSIONS_DEFAULT: Final = 100
LAST_ADDED: Final = -1

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)


class Draft:
    """Changeable on purpose, and never kept: `finish` gives the new state, judged as a whole."""

    def __init__(
        self,
        base: TableMetadata | None,
        *,
        now_ms: int,
        format_version: int = 2,
        table_uuid: str | None = None,
        shared_numbers: bool = False,
    ) -> None:
        """`shared_numbers`: see `apply_updates`."""
        self.shared_numbers = shared_numbers
        self.base = base
        self.now_ms = now_ms
        self.changed = base is None
        self.format_version = base.format_version if base else format_version
        self.table_uuid = base.table_uuid if base else table_uuid
        self.location = base.location if base else None
        self.last_sequence_number = base.last_sequence_number if base else 0
        self.next_row_id = base.next_row_id if base else 0
        self.last_column_id = base.last_column_id if base else 0
        self.last_partition_id = base.last_partition_id if base else 0
        self.schemas: dict[int, TableSchema] = {}
        self.specs: dict[int, TableSpec] = {}
        self.orders: dict[int, TableOrder] = {}
        self.current_schema_id = base.current_schema_id if base else 0
        self.default_spec_id = base.default_spec_id if base else 0
        self.default_order_id = base.default_sort_order_id if base else 0
        self.properties: dict[str, str] = dict(base.properties) if base else {}
        self.current_snapshot_id = base.current_snapshot_id if base else None
        self.snapshots: dict[int, Snapshot] = {}
        self.refs: dict[str, SnapshotRef] = dict(base.refs) if base else {}
        self.statistics = _by_snapshot(base.statistics if base else ())
        self.partition_statistics = _by_snapshot(base.partition_statistics if base else ())
        self.keys: dict[str, EncryptedKey] = {key.key_id: key for key in base.encryption_keys} if base else {}
        self.snapshot_log: list[Raw] = _objects(base.raw.get("snapshot-log")) if base else []
        # What this commit did, as far as later updates of it ask.
        self.last_updated_ms: int | None = None
        self.added_schemas: set[int] = set()
        self.added_specs: set[int] = set()
        self.added_orders: set[int] = set()
        self.last_added_schema: int | None = None
        self.last_added_spec: int | None = None
        self.last_added_order: int | None = None
        self.added_snapshots: set[int] = set()
        self.shown_by_main: list[int] = []
        self.removed_snapshots = False
        if base:
            self.schemas = {schema.schema_id: _with_schema_id(schema) for schema in base.schemas}
            self.specs = {spec.spec_id: _with_field_ids(spec) for spec in base.specs}
            self.orders = {order.order_id: order for order in base.sort_orders}
            self.snapshots = {snapshot.snapshot_id: snapshot for snapshot in base.snapshots}

    @cached_property
    def alike_schemas(self) -> Alike[TableSchema]:
        """The schemas by what they mean."""
        return Alike(self.schemas, lambda schema: schema.meaning)

    @cached_property
    def alike_specs(self) -> Alike[TableSpec]:
        """The partition specs by what they mean."""
        return Alike(self.specs, lambda spec: spec.meaning)

    @cached_property
    def alike_orders(self) -> Alike[TableOrder]:
        """The sort orders by what they mean."""
        return Alike(self.orders, lambda order: order.meaning)

    @cached_property
    def ref_names(self) -> dict[int, set[str]]:
        """The names of the refs by the snapshot that they point to."""
        found: dict[int, set[str]] = {}
        for name, ref in self.refs.items():
            found.setdefault(ref.snapshot_id, set()).add(name)
        return found

    def finish(self, previous_location: str | None) -> TableMetadata:
        """The new state; the old one itself if nothing changed."""
        if self.base is not None and not self.changed:
            return self.base
        if self.last_updated_ms is None:
            self.last_updated_ms = self.now_ms
        raw = self.document(previous_location)
        return TableMetadata.from_json(raw, known=self.base)

    def document(self, previous_location: str | None) -> dict[str, Json]:
        """The new state's JSON, not judged yet; what did not change is the same objects as before."""
        raw: dict[str, Json] = dict(self.base.raw) if self.base else {}
        raw["format-version"] = self.format_version
        if self.table_uuid is not None:
            raw["table-uuid"] = self.table_uuid
        if self.location is None:
            raise Code.TABLE_METADATA_INVALID(reason="location_missing", got="no such update")
        if self.base is None or self.location != self.base.location:
            raw["location"] = self.location
        if self.format_version > 1:
            raw["last-sequence-number"] = self.last_sequence_number
        raw["last-updated-ms"] = self.last_updated_ms
        raw["last-column-id"] = self.last_column_id
        self._write_structure(raw)
        raw["properties"] = dict(self.properties)
        # Before format 3 readers want a number here: Iceberg writes -1 for none.
        none_yet = None if self.format_version >= 3 else -1
        raw["current-snapshot-id"] = none_yet if self.current_snapshot_id is None else self.current_snapshot_id
        if self.format_version >= 3:
            raw["next-row-id"] = self.next_row_id
        if self.keys:
            raw["encryption-keys"] = [key.raw for key in self.keys.values()]
        else:
            raw.pop("encryption-keys", None)
        raw["refs"] = {name: ref.raw for name, ref in self.refs.items()}
        raw["snapshots"] = [snapshot.raw for snapshot in self.snapshots.values()]
        raw["statistics"] = [file.raw for files in self.statistics.values() for file in files]
        raw["partition-statistics"] = [file.raw for files in self.partition_statistics.values() for file in files]
        raw["snapshot-log"] = list(self._finished_log())
        raw["metadata-log"] = list(self._metadata_log(previous_location))
        return raw

    def _write_structure(self, raw: dict[str, Json]) -> None:
        """Format 1 also names the current schema and spec the old way; later formats must not."""
        if self.format_version == 1:
            schema, spec = self.schemas.get(self.current_schema_id), self.specs.get(self.default_spec_id)
            raw["schema"] = None if schema is None else schema.raw
            raw["partition-spec"] = None if spec is None else spec.raw["fields"]
        else:
            raw.pop("schema", None)
            raw.pop("partition-spec", None)
        raw["current-schema-id"] = self.current_schema_id
        raw["schemas"] = [schema.raw for schema in self.schemas.values()]
        raw["default-spec-id"] = self.default_spec_id
        raw["partition-specs"] = [spec.raw for spec in self.specs.values()]
        raw["last-partition-id"] = self.last_partition_id
        raw["default-sort-order-id"] = self.default_order_id
        raw["sort-orders"] = [order.raw for order in self.orders.values()]

    def _finished_log(self) -> list[Raw]:
        """The log without what `main` never showed, and without all that lies before an expired snapshot."""
        passed = {
            snapshot_id
            for snapshot_id in self.shown_by_main
            if snapshot_id in self.added_snapshots and snapshot_id != self.current_snapshot_id
        }
        if not passed and not self.removed_snapshots:
            return self.snapshot_log
        kept: list[Raw] = []
        for entry in self.snapshot_log:
            snapshot_id = entry["snapshot-id"]
            if snapshot_id not in self.snapshots:
                # A gap would tell a lie: what lies before it would seem to have been current until after it.
                kept = [] if self.removed_snapshots else kept
            elif snapshot_id not in passed:
                kept.append(entry)
        current = self.current_snapshot_id
        if current is not None and self.snapshot_log and (not kept or kept[-1]["snapshot-id"] != current):
            raise Code.SNAPSHOT_INVALID(
                reason="snapshot_log_broken",
                expected=str(current),
                got=str(kept[-1]["snapshot-id"]) if kept else "an empty log",
            )
        return kept

    def _metadata_log(self, previous_location: str | None) -> list[Raw]:
        if self.base is None:
            return []
        log = _objects(self.base.raw.get("metadata-log"))
        if previous_location is None:
            return log
        most = max(1, whole_property(self.properties, PREVIOUS_VERSIONS_PROPERTY, PREVIOUS_VERSIONS_DEFAULT))
        entry: Raw = {"timestamp-ms": self.base.last_updated_ms, "metadata-file": previous_location}
        return [*log[max(0, len(log) - most + 1) :], entry]


def whole_property(properties: Mapping[str, str], name: str, default: int) -> int:
    """A property that must be a whole number of 32 bits when it is there."""
    text = properties.get(name)
    if text is None:
        return default
    if not _WHOLE.fullmatch(text) or not -INT_LAST - 1 <= int(text) <= INT_LAST:
        raise Code.PROPERTY_INVALID(
            f"the property {name} cannot be accepted", reason="property_not_integer", got=shown(text)
        )
    return int(text)


def _by_snapshot(files: Iterable[StatisticsFile]) -> dict[int, list[StatisticsFile]]:
    found: dict[int, list[StatisticsFile]] = {}
    for file in files:
        found.setdefault(file.snapshot_id, []).append(file)
    return found


def _objects(value: Json) -> list[Raw]:
    # `dict` first: asking for a mapping takes ten times as long, and logs grow with the table.
    return [item for item in value if isinstance(item, (dict, Mapping))] if isinstance(value, list) else []


def _with_schema_id(schema: TableSchema) -> TableSchema:
    """Documents of format 1 may have a schema without an id; in the list of schemas it needs one."""
    if schema.raw.get("schema-id") is not None:
        return schema
    return replace(schema, raw={**schema.raw, "schema-id": schema.schema_id})


def _with_field_ids(spec: TableSpec) -> TableSpec:
    """Old writers left partition field ids out; they are written down with the next commit."""
    raw = spec_raw(spec.spec_id, spec.fields, spec.raw)
    return spec if raw == spec.raw else replace(spec, raw=raw)
