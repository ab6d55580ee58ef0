"""The list of what is protected now: since when, and by which signed protection.

A table that was created in a protected namespace has no signed protection of its own.
"""

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
def db_scene(ledger_url: str, tmp_path: Path) -> Iterator[Scene]:
    """The scene on SQLite and PostgreSQL in turn."""
    with scene_at(tmp_path, ledger_url=ledger_url) as made:
        yield made


def test_protected_tables_are_listed_with_the_protection_that_applies(db_scene: Scene) -> None:
    first = db_scene.protect()
    of_namespace = db_scene.protect(db_scene.namespace_protection())
    created = db_scene.make("born").row
    db_scene.protect(db_scene.namespace_protection(action=UNPROTECT))
    db_scene.make("free")
    desk, grant = db_scene.notary.protections, db_scene.grant()
    found = {each.name: each for each in desk.list_protected(grant, "table", count=9)}
    assert [*found] == ["born", "orders"]
    assert (found["orders"].protection_id, found["born"].protection_id) == (first.protection_id, None)
    assert (found["born"].id, found["born"].levels, found["born"].contract_sha256) == (created.table_uuid, SALES, HASH)
    assert desk.list_protected(grant, "namespace", count=9) == []
    assert of_namespace.action.value == "protect"


def test_a_table_that_was_protected_again_is_listed_with_its_second_protection(scene: Scene) -> None:
    first = scene.protect()
    scene.protect(scene.protection(action=UNPROTECT))
    assert scene.notary.protections.list_protected(scene.grant(), "table", count=9) == []
    scene.stand.time.pass_by(60 * SECOND)
    second = scene.protect()
    (found,) = scene.notary.protections.list_protected(scene.grant(), "table", count=9)
    assert found.protection_id == second.protection_id != first.protection_id
    assert found.since_micros >= scene.now


def test_a_protected_table_whose_last_approval_is_an_unprotection_has_no_protection_id(scene: Scene) -> None:
    """After a restore the protection of its namespace can apply to a table that was unprotected before."""
    scene.protect()
    scene.protect(scene.protection(action=UNPROTECT))
    row = scene.table_state().row
    scene.notary.ledger.transact(lambda unit: tables.protect(unit, row, HASH), at_micros=scene.now)
    (found,) = scene.notary.protections.list_protected(scene.grant(), "table", count=9)
    assert found.protection_id is None


def test_a_migration_to_another_contract_leaves_the_protection_id(scene: Scene) -> None:
    first = scene.protect()
    scene.migrate(scene.migration(contract=OTHER_CONTRACT))
    (found,) = scene.notary.protections.list_protected(scene.grant(), "table", count=9)
    assert (found.contract_sha256, found.protection_id) == (OTHER_HASH, first.protection_id)


def test_a_page_of_what_is_protected_begins_after_the_given_name(db_scene: Scene) -> None:
    for levels in (SALES, ("risk",)):
        db_scene.protect(db_scene.namespace_protection(levels=levels))
        for name in ("a", "b"):
            db_scene.make(name, levels=levels)
    desk, grant = db_scene.notary.protections, db_scene.grant()
    listed = desk.list_protected(grant, "table", count=9)
    assert [(each.levels, each.name) for each in listed] == [
        (("risk",), "a"), (("risk",), "b"), (SALES, "a"), (SALES, "b")
    ]  # fmt: skip
    for at in range(3):
        assert desk.list_protected(grant, "table", after=(*listed[at].levels, str(listed[at].name)), count=1) == [
            listed[at + 1]
        ]
    assert desk.list_protected(grant, "table", levels=SALES, count=9) == listed[2:]
    assert desk.list_protected(grant, "table", levels=SALES, name="b", count=9) == listed[3:]
    protected_namespaces = desk.list_protected(grant, "namespace", count=9)
    assert [each.levels for each in protected_namespaces] == [("risk",), SALES]
    assert desk.list_protected(grant, "namespace", after=("risk",), count=9) == protected_namespaces[1:]
    assert desk.list_protected(grant, "namespace", levels=("risk",), count=9) == protected_namespaces[:1]


def test_a_table_is_listed_while_it_is_protected_only(scene: Scene) -> None:
    def listed_names() -> list[str | None]:
        return [each.name for each in scene.notary.protections.list_protected(scene.grant(), "table", count=9)]

    scene.protect()
    assert listed_names() == ["orders"]
    scene.protect(scene.protection(action=UNPROTECT))
    assert listed_names() == []
    scene.notary.catalog.tables.drop(scene.grant(), SALES, "orders")
    assert listed_names() == []
