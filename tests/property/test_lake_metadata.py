"""Random commits on a table: its document stays valid, keeps what it does not know, and PyIceberg reads and agrees."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pyiceberg.table.metadata import TableMetadata as PyMetadata
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import TableUpdate, update_table_metadata

from pvdm.errors import PvdmError
from pvdm.lake.format.table.commit_request import UPDATES, apply_updates
from pvdm.lake.format.table.main_state import MainState
from pvdm.lake.format.table.metadata import TableMetadata
from tests.support.lake.metadata import (
    FILE,
    NOW,
    Doc,
    column,
    document,
    document_of,
    partition_statistics,
    snapshot,
    statistics,
)

pytestmark = pytest.mark.property

Draw = Callable[[st.SearchStrategy[Any]], Any]
Make = Callable[[Draw, TableMetadata], Doc | None]

WORDS = st.sampled_from(["a", "b", "c", "d"])
PY_UPDATE: TypeAdapter[Any] = TypeAdapter(TableUpdate)


def start(version: int) -> TableMetadata:
    """The example table with unknown fields, which every commit must keep."""
    doc = document(version)
    doc["x-top"] = [1, {"deep": None}]
    for holder in (doc["schemas"][1], doc["schemas"][1]["fields"][0], doc["snapshots"][1], doc["refs"]["main"]):
        holder["x-mark"] = "kept"
    return TableMetadata.from_json(doc)


def one_of(draw: Draw, found: list[Any]) -> Any:
    return draw(st.sampled_from(found)) if found else None


def new_snapshot(draw: Draw, now: TableMetadata) -> Doc | None:
    snapshot_id = 100 + max((each.snapshot_id for each in now.snapshots), default=0)
    parent = one_of(draw, [each.snapshot_id for each in now.snapshots])
    added: Doc = snapshot(snapshot_id, now.next_sequence_number, parent, **{"x-mark": "kept"})
    added["timestamp-ms"] = NOW + 20
    if now.format_version == 1:
        del added["sequence-number"]
    if now.format_version == 3:
        added |= {"first-row-id": now.next_row_id, "added-rows": draw(st.integers(0, 9))}
    return {"action": "add-snapshot", "snapshot": added}


def new_ref(draw: Draw, now: TableMetadata) -> Doc | None:
    target = one_of(draw, [each.snapshot_id for each in now.snapshots])
    kind = draw(st.sampled_from(["branch", "tag"]))
    name = draw(st.sampled_from(["stage", "v1", "new"]))
    return (
        None
        if target is None
        else {"action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": target}
    )


def new_main(draw: Draw, now: TableMetadata) -> Doc | None:
    target = one_of(draw, [each.snapshot_id for each in now.snapshots])
    made = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": target}
    return None if target is None else made


def remove_ref(draw: Draw, now: TableMetadata) -> Doc | None:
    name = one_of(draw, sorted(now.refs))
    return None if name is None else {"action": "remove-snapshot-ref", "ref-name": name}


def expire(draw: Draw, now: TableMetadata) -> Doc | None:
    held = {ref.snapshot_id for ref in now.refs.values()}
    free = [each.snapshot_id for each in now.snapshots if each.snapshot_id not in held]
    return None if not free else {"action": "remove-snapshots", "snapshot-ids": [one_of(draw, free)]}


def new_schema(draw: Draw, now: TableMetadata) -> Doc | None:
    name = f"c{now.last_column_id + 1}"
    kind = draw(st.sampled_from(["int", "string", "decimal(9, 2)", "timestamptz"]))
    fields = [*now.current_schema.raw["fields"], column(now.last_column_id + 1, name, kind)]  # type: ignore[misc]
    schema_id = 1 + max(each.schema_id for each in now.schemas)
    return {"action": "add-schema", "schema": {**now.current_schema.raw, "schema-id": schema_id, "fields": fields}}


def current_schema(draw: Draw, now: TableMetadata) -> Doc | None:
    wide = [each.schema_id for each in now.schemas if 2 in each.fields]
    return {"action": "set-current-schema", "schema-id": one_of(draw, wide)}


def new_spec(draw: Draw, now: TableMetadata) -> Doc | None:
    width = draw(st.integers(1, 9))
    if now.format_version == 1 or any(f"b{width}" == each.name for spec in now.specs for each in spec.fields):
        return None
    field = {
        "name": f"b{width}",
        "transform": f"bucket[{width}]",
        "source-id": 1,
        "field-id": now.last_partition_id + 1,
    }
    return {"action": "add-spec", "spec": {"spec-id": 1 + max(each.spec_id for each in now.specs), "fields": [field]}}


def default_spec(draw: Draw, now: TableMetadata) -> Doc | None:
    return {"action": "set-default-spec", "spec-id": one_of(draw, [each.spec_id for each in now.specs])}


def new_order(draw: Draw, now: TableMetadata) -> Doc | None:
    width = draw(st.integers(1, 9))
    field = {"transform": f"bucket[{width}]", "source-id": 1, "direction": "asc", "null-order": "nulls-last"}
    if any(each.transform == field["transform"] for order in now.sort_orders for each in order.fields):
        return None
    order_id = 1 + max(each.order_id for each in now.sort_orders)
    return {"action": "add-sort-order", "sort-order": {"order-id": order_id, "fields": [field]}}


def default_order(draw: Draw, now: TableMetadata) -> Doc | None:
    ids = [each.order_id for each in now.sort_orders]
    return {"action": "set-default-sort-order", "sort-order-id": one_of(draw, ids)}


def set_property(draw: Draw, now: TableMetadata) -> Doc | None:
    return {"action": "set-properties", "updates": {draw(WORDS): draw(WORDS)}}


def remove_property(draw: Draw, now: TableMetadata) -> Doc | None:
    name = one_of(draw, sorted(now.properties))
    return None if name is None else {"action": "remove-properties", "removals": [name]}


def new_location(draw: Draw, now: TableMetadata) -> Doc | None:
    return {"action": "set-location", "location": f"s3://bucket/{draw(WORDS)}"}


def upgrade(draw: Draw, now: TableMetadata) -> Doc | None:
    return {"action": "upgrade-format-version", "format-version": 2} if now.format_version == 1 else None


def new_statistics(draw: Draw, now: TableMetadata) -> Doc | None:
    target = one_of(draw, [each.snapshot_id for each in now.snapshots])
    return None if target is None else {"action": "set-statistics", "statistics": statistics(target)}


def new_partition_statistics(draw: Draw, now: TableMetadata) -> Doc | None:
    target = one_of(draw, [each.snapshot_id for each in now.snapshots])
    made = {"action": "set-partition-statistics", "partition-statistics": partition_statistics(target or 0)}
    return None if target is None else made


def remove_statistics(draw: Draw, now: TableMetadata) -> Doc | None:
    target = one_of(draw, [each.snapshot_id for each in now.statistics])
    return None if target is None else {"action": "remove-statistics", "snapshot-id": target}


BESIDE_MAIN: list[Make] = [new_snapshot, new_ref, new_schema]
AGREED: list[Make] = [
    *BESIDE_MAIN, new_main, remove_ref, current_schema, new_spec, default_spec, new_order, default_order, set_property,
    remove_property, new_location, upgrade, new_statistics, new_partition_statistics, remove_statistics,
]  # fmt: skip
# PyIceberg 0.12 differs from Iceberg's own builder, which pvdm follows, in these points:
# - remove-snapshots takes the parent out of children and cuts single entries out of the log,
# - a schema, spec or order that the table has is added again, under the id it came with,
# - -1 means the highest id, not the last added one,
# - removing what is not there (property, statistics, schema, spec) is an error,
# - last-updated-ms is the time of the snapshot, for a ref to a snapshot of the same commit too,
# - a snapshot that main only passed within a commit stays in the log,
# - a trailing slash stays in the location, and encryption keys are not known.
ALL: list[Make] = [*AGREED, expire]


@st.composite
def commits(draw: Draw, base: TableMetadata, makes: list[Make]) -> list[Doc]:
    """A commit whose updates are each valid after the ones before it."""
    now = base
    made: list[Doc] = []
    for _ in range(draw(st.integers(1, 4))):
        update = draw(st.sampled_from(makes))(draw, now)
        if update is None:
            continue
        try:
            now = apply_updates(base, [*copy.deepcopy(made), update], now_ms=NOW + 30, previous_location=FILE)
        except PvdmError:
            continue  # the default spec or order does not fit the current schema
        made.append(update)
    return made


def parse_with_pyiceberg(metadata: TableMetadata) -> PyMetadata:
    return TableMetadataUtil.parse_obj(document_of(metadata))


@pytest.mark.parametrize("version", [1, 2, 3])
@given(data=st.data())
def test_every_commit_leaves_a_valid_document(version: int, data: st.DataObject) -> None:
    now = start(version)
    base_uuid = now.table_uuid
    for _ in range(3):
        updates = data.draw(commits(now, ALL))
        after = apply_updates(now, updates, now_ms=NOW + 30, previous_location=FILE)
        assert TableMetadata.parse(after.to_bytes()) == after
        for counter in ("last_column_id", "last_partition_id", "last_sequence_number", "next_row_id"):
            assert getattr(after, counter) >= getattr(now, counter)
        if after.format_version < 3:
            assert str(parse_with_pyiceberg(after).table_uuid) == base_uuid
        now = after


@pytest.mark.parametrize("version", [1, 2, 3])
@given(data=st.data())
def test_no_commit_loses_unknown_fields(version: int, data: st.DataObject) -> None:
    base = start(version)
    after = apply_updates(base, data.draw(commits(base, ALL)), now_ms=NOW + 30, previous_location=FILE)
    assert after.raw["x-top"] == base.raw["x-top"]
    for old in base.schemas:
        assert next(each for each in after.schemas if each.schema_id == old.schema_id).raw == old.raw
    for kept in after.snapshots:
        assert base.snapshot(kept.snapshot_id) is None or base.snapshot(kept.snapshot_id) == kept
        # Of the first three snapshots, 11 to 13, `start` marks 12; `new_snapshot` marks all others.
        assert kept.raw.get("x-mark") == (None if kept.snapshot_id in (11, 13) else "kept")
    if "main" in after.refs and after.refs["main"].raw.get("x-mark") is None:
        # A `main` that was removed and set again is a new ref, without the unknown field.
        assert after.snapshot_log != base.snapshot_log


@pytest.mark.parametrize("version", [2, 3])
@given(data=st.data())
def test_work_beside_main_never_changes_what_main_shows(version: int, data: st.DataObject) -> None:
    base = start(version)
    after = apply_updates(base, data.draw(commits(base, BESIDE_MAIN)), now_ms=NOW + 30, previous_location=FILE)
    assert MainState.of(base).changed(MainState.of(after)) == ()


def comparable(metadata: PyMetadata) -> Doc:
    """What both must agree on: all but the time of the commit and the order of statistics."""
    found: Doc = metadata.model_dump()
    for key in ("last-updated-ms", "schema", "partition-spec"):
        found.pop(key, None)
    found["snapshot-log"] = [each["snapshot-id"] for each in found["snapshot-log"]]
    for key in ("statistics", "partition-statistics"):
        found[key] = sorted(found[key], key=lambda each: each["snapshot-id"])
    return found


@pytest.mark.parametrize("version", [1, 2])
@given(data=st.data())
def test_pyiceberg_comes_to_the_same_state(version: int, data: st.DataObject) -> None:
    base = start(version)
    updates = data.draw(commits(base, AGREED))
    mains = [each for each in updates if each.get("ref-name") == "main"]
    after = apply_updates(base, copy.deepcopy(updates), now_ms=NOW + 30, previous_location=FILE)
    theirs = update_table_metadata(
        parse_with_pyiceberg(base), tuple(PY_UPDATE.validate_python(each) for each in updates), metadata_location=FILE
    )
    expected, found = comparable(theirs), comparable(parse_with_pyiceberg(after))
    if after is base:
        # PyIceberg counts a location that stays the same as a change.
        expected["metadata-log"] = found["metadata-log"]
    if len(mains) > 1:
        expected["snapshot-log"] = found["snapshot-log"]
    assert found == expected


def test_every_kind_of_update_is_drawn_here_or_listed_as_tested_by_hand() -> None:
    by_hand = {
        "assign-uuid", "remove-schemas", "remove-partition-specs", "remove-partition-statistics",
        "add-encryption-key", "remove-encryption-key",
    }  # fmt: skip
    drawn = {
        "add-snapshot", "set-snapshot-ref", "remove-snapshot-ref", "remove-snapshots", "add-schema",
        "set-current-schema", "add-spec", "set-default-spec", "add-sort-order", "set-default-sort-order",
        "set-properties", "remove-properties", "set-location", "upgrade-format-version", "set-statistics",
        "set-partition-statistics", "remove-statistics",
    }  # fmt: skip
    assert by_hand | drawn == set(UPDATES)
