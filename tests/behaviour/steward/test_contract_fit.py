"""Contracts that can never publish are refused when a table is protected or migrated, before any workload is opened."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pvdm.errors import NotAllowedError, PvdmError
from pvdm.lake.format.manifest.entry import DataFile, IdMap
from pvdm.lake.next_snapshot import SnapshotChange, next_snapshot
from pvdm.model.role import Role
from pvdm.verify.fetch import Files
from tests.support.gate.approvals import COLUMN, OTHER_CONTRACT, Scene, contract_for, reason_of, scene_at, signed
from tests.support.lake.sources import provide_source
from tests.support.stores.places import file_at

RAW = ("raw",)
GOOD = contract_for()
DAY_PARAMETER = "parameters:\n  day:\n    type: {type}\nboundary:\n"


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with scene_at(tmp_path) as made:
        provide_source(made.notary, made.grant(), GOOD, made.table_state().metadata)
        yield made


def refusal_of(scene: Scene, contract: str) -> PvdmError:
    """The error that refuses a protection under the contract; nothing is protected afterwards."""
    with pytest.raises(PvdmError) as caught:
        scene.protect(scene.protection(contract=contract))
    assert scene.contract_of() is None
    assert scene.notary.protections.list_protections(scene.grant()) == []
    return caught.value


def with_filter(filter_: str, *, kind: str | None = None) -> str:
    """The good contract with this filter and, if given, a parameter `day` of type `kind`."""
    text = GOOD.replace("  operation: append\n", f"  operation: append\n  where: {filter_}\n")
    return text if kind is None else text.replace("boundary:\n", DAY_PARAMETER.format(type=kind))


@pytest.mark.parametrize(
    ("contract", "reason", "path", "named"),
    [
        (GOOD.replace("[id]", "[order_id]"), "projection_column_unknown", "projections", "order_id"),
        (
            GOOD.replace("  operation", "  columns: [id, day, {from: sum(id), to: town}]\n  operation"),
            "mapping_column_unknown",
            "boundary.columns",
            "sum(id)",
        ),
        (
            GOOD.replace("  operation", "  columns: [id, day]\n  operation"),
            "mapping_target_differs",
            "boundary.columns",
            "town",
        ),
        (
            GOOD.replace("  operation", "  columns: [id, day, {from: id, to: town}]\n  operation"),
            "cast_refused",
            "boundary.columns",
            "int64",
        ),
        (
            GOOD + "  content:\n    exclude:\n      - {column: price, reason: not sold}\n",
            "projection_column_unknown",
            "projections",
            "price",
        ),
        (with_filter("country = 'AT'"), "filter_column_unknown", "boundary.where", "country"),
        (with_filter("day = 5"), "literal_invalid", "boundary.where", "5"),
        (with_filter("town is nan"), "predicate_unsuited", "boundary.where", "string"),
        (with_filter("id = ${day}", kind="date"), "parameter_type_differs", "boundary.where", "date"),
        (
            GOOD + "chunking:\n  by: partition\n  columns: [shop]\n",
            "filter_column_unknown",
            "chunking",
            "shop",
        ),
        (GOOD + "chunking:\n  by: range\n  column: id\n  bounds: [5, 3]\n", "chunk_bounds_unordered", "chunking", "3"),
        (
            with_filter("shop = 'a'").replace("  operation", "  claim: {column: shop}\n  operation"),
            "filter_column_unknown",
            "boundary.where",
            "shop",
        ),
        (
            GOOD.replace("operation: append", "operation: overwrite-partitions\n  partition: {week: 2}"),
            "partition_unknown",
            "boundary.partition",
            "week",
        ),
        (
            GOOD.replace("operation: append", "operation: overwrite-partitions\n  partition: {day: monday}"),
            "literal_invalid",
            "boundary.partition",
            "monday",
        ),
    ],
)
def test_a_contract_that_can_never_publish_is_refused_when_the_table_is_protected(
    scene: Scene, contract: str, reason: str, path: str, named: str
) -> None:
    error = refusal_of(scene, contract)
    assert (error.reason, error.exit_code, error.details["path"]) == (reason, 2, path)
    assert error.message.startswith(f"{path} does not fit: ")
    assert named in f"{error.message} {error.expected} {error.got}"
    assert error.hint


@pytest.mark.parametrize("kind", ["string", "date"])
def test_a_parameter_of_type_string_or_of_the_columns_type_is_accepted(scene: Scene, kind: str) -> None:
    scene.protect(scene.protection(contract=with_filter("day = ${day}", kind=kind)))
    assert scene.contract_of() is not None


def test_a_source_without_a_snapshot_is_judged_by_its_schema(scene: Scene) -> None:
    assert scene.table_state(levels=RAW).metadata.current_snapshot_id is None
    scene.protect()
    assert scene.contract_of() is not None


def test_a_missing_source_is_refused_and_named(scene: Scene) -> None:
    scene.notary.catalog.tables.drop(scene.grant(), RAW, "orders")
    protection = scene.protection()
    with pytest.raises(NotAllowedError) as caught:
        submit(scene, protection)
    assert caught.value.reason == "table_unknown"
    assert "the contract's source cannot be used" in caught.value.message
    assert "raw.orders" in str(caught.value.hint)


def test_a_source_that_is_another_table_than_the_contract_names_is_refused(scene: Scene) -> None:
    named = GOOD.replace("raw.orders\n", "raw.orders\n    uuid: 3b1c0c38-5a52-4a1e-9d0e-0e7f3a7c1f55\n")
    assert refusal_of(scene, named).reason == "source_replaced"


def test_a_source_with_files_of_a_format_that_is_not_read_is_refused(scene: Scene) -> None:
    scene.make("scanned", levels=RAW)
    commit_orc_snapshot(scene)
    error = refusal_of(scene, GOOD.replace("raw.orders", "raw.scanned"))
    assert (error.reason, error.exit_code, error.got) == ("source_format_unsupported", 5, "ORC")


def test_a_missing_manifest_of_source_files_is_refused(scene: Scene, tmp_path: Path) -> None:
    manifest = tmp_path / "none.json"
    text = GOOD.replace("table: raw.orders", f"files: {{manifest: {manifest}}}")
    error = refusal_of(scene, text)
    assert error.reason == "source_manifest_unreadable"
    assert str(manifest) in error.message


def test_a_manifest_of_source_files_is_judged_by_its_schema(scene: Scene, tmp_path: Path) -> None:
    manifest = tmp_path / "files.json"
    fields = [{"id": 1, "name": "id", "required": False, "type": "long"}]
    schema: Any = {"type": "struct", "schema-id": 0, "fields": fields}
    manifest.write_text(json.dumps({"kind": "pvdm/source-files/v1", "schema": schema, "files": []}))
    text = GOOD.replace("table: raw.orders", f"files: {{manifest: {manifest}}}")
    assert refusal_of(scene, text).reason == "mapping_target_differs"


def test_a_namespaces_contract_is_judged_by_its_source(scene: Scene) -> None:
    wrong = with_filter("country = 'AT'")
    reason = reason_of(lambda: scene.protect(scene.namespace_protection(contract=wrong)))
    assert (reason, scene.space().protected_by) == ("filter_column_unknown", None)
    scene.protect(scene.namespace_protection(contract=GOOD))


def test_a_migration_to_a_contract_that_can_never_publish_is_refused(scene: Scene) -> None:
    scene.protect()
    contract_before = scene.contract_of()
    wrong = OTHER_CONTRACT.replace("[id]", "[order_id]")
    reason = reason_of(lambda: scene.migrate(scene.migration(contract=wrong)))
    assert (reason, scene.contract_of()) == ("projection_column_unknown", contract_before)


def test_a_new_column_of_the_target_is_refused_until_the_source_has_it(scene: Scene) -> None:
    scene.protect()
    migration = scene.migration(COLUMN)
    with pytest.raises(PvdmError) as caught:
        submit(scene, migration)
    assert (caught.value.reason, caught.value.details["column"]) == ("mapping_target_differs", "channel")
    assert "add the column to raw.orders first" in str(caught.value.hint)
    assert scene.table_state().metadata.current_schema.find("channel") is None
    scene.commit(COLUMN, levels=RAW)
    submit(scene, scene.migration(COLUMN))
    assert scene.table_state().metadata.current_schema.find("channel") is not None


def test_a_migration_that_changes_neither_columns_nor_contract_needs_no_source(scene: Scene) -> None:
    scene.protect()
    migration = scene.migration()
    scene.notary.catalog.tables.drop(scene.grant(), RAW, "orders")
    submit(scene, migration)
    assert scene.table_state().metadata.properties["word"] == "mine"


def submit(scene: Scene, statement: Any) -> None:
    """Submit a statement; unlike `scene.protect` and `scene.migrate` it does not change the source to fit."""
    desk: Any = scene.notary.migrations if hasattr(statement, "updates") else scene.notary.protections
    desk.submit(signed(statement), scene.grant())


def commit_orc_snapshot(scene: Scene) -> None:
    """A snapshot on `main` of raw.scanned whose only file is said to be ORC."""
    metadata = scene.table_state("scanned", RAW).metadata
    file = DataFile(
        file_path=f"{metadata.location}/data/a.orc",
        file_format="ORC",
        record_count=1,
        file_size_in_bytes=10,
        partition=IdMap([(1000, None)]),
    )
    snapshot = next_snapshot(
        metadata,
        SnapshotChange((file,), frozenset(), {}),
        branch="main",
        snapshot_id=77,
        now_ms=scene.now // 1_000,
        place=lambda name: f"{metadata.location}/metadata/{name}",
        reader=Files(),
    )
    for each in snapshot.files:
        place = file_at(each.location)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(each.data)
    updates: Any = list(snapshot.updates)
    scene.commit(updates, "scanned", role=Role.OPERATOR, levels=RAW)
