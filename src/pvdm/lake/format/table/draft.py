"""A table's next state while the updates of a commit are applied to it, as in Iceberg's metadata builder."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Final, Protocol, TypeVar

from pvdm.errors import Code
from pvdm.lake.format.json_document import INT_LAST, Json, JsonObject, abbreviate, read_objects
from pvdm.lake.format.schema.document import TableSchema
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import EncryptedKey, SnapshotRef, StatisticsFile
from pvdm.lake.format.table.specs import TableOrder, TableSpec, spec_raw

PREVIOUS_VERSIONS_PROPERTY: Final = "write.metadata.previous-versions-max"
PREVIOUS_VERSIONS_DEFAULT: Final = 100
LAST_ADDED: Final = -1  # as an id in an update: the schema, spec or order that this commit added last

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)


class _HasMeaning(Protocol):
    @property
    def meaning(self) -> Hashable: ...


_Part = TypeVar("_Part", bound=_HasMeaning)


class Parts(dict[int, _Part]):
    """The schemas, specs, orders or view versions of a draft by id, and those that this commit added."""

    def __init__(self, parts: Mapping[int, _Part]) -> None:
        super().__init__(parts)
        self.added: set[int] = set()
        self.last_added: int | None = None

    @cached_property
    def _ids_by_meaning(self) -> dict[Hashable, dict[int, None]]:
        """Key: a meaning. Value: the ids of all parts that have it, in order, as the keys of a dictionary."""
        ids: dict[Hashable, dict[int, None]] = {}
        for part_id, part in self.items():
            ids.setdefault(part.meaning, {})[part_id] = None
        return ids

    def find(self, part: _Part) -> int | None:
        """The id of the first part with the same meaning; None if there is none."""
        return next(iter(self._ids_by_meaning.get(part.meaning, ())), None)

    def add(self, part_id: int, part: _Part) -> None:
        """Add a new part."""
        self._ids_by_meaning.setdefault(part.meaning, {})[part_id] = None
        self[part_id] = part
        self.mark_added(part_id)

    def mark_added(self, part_id: int) -> None:
        """Record that this commit added the part, as the last one so far."""
        self.added.add(part_id)
        self.last_added = part_id

    def remove(self, part_id: int) -> None:
        """Remove a part."""
        del self._ids_by_meaning[self[part_id].meaning][part_id]
        del self[part_id]


class Draft:
    """The parts of the next state, which updates change. `finish` checks and returns the state."""

    def __init__(
        self,
        base: TableMetadata | None,
        *,
        now_ms: int,
        format_version: int = 2,
        table_uuid: str | None = None,
        shared_numbers: bool = False,
    ) -> None:
        """With `shared_numbers` two branches may use the same sequence numbers and row ids (see `apply_updates`)."""
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
        schemas = [_with_schema_id(each) for each in base.schemas] if base else []
        self.schemas: Parts[TableSchema] = Parts({each.schema_id: each for each in schemas})
        specs = [_with_field_ids(each) for each in base.specs] if base else []
        self.specs: Parts[TableSpec] = Parts({each.spec_id: each for each in specs})
        self.orders: Parts[TableOrder] = Parts({each.order_id: each for each in base.sort_orders} if base else {})
        self.current_schema_id = base.current_schema_id if base else 0
        self.default_spec_id = base.default_spec_id if base else 0
        self.default_order_id = base.default_sort_order_id if base else 0
        self.properties: dict[str, str] = dict(base.properties) if base else {}
        self.current_snapshot_id = base.current_snapshot_id if base else None
        self.snapshots = {each.snapshot_id: each for each in base.snapshots} if base else {}
        self.refs: dict[str, SnapshotRef] = dict(base.refs) if base else {}
        self.statistics = _by_snapshot(base.statistics if base else ())
        self.partition_statistics = _by_snapshot(base.partition_statistics if base else ())
        keys: tuple[EncryptedKey, ...] = base.encryption_keys if base else ()
        self.encryption_keys = {key.key_id: key for key in keys}
        self.snapshot_log: list[JsonObject] = read_objects(base.raw.get("snapshot-log")) if base else []
        # What the updates of this commit have done so far.
        self.last_updated_ms: int | None = None
        self.added_snapshots: set[int] = set()
        self.snapshots_set_on_main: list[int] = []
        self.has_removed_snapshots = False

    @cached_property
    def ref_names(self) -> dict[int, set[str]]:
        """The names of the refs by the snapshot that they point to."""
        names: dict[int, set[str]] = {}
        for name, ref in self.refs.items():
            names.setdefault(ref.snapshot_id, set()).add(name)
        return names

    def finish(self, previous_location: str | None) -> TableMetadata:
        """The new state, checked, or the old state if nothing changed. `previous_location` is the old metadata file."""
        if self.base is not None and not self.changed:
            return self.base
        if self.last_updated_ms is None:
            self.last_updated_ms = self.now_ms
        return TableMetadata.from_json(self.document(previous_location), known=self.base)

    def document(self, previous_location: str | None) -> dict[str, Json]:
        """The new state's JSON, not checked yet. Parts that did not change are the same objects as before."""
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
        # Before format 3, Iceberg writes -1 if there is no current snapshot, since readers expect a number.
        no_snapshot = None if self.format_version >= 3 else -1
        raw["current-snapshot-id"] = no_snapshot if self.current_snapshot_id is None else self.current_snapshot_id
        if self.format_version >= 3:
            raw["next-row-id"] = self.next_row_id
        if self.encryption_keys:
            raw["encryption-keys"] = [key.raw for key in self.encryption_keys.values()]
        else:
            raw.pop("encryption-keys", None)
        raw["refs"] = {name: ref.raw for name, ref in self.refs.items()}
        raw["snapshots"] = [snapshot.raw for snapshot in self.snapshots.values()]
        raw["statistics"] = [file.raw for files in self.statistics.values() for file in files]
        raw["partition-statistics"] = [file.raw for files in self.partition_statistics.values() for file in files]
        raw["snapshot-log"] = list(self._prune_snapshot_log())
        raw["metadata-log"] = list(self._extend_metadata_log(previous_location))
        return raw

    def _write_structure(self, raw: dict[str, Json]) -> None:
        """Write schemas, specs and orders. Only format 1 also has the current schema and spec in separate fields."""
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

    def _prune_snapshot_log(self) -> list[JsonObject]:
        """The log without new snapshots that did not stay current, and without entries up to a removed snapshot."""
        intermediate = self.added_snapshots.intersection(self.snapshots_set_on_main) - {self.current_snapshot_id}
        if not intermediate and not self.has_removed_snapshots:
            return self.snapshot_log
        log: list[JsonObject] = []
        for entry in self.snapshot_log:
            snapshot_id = entry["snapshot-id"]
            if snapshot_id not in self.snapshots:
                # An entry means that its snapshot was current until the next entry. So no entry may stay before a gap.
                if self.has_removed_snapshots:
                    log.clear()
            elif snapshot_id not in intermediate:
                log.append(entry)
        current = self.current_snapshot_id
        if current is not None and self.snapshot_log and (not log or log[-1]["snapshot-id"] != current):
            got = str(log[-1]["snapshot-id"]) if log else "an empty log"
            raise Code.SNAPSHOT_INVALID(reason="snapshot_log_broken", expected=str(current), got=got)
        return log

    def _extend_metadata_log(self, previous_location: str | None) -> list[JsonObject]:
        """The log with the previous metadata file, cut to the number of entries that the property allows."""
        log = read_objects(self.base.raw.get("metadata-log")) if self.base else []
        if self.base is None or previous_location is None:
            return log
        max_entries = max(1, integer_property(self.properties, PREVIOUS_VERSIONS_PROPERTY, PREVIOUS_VERSIONS_DEFAULT))
        entry: JsonObject = {"timestamp-ms": self.base.last_updated_ms, "metadata-file": previous_location}
        return [*log[max(0, len(log) - max_entries + 1) :], entry]


def integer_property(properties: Mapping[str, str], name: str, default: int) -> int:
    """The property as an integer, or the default if it is not set. Raises if it is not a whole number of 32 bits."""
    text = properties.get(name)
    if text is None:
        return default
    if not _WHOLE_NUMBER.fullmatch(text) or not -INT_LAST - 1 <= int(text) <= INT_LAST:
        words = f"the property {name} is not a whole number"
        raise Code.PROPERTY_INVALID(words, reason="property_not_integer", got=abbreviate(text))
    return int(text)


def _by_snapshot(files: Iterable[StatisticsFile]) -> dict[int, list[StatisticsFile]]:
    by_snapshot: dict[int, list[StatisticsFile]] = {}
    for file in files:
        by_snapshot.setdefault(file.snapshot_id, []).append(file)
    return by_snapshot


def _with_schema_id(schema: TableSchema) -> TableSchema:
    """The schema with its id in the JSON. Documents of format 1 may leave the id out."""
    if schema.raw.get("schema-id") is not None:
        return schema
    return replace(schema, raw={**schema.raw, "schema-id": schema.schema_id})


def _with_field_ids(spec: TableSpec) -> TableSpec:
    """The spec with the field ids that old writers left out."""
    raw = spec_raw(spec.spec_id, spec.fields, spec.raw)
    return spec if raw == spec.raw else replace(spec, raw=raw)
