"""What is protected now, at the Steward: tables that were born so too, since when, and by whose word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.ledger.catalog import tables
from pvdm.model.statements.migration import ProtectionAction
from tests.support.gate.approvals import HASH, OTHER_CONTRACT, OTHER_HASH, SALES, Scene, scene_at
from tests.support.ledger.databases import memory_folder
from tools.proof_kit import SECOND

UNPROTECT = ProtectionAction.UNPROTECT


@pytest.fixture
def scene() -> Iterator[Scene]:
    with memory_folder() as folder, scene_at(folder) as made:
        yield made


@pytest.fixture
def either(ledger_url: str, tmp_path: Path) -> Iterator[Scene]:
    """The scene on each database in turn."""
    with scene_at(tmp_path, ledger_url=ledger_url) as made:
        yield made


def test_what_is_protected_now_is_listed_with_its_origin(either: Scene) -> None:
    first = either.protect()
    by = either.protect(either.namespace_protection())
    born = either.make("born").row
    either.protect(either.namespace_protection(action=UNPROTECT))
    either.make("free")
    desk, grant = either.notary.protections, either.grant()
    found = {each.name: each for each in desk.list_protected(grant, "table", count=9)}
    assert [*found] == ["born", "orders"]
    assert (found["orders"].protection_id, found["born"].protection_id) == (first.protection_id, None)
    assert (found["born"].id, found["born"].levels, found["born"].contract_sha256) == (born.table_uuid, SALES, HASH)
    assert desk.list_protected(grant, "namespace", count=9) == []
    assert by.action.value == "protect"


def test_a_table_that_was_protected_again_is_so_since_then(scene: Scene) -> None:
    first = scene.protect()
    scene.protect(scene.protection(action=UNPROTECT))
    assert scene.notary.protections.list_protected(scene.grant(), "table", count=9) == []
    scene.stand.time.pass_by(60 * SECOND)
    second = scene.protect()
    (found,) = scene.notary.protections.list_protected(scene.grant(), "table", count=9)
    assert found.protection_id == second.protection_id != first.protection_id
    assert found.since_micros >= scene.now


def test_an_unprotection_is_not_the_origin_of_a_later_protection(scene: Scene) -> None:
    """After a restore a table can come back into a protected namespace although its newest word is its unprotection."""
    scene.protect()
    scene.protect(scene.protection(action=UNPROTECT))
    row = scene.found().row
    scene.notary.ledger.transact(lambda unit: tables.protect(unit, row, HASH), at_micros=scene.now)
    (found,) = scene.notary.protections.list_protected(scene.grant(), "table", count=9)
    assert found.protection_id is None


def test_another_contract_by_a_migration_leaves_the_origin(scene: Scene) -> None:
    first = scene.protect()
    scene.migrate(scene.migration(contract=OTHER_CONTRACT))
    (found,) = scene.notary.protections.list_protected(scene.grant(), "table", count=9)
    assert (found.contract_sha256, found.protection_id) == (OTHER_HASH, first.protection_id)


def test_a_page_of_what_is_protected_goes_on_behind_the_last_one(either: Scene) -> None:
    for levels in (SALES, ("risk",)):
        either.protect(either.namespace_protection(levels=levels))
        for name in ("a", "b"):
            either.make(name, levels=levels)
    desk, grant = either.notary.protections, either.grant()
    whole = desk.list_protected(grant, "table", count=9)
    assert [(each.levels, each.name) for each in whole] == [
        (("risk",), "a"), (("risk",), "b"), (SALES, "a"), (SALES, "b")
    ]  # fmt: skip
    for at in range(3):
        assert desk.list_protected(grant, "table", after=(*whole[at].levels, str(whole[at].name)), count=1) == [
            whole[at + 1]
        ]
    assert desk.list_protected(grant, "table", levels=SALES, count=9) == whole[2:]
    assert desk.list_protected(grant, "table", levels=SALES, name="b", count=9) == whole[3:]
    spaces = desk.list_protected(grant, "namespace", count=9)
    assert [each.levels for each in spaces] == [("risk",), SALES]
    assert desk.list_protected(grant, "namespace", after=("risk",), count=9) == spaces[1:]
    assert desk.list_protected(grant, "namespace", levels=("risk",), count=9) == spaces[:1]


def test_a_dropped_table_is_not_protected_now(scene: Scene) -> None:
    scene.protect()
    scene.protect(scene.protection(action=UNPROTECT))
    scene.notary.catalog.tables.drop(scene.grant(), SALES, "orders")
    assert scene.notary.protections.list_protected(scene.grant(), "table", count=9) == []
