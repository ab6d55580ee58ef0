"""Everything that `main` of a table shows, as one value: two states are equal or their differences can be said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pvdm.lake.format.json.document import Json, canonical
from pvdm.lake.format.schema.document import normal_form
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN, StatisticsFile
from pvdm.lake.format.table.specs import order_raw, spec_raw

KNOWN_FIELDS: Final = frozenset(
    {
        "format-version",
        "table-uuid",
        "location",
        "last-sequence-number",
        "last-updated-ms",
        "last-column-id",
        "schema",
        "schemas",
        "current-schema-id",
        "partition-spec",
        "partition-specs",
        "default-spec-id",
        "last-partition-id",
        "properties",
        "current-snapshot-id",
        "snapshots",
        "snapshot-log",
        "metadata-log",
        "sort-orders",
        "default-sort-order-id",
        "refs",
        "statistics",
        "partition-statistics",
        "next-row-id",
        "encryption-keys",
    }
)
_SHOWN_CHARACTERS: Final = 120


@dataclass(frozen=True, slots=True)
class MainState:
    """Facts by their names in words; what is not a fact here a commit may change without changing what `main` shows."""

    facts: Mapping[str, str]

    @classmethod
    def of(cls, metadata: TableMetadata) -> MainState:
        """Snapshot, ancestry, their schemas, specs, orders, properties, statistics, keys, log and unknown fields."""
        return metadata.memo("state of main", lambda: cls(MappingProxyType(dict(_facts(metadata)))))

    def __hash__(self) -> int:
        return hash(frozenset(self.facts.items()))

    def differences(self, after: MainState) -> tuple[str, ...]:
        """What is other afterwards, one sentence each, in the order of the facts."""
        return tuple(_sentence(name, self.facts.get(name), after.facts.get(name)) for name in self.changed(after))

    def changed(self, after: MainState) -> tuple[str, ...]:
        """The names of the facts that are other afterwards, in their order."""
        names = [*self.facts, *(name for name in after.facts if name not in self.facts)]
        return tuple(name for name in names if self.facts.get(name) != after.facts.get(name))


def _facts(metadata: TableMetadata) -> Iterator[tuple[str, str]]:
    current = metadata.current_snapshot_id
    ancestry = [] if current is None else list(metadata.ancestry(current))
    yield "table UUID", str(metadata.table_uuid)
    yield "format version", str(metadata.format_version)
    yield "location", metadata.location
    yield "current snapshot", str(current)
    yield "ancestry", ", ".join(str(snapshot.snapshot_id) for snapshot in ancestry)
    for snapshot in ancestry:
        yield f"snapshot {snapshot.snapshot_id}", snapshot.canonical()
    main = metadata.refs.get(MAIN)
    if main is not None:
        # Retention decides which of main's history the next expiry takes away.
        yield "retention of main", canonical({key: value for key, value in main.raw.items() if key != "snapshot-id"})
    yield "snapshot log", canonical([[entry.timestamp_ms, entry.snapshot_id] for entry in metadata.snapshot_log])
    yield from _history(metadata, {snapshot.snapshot_id for snapshot in ancestry})
    yield from _structure(metadata, {snapshot.schema_id for snapshot in ancestry})
    for name in sorted(metadata.properties):
        yield f"property {name!r}", metadata.properties[name]
    shown = {snapshot.snapshot_id for snapshot in ancestry}
    yield from _statistics("statistics", metadata, metadata.statistics, shown)
    yield from _statistics("partition statistics", metadata, metadata.partition_statistics, shown)
    for key in metadata.encryption_keys:
        yield f"encryption key {key.key_id!r}", canonical(key.raw)
    for name in sorted(metadata.raw.keys() - KNOWN_FIELDS):
        yield f"field {name!r}", canonical(metadata.raw[name])


def _history(metadata: TableMetadata, shown: set[int]) -> Iterator[tuple[str, str]]:
    """What main once showed and the log still names, with its content; one that is gone comes back as no other."""
    for snapshot_id in sorted({entry.snapshot_id for entry in metadata.snapshot_log} - shown):
        found = metadata.snapshot(snapshot_id)
        yield f"snapshot {snapshot_id}", "gone" if found is None else found.canonical()


def _structure(metadata: TableMetadata, schema_ids: set[int | None]) -> Iterator[tuple[str, str]]:
    """Schemas that main or its history is read with; every spec and order, as files of main may name any of them."""
    yield "current schema", str(metadata.current_schema_id)
    read_with = schema_ids | {metadata.current_schema_id}
    for schema in metadata.schemas:
        if schema.schema_id in read_with:
            yield f"schema {schema.schema_id}", normal_form(schema.raw)
    yield "default partition spec", str(metadata.default_spec_id)
    for spec in metadata.specs:
        yield f"partition spec {spec.spec_id}", canonical(spec_raw(spec.spec_id, spec.fields, spec.raw))
    yield "default sort order", str(metadata.default_sort_order_id)
    for order in metadata.sort_orders:
        yield f"sort order {order.order_id}", canonical(order_raw(order.order_id, order.fields, order.raw))


def _statistics(
    what: str, metadata: TableMetadata, files: tuple[StatisticsFile, ...], shown: set[int]
) -> Iterator[tuple[str, str]]:
    """Files of main's own snapshots, and of snapshots that are not there: those could come to be main's."""
    by_snapshot: dict[int, list[Json]] = {}
    for file in files:
        if file.snapshot_id in shown or metadata.snapshot(file.snapshot_id) is None:
            by_snapshot.setdefault(file.snapshot_id, []).append(file.raw)
    for snapshot_id, raws in by_snapshot.items():
        yield f"{what} of snapshot {snapshot_id}", canonical(raws)


def _sentence(name: str, before: str | None, after: str | None) -> str:
    if before is None:
        return f"{name} was not there and is now {_cut(after)}"
    if after is None:
        return f"{name} was {_cut(before)} and is gone"
    if len(before) > _SHOWN_CHARACTERS and len(after) > _SHOWN_CHARACTERS and _cut(before) == _cut(after):
        place = next((at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), 0)
        before, after = before[max(0, place - 40) :], after[max(0, place - 40) :]
    return f"{name} was {_cut(before)} and is now {_cut(after)}"


def _cut(text: str | None) -> str:
    text = text or "empty"
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."
