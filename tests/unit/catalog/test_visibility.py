"""The published view of a table's metadata, as consumers get it: all that `main` shows, and no trace of the rest."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadataUtil

from pvdm.catalog.responses import published_view, sees_all
from pvdm.lake.format.table.commit_request import apply_updates
from pvdm.lake.format.table.main_state import MainState
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.model.role import Role
from tests.support.for_each import for_each
from tests.support.lake.metadata import (
    Doc,
    column,
    document,
    document_of,
    partition_statistics,
    schema,
    snapshot,
    statistics,
)

HIDDEN = 7_700_000_000_000_001
STAGED_AT = 1_700_000_005_555
TRACES = [str(HIDDEN), "secretbranch", "secrettag", "secretcolumn", "secretfile", str(STAGED_AT), "900"]


def with_staging(version: int) -> TableMetadata:
    """A table with a hidden branch that has a tag, a schema, statistics and old files of its own."""
    doc: Any = document(version)
    staged: Doc = snapshot(HIDDEN, 3, 12, **{"schema-id": 2, "timestamp-ms": STAGED_AT})
    doc["schemas"].append(schema(2, *doc["schemas"][1]["fields"], column(900, "secretcolumn", "string")))
    doc["last-column-id"] = 900
    doc["snapshots"] = [*doc["snapshots"][:2], staged]
    doc["refs"]["secretbranch"] = {"snapshot-id": HIDDEN, "type": "branch"}
    doc["refs"]["secrettag"] = {"snapshot-id": HIDDEN, "type": "tag"}
    del doc["refs"]["stage"]
    doc["snapshot-log"].insert(1, {"snapshot-id": HIDDEN, "timestamp-ms": doc["snapshot-log"][0]["timestamp-ms"]})
    mixed = statistics(12)
    mixed["blob-metadata"] = [{**mixed["blob-metadata"][0], "snapshot-id": HIDDEN}]
    doc["statistics"] += [statistics(HIDDEN), mixed]
    doc["partition-statistics"].append(partition_statistics(HIDDEN))
    doc["metadata-log"].append({"metadata-file": "s3://b/secretfile.json", "timestamp-ms": doc["last-updated-ms"]})
    doc["last-updated-ms"] = STAGED_AT
    doc["x-top"] = "kept"
    if version == 1:
        del staged["sequence-number"]
    if version == 3:
        staged |= {"first-row-id": 6, "added-rows": 894}
        doc["next-row-id"] = 900
    else:
        doc["snapshots"][0]["summary"]["x"] = "y"
    if version > 1:
        doc["last-sequence-number"] = staged["sequence-number"] = 900
    return TableMetadata.from_json(doc)


@for_each("version", [1, 2, 3])
@for_each("trace", TRACES)
def test_the_published_view_has_no_trace_of_staging(version: int, trace: str) -> None:
    whole = with_staging(version).to_bytes()
    assert trace.encode() in whole or (trace, version) == ("900", 1)
    assert trace.encode() not in published_view(with_staging(version)).to_bytes()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_published_view_shows_the_same_main(version: int) -> None:
    whole = with_staging(version)
    seen = published_view(whole)
    facts, found = dict(MainState.of(whole).facts), dict(MainState.of(seen).facts)
    for name in ("snapshot log", f"snapshot {HIDDEN}", "statistics of snapshot 12"):
        facts.pop(name, None)
        found.pop(name, None)
    assert found == facts


def test_the_published_view_has_the_tags_of_main() -> None:
    assert sorted(published_view(with_staging(2)).refs) == ["main", "v1"]


def test_the_published_view_has_its_statistics() -> None:
    seen = published_view(with_staging(2))
    assert [file.snapshot_id for file in (*seen.statistics, *seen.partition_statistics)] == [11, 11]


def test_the_published_view_has_the_schemas_of_older_snapshots() -> None:
    assert [each.schema_id for each in published_view(with_staging(2)).schemas] == [0, 1]


def test_the_published_snapshot_log_names_published_snapshots_only() -> None:
    assert [entry.snapshot_id for entry in published_view(with_staging(2)).snapshot_log] == [11, 12]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_another_staging_branch_does_not_change_the_published_view(version: int) -> None:
    whole = with_staging(version)
    doc: Any = document_of(whole)
    doc["refs"]["secretbranch2"] = {"snapshot-id": HIDDEN, "type": "branch"}
    doc["last-updated-ms"] += 1
    if version > 1:
        doc["last-sequence-number"] += 5
    assert published_view(TableMetadata.from_json(doc)).to_bytes() == published_view(whole).to_bytes()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_first_branch_of_a_table_without_optional_lists_does_not_change_the_published_view(version: int) -> None:
    doc: Any = document(version)
    for optional in ("statistics", "partition-statistics", "metadata-log"):
        del doc[optional]
    whole = TableMetadata.from_json(doc)
    branch = {"action": "set-snapshot-ref", "ref-name": "b", "type": "branch", "snapshot-id": whole.current_snapshot_id}
    staged = apply_updates(whole, [branch], now_ms=whole.last_updated_ms + 5, previous_location="file:///old.json")
    assert published_view(staged).to_bytes() == published_view(whole).to_bytes()


def test_a_table_without_published_snapshots_has_no_time() -> None:
    doc: Any = document(2) | {"current-snapshot-id": -1, "snapshot-log": []}
    del doc["refs"]["main"]
    assert published_view(TableMetadata.from_json(doc)).last_updated_ms == 0


def test_a_table_without_published_snapshots_shows_none() -> None:
    doc: Any = document(2) | {"current-snapshot-id": -1, "snapshot-log": []}
    del doc["refs"]["main"]
    seen = published_view(TableMetadata.from_json(doc))
    assert (seen.snapshots, dict(seen.refs), seen.last_sequence_number, seen.current_snapshot_id) == ((), {}, 0, None)


def test_a_snapshot_that_main_left_behind_is_hidden() -> None:
    doc: Any = document(2) | {"current-snapshot-id": 11}
    doc["refs"]["main"]["snapshot-id"] = 11
    assert [each.snapshot_id for each in published_view(TableMetadata.from_json(doc)).snapshots] == [11]


def test_an_old_schema_without_an_id_is_the_first() -> None:
    doc: Any = document(1)
    del doc["schemas"][0]["schema-id"]
    assert len(published_view(TableMetadata.from_json(doc)).schemas) == 2


@pytest.mark.parametrize("version", [1, 2])
def test_pyiceberg_reads_the_published_view(version: int) -> None:
    seen = TableMetadataUtil.parse_raw(published_view(with_staging(version)).to_bytes().decode())
    assert (seen.current_snapshot_id, len(seen.snapshots)) == (12, 2)


def test_the_published_view_leaves_the_whole_document_unchanged() -> None:
    whole = with_staging(2)
    before = whole.to_bytes()
    published_view(whole)
    assert whole.to_bytes() == before


@for_each(
    ("role", "sees_whole"),
    [
        (Role.PRODUCER, True),
        (Role.OPERATOR, True),
        (Role.AUDITOR, True),
        (Role.STEWARD, True),
        (Role.CONSUMER, False),
        (Role.PUBLISHER, False),
        (Role.ATTESTOR, False),
    ],
)
def test_the_roles_that_see_the_whole_document(role: Role, sees_whole: bool) -> None:
    assert sees_all(role) is sees_whole
