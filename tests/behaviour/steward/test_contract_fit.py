"""Contracts that can never publish: refused when a table is protected or migrated, not when a workload is opened."""

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
from tests.support.gate.approvals import COLUMN, OTHER_CONTRACT, Scene, code_of, contract_for, scene_at, signed
from tests.support.lake.sources import provide_source
from tests.support.stores.places import file_at

RAW = ("raw",)
GOOD = contract_for()
DAY = "parameters:\n  day:\n    type: {type}\nboundary:\n"


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with scene_at(tmp_path) as made:
        provide_source(made.notary, made.grant(), GOOD, made.found().metadata)
        yield made


def refused(scene: Scene, contract: str) -> PvdmError:
    """What a protection under the contract is refused with; nothing holds afterwards."""
    with pytest.raises(PvdmError) as caught:
        scene.protect(scene.protection(contract=contract))
    assert scene.contract_of() is None
    assert scene.notary.protections.listed(scene.grant()) == []
    return caught.value


def where(filter_: str, *, kind: str | None = None) -> str:
    text = GOOD.replace("  operation: append\n", f"  operation: append\n  where: {filter_}\n")
    return text if kind is None else text.replace("boundary:\n", DAY.format(type=kind))


@pytest.mark.parametrize(
    ("contract", "code", "place", "said"),
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
        (where("country = 'AT'"), "filter_column_unknown", "boundary.where", "country"),
        (where("day = 5"), "literal_invalid", "boundary.where", "5"),
        (where("town is nan"), "predicate_unsuited", "boundary.where", "string"),
        (where("id = ${day}", kind="date"), "parameter_type_differs", "boundary.where", "date"),
        (
            GOOD + "chunking:\n  by: partition\n  columns: [shop]\n",
            "filter_column_unknown",
            "chunking",
            "shop",
        ),
        (GOOD + "chunking:\n  by: range\n  column: id\n  bounds: [5, 3]\n", "chunk_bounds_unordered", "chunking", "3"),
        (
            where("shop = 'a'").replace("  operation", "  claim: {column: shop}\n  operation"),
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
    scene: Scene, contract: str, code: str, place: str, said: str
) -> None:
    error = refused(scene, contract)
    assert (error.reason, error.exit_code, error.details["path"]) == (code, 2, place)
    assert error.message.startswith(f"{place} does not fit: ")
    assert said in f"{error.message} {error.expected} {error.got}"
    assert error.hint


@pytest.mark.parametrize("kind", ["string", "date"])
def test_a_parameter_whose_values_may_be_of_the_columns_type_is_accepted(scene: Scene, kind: str) -> None:
    scene.protect(scene.protection(contract=where("day = ${day}", kind=kind)))
    assert scene.contract_of() is not None


def test_a_source_without_a_snapshot_is_taken_by_its_schema(scene: Scene) -> None:
    assert scene.found(levels=RAW).metadata.current_snapshot_id is None
    scene.protect()
    assert scene.contract_of() is not None


def test_a_source_that_is_not_there_is_refused_by_its_name(scene: Scene) -> None:
    scene.notary.catalog.tables.drop(scene.grant(), RAW, "orders")
    said = scene.protection()
    with pytest.raises(NotAllowedError) as caught:
        submit(scene, said)
    assert caught.value.reason == "table_unknown"
    assert "the contract's source cannot be used" in caught.value.message
    assert "raw.orders" in str(caught.value.hint)


def test_a_source_that_is_another_table_than_the_contract_names_is_refused(scene: Scene) -> None:
    named = GOOD.replace("raw.orders\n", "raw.orders\n    uuid: 3b1c0c38-5a52-4a1e-9d0e-0e7f3a7c1f55\n")
    assert refused(scene, named).reason == "source_replaced"


def test_a_source_with_files_of_a_format_that_is_not_read_is_refused(scene: Scene) -> None:
    scene.make("scanned", levels=RAW)
    stage_orc(scene)
    error = refused(scene, GOOD.replace("raw.orders", "raw.scanned"))
    assert (error.reason, error.exit_code, error.got) == ("source_format_unsupported", 5, "ORC")


def test_a_manifest_of_files_that_is_not_there_is_refused(scene: Scene, tmp_path: Path) -> None:
    manifest = tmp_path / "none.json"
    text = GOOD.replace("table: raw.orders", f"files: {{manifest: {manifest}}}")
    error = refused(scene, text)
    assert error.reason == "source_manifest_unreadable"
    assert str(manifest) in error.message


def test_a_manifest_of_files_is_judged_by_its_schema(scene: Scene, tmp_path: Path) -> None:
    manifest = tmp_path / "files.json"
    fields = [{"id": 1, "name": "id", "required": False, "type": "long"}]
    schema: Any = {"type": "struct", "schema-id": 0, "fields": fields}
    manifest.write_text(json.dumps({"kind": "pvdm/source-files/v1", "schema": schema, "files": []}))
    text = GOOD.replace("table: raw.orders", f"files: {{manifest: {manifest}}}")
    assert refused(scene, text).reason == "mapping_target_differs"


def test_a_namespaces_contract_is_judged_by_its_source(scene: Scene) -> None:
    wrong = where("country = 'AT'")
    code = code_of(lambda: scene.protect(scene.namespace_protection(contract=wrong)))
    assert (code, scene.space().protected_by) == ("filter_column_unknown", None)
    scene.protect(scene.namespace_protection(contract=GOOD))


def test_a_migration_to_a_contract_that_can_never_publish_is_refused(scene: Scene) -> None:
    scene.protect()
    held = scene.contract_of()
    wrong = OTHER_CONTRACT.replace("[id]", "[order_id]")
    code = code_of(lambda: scene.migrate(scene.migration(contract=wrong)))
    assert (code, scene.contract_of()) == ("projection_column_unknown", held)


def test_a_new_column_of_the_target_that_the_source_lacks_is_refused_with_the_order(scene: Scene) -> None:
    scene.protect()
    said = scene.migration(COLUMN)
    with pytest.raises(PvdmError) as caught:
        submit(scene, said)
    assert (caught.value.reason, caught.value.details["column"]) == ("mapping_target_differs", "channel")
    assert "add the column to raw.orders first" in str(caught.value.hint)
    assert scene.found().metadata.current_schema.find("channel") is None
    scene.commit(COLUMN, levels=RAW)
    submit(scene, scene.migration(COLUMN))
    assert scene.found().metadata.current_schema.find("channel") is not None


def test_a_migration_that_leaves_columns_and_contract_asks_for_no_source(scene: Scene) -> None:
    scene.protect()
    said = scene.migration()
    scene.notary.catalog.tables.drop(scene.grant(), RAW, "orders")
    submit(scene, said)
    assert scene.found().metadata.properties["word"] == "mine"


def submit(scene: Scene, said: Any) -> None:
    """Hand a statement in as it is, without anything done to the source before."""
    desk: Any = scene.notary.migrations if hasattr(said, "updates") else scene.notary.protections
    desk.submit(signed(said), scene.grant())


def stage_orc(scene: Scene) -> None:
    """A snapshot on `main` of raw.scanned whose only file is said to be ORC."""
    metadata = scene.found("scanned", RAW).metadata
    file = DataFile(
        file_path=f"{metadata.location}/data/a.orc",
        file_format="ORC",
        record_count=1,
        file_size_in_bytes=10,
        partition=IdMap([(1000, None)]),
    )
    made = next_snapshot(
        metadata,
        SnapshotChange((file,), frozenset(), {}),
        branch="main",
        snapshot_id=77,
        now_ms=scene.now // 1_000,
        place=lambda name: f"{metadata.location}/metadata/{name}",
        reader=Files(),
    )
    for each in made.files:
        place = file_at(each.location)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(each.data)
    updates: Any = list(made.updates)
    scene.commit(updates, "scanned", role=Role.OPERATOR, levels=RAW)
