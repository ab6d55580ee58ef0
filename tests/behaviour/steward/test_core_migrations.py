"""Signed migrations: the Steward applies exactly the approved changes and logs them, or changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pvdm.api.protection import Applied
from pvdm.errors import InputError, NotAllowedError, PvdmError, UnavailableError
from pvdm.metadata.gate.state import state_of
from pvdm.model.role import Role
from pvdm.model.statements.migration import Migration, ProtectionAction
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.verify import sign_statement
from tests.behaviour.steward.test_core_protections import OTHER_UUID, at_once
from tests.support import fault
from tests.support.gate.approvals import (
    COLUMN,
    HASH,
    OTHER_CONTRACT,
    OTHER_HASH,
    WORD,
    Doc,
    Scene,
    reason_of,
    scene_at,
    signed,
)
from tests.support.ledger.databases import memory_folder
from tests.support.steward.logged import entry_of
from tools.proof_kit import SECOND

ELSEWHERE: list[Doc] = [{"action": "set-properties", "updates": {"elsewhere": "yes"}}]


@pytest.fixture
def scene() -> Iterator[Scene]:
    with memory_folder() as folder, scene_at(folder) as made:
        made.protect()
        yield made


@pytest.fixture
def db_scene(ledger_url: str, tmp_path: Path) -> Iterator[Scene]:
    """The scene on SQLite and PostgreSQL in turn."""
    with scene_at(tmp_path, ledger_url=ledger_url) as made:
        made.protect()
        yield made


@pytest.fixture(scope="module")
def shared_scene() -> Iterator[Scene]:
    """One scene for all tests that change nothing: `orders` is protected, `free` is not."""
    with memory_folder() as folder, scene_at(folder) as made:
        made.protect()
        made.stage()
        made.make("free")
        yield made


def refusal_of(scene: Scene, call: Callable[[], object], kind: type[PvdmError] = NotAllowedError) -> str:
    """The reason of the refusal, after which log, tables and files are as before."""

    def facts() -> tuple[object, ...]:
        files = sorted(path.name for path in (scene.stand.folder / "catalog").rglob("*") if path.is_file())
        return scene.notary.log.size(), scene.table_state().row, scene.table_state("free").row, files

    before = facts()
    reason = reason_of(call, kind)
    assert facts() == before
    return reason


def spec_update(scene: Scene) -> list[Doc]:
    spec = {"spec-id": 1, "fields": [{"name": "town", "transform": "identity", "source-id": 3, "field-id": 1001}]}
    return [{"action": "add-spec", "spec": spec}, {"action": "set-default-spec", "spec-id": -1}]


def order_update(scene: Scene) -> list[Doc]:
    fields = [{"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}]
    order = {"order-id": 1, "fields": fields}
    return [
        {"action": "add-sort-order", "sort-order": order},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    ]


CHANGES: dict[str, Callable[[Scene], list[Doc]]] = {
    "property": lambda _: WORD,
    "column": lambda _: COLUMN,
    "spec": spec_update,
    "sort order": order_update,
    "format": lambda _: [{"action": "upgrade-format-version", "format-version": 3}],
    "all": lambda scene: [*WORD, *COLUMN, *spec_update(scene), *order_update(scene)],
}


def test_every_change_is_applied_as_approved_logged_and_shown(db_scene: Scene) -> None:
    db_scene.stage()
    for name, updates in CHANGES.items():
        if name == "all":
            continue
        before = db_scene.table_state().metadata
        migration = db_scene.migration(updates(db_scene))
        view = db_scene.migrate(migration)
        after = db_scene.table_state()
        assert state_of(after.metadata, HASH) == migration.after == view.after, name
        assert json.loads(entry_of(db_scene.notary, view.log_index))["kind"] == "migration"
        assert view.metadata_sha256 == after.row.pointer.sha256
        assert [each.raw for each in after.metadata.snapshots] == [each.raw for each in before.snapshots]
        assert after.metadata.refs == before.refs
    assert len(db_scene.notary.migrations.list_migrations(db_scene.grant())) == len(CHANGES) - 1


@pytest.mark.parametrize("version", [1, 2, 3])
def test_tables_of_every_format_are_migrated_with_all_kinds_of_changes_at_once(scene: Scene, version: int) -> None:
    scene.make("t", version=version)
    scene.stage("t", branch="main")
    scene.protect(scene.protection("t"))
    scene.stage("t")
    migration = scene.migration([*CHANGES["format"](scene), *CHANGES["all"](scene)], "t")
    assert scene.migrate(migration).after == migration.after
    found = scene.table_state("t").metadata
    assert (found.format_version, found.current_snapshot_id) == (
        3,
        scene.table_state("t").metadata.refs["main"].snapshot_id,
    )
    scene.stage("t")


def test_a_new_column_gives_a_new_schema_fingerprint(scene: Scene) -> None:
    view = scene.migrate(scene.migration(COLUMN))
    assert view.before.schema_fingerprint != view.after.schema_fingerprint


def test_a_migration_changes_the_contract(db_scene: Scene) -> None:
    view = db_scene.migrate(db_scene.migration([], contract=OTHER_CONTRACT))
    assert (db_scene.contract_of(), view.after.contract_sha256) == (OTHER_HASH, OTHER_HASH)
    assert db_scene.notary.protections.get_contract(OTHER_HASH, db_scene.grant()) == OTHER_CONTRACT.encode()
    end = db_scene.protection(action=ProtectionAction.UNPROTECT, contract=OTHER_CONTRACT)
    assert db_scene.protect(end).contract_sha256 == OTHER_HASH


def test_contract_and_structure_change_together(scene: Scene) -> None:
    scene.migrate(scene.migration(COLUMN, contract=OTHER_CONTRACT))
    found = scene.table_state()
    assert (found.row.contract_hash, len(found.metadata.current_schema.fields)) == (OTHER_HASH, 4)


def test_a_migration_submitted_again_gives_the_same_answer(scene: Scene) -> None:
    envelope = signed(scene.migration())
    first = scene.notary.migrations.submit(envelope, scene.grant())
    row = scene.table_state().row
    assert first.applied is Applied.NOW
    again = scene.notary.migrations.submit(envelope, scene.grant())
    assert again == first.model_copy(update={"applied": Applied.BEFORE})
    assert scene.table_state().row == row


def test_a_migration_submitted_several_times_at_once_is_applied_once(db_scene: Scene) -> None:
    envelope, grant = signed(db_scene.migration()), db_scene.grant()
    answers = at_once(*[lambda: db_scene.notary.migrations.submit(envelope, grant)] * 4)
    assert len({each.model_copy(update={"applied": Applied.BEFORE}) for each in answers}) == 1
    assert sorted(each.applied.value for each in answers) == ["before", "before", "before", "now"]
    assert len(db_scene.notary.migrations.list_migrations(grant)) == 1


def test_of_two_concurrent_migrations_one_is_refused(db_scene: Scene) -> None:
    grant = db_scene.grant()
    envelopes = [signed(db_scene.migration(updates)) for updates in (WORD, ELSEWHERE)]
    answers = at_once(*[partial(db_scene.notary.migrations.submit, data, grant) for data in envelopes])
    assert [answer for answer in answers if isinstance(answer, str)] == ["approval_stale"]
    assert len(set(db_scene.table_state().metadata.properties) & {"word", "elsewhere"}) == 1


def test_a_branch_commit_between_judging_and_swap_is_kept_and_the_migration_judged_again(scene: Scene) -> None:
    envelope, grant = signed(scene.migration()), scene.grant()
    done: list[None] = []

    def stage_meanwhile() -> None:
        if not done:
            done.append(None)
            # Another Steward on the same ledger: its commits do not wait in this one's queue.
            with pytest.MonkeyPatch.context() as patch:
                commits = scene.notary.catalog.commits
                patch.setattr(commits, "_queues", type(commits._queues)())
                scene.stage(branch="meanwhile")

    with fault.armed("catalog.after_metadata_file", fault.Call(stage_meanwhile)):
        scene.notary.migrations.submit(envelope, grant)
    found = scene.table_state().metadata
    assert found.properties["word"] == "mine"
    assert "meanwhile" in found.refs


def test_a_migration_whose_answer_was_lost_is_answered_when_submitted_again(scene: Scene) -> None:
    envelope, grant = signed(scene.migration()), scene.grant()
    with (
        fault.armed("steward.before_outside", fault.Raise(UnavailableError("lost", "the answer is lost"))),
        pytest.raises(UnavailableError),
    ):
        scene.notary.migrations.submit(envelope, grant)
    assert scene.table_state().metadata.properties["word"] == "mine"
    notary = scene.stand.reopen()
    assert notary.migrations.submit(envelope, scene.grant()).migration.table == "sales.orders"
    notary.recorder.require_consistent()


@pytest.mark.parametrize("point", ["catalog.after_metadata_file", "ledger.before_commit"])
def test_a_migration_that_fails_before_its_commit_leaves_nothing(scene: Scene, point: str) -> None:
    row, size = scene.table_state().row, scene.notary.log.size()
    envelope, grant = signed(scene.migration()), scene.grant()
    with (
        fault.armed(point, fault.Raise(UnavailableError("no", "gone"))),
        pytest.raises(UnavailableError),
    ):
        scene.notary.migrations.submit(envelope, grant)
    assert (scene.table_state().row, scene.notary.log.size()) == (row, size)
    scene.notary.migrations.submit(envelope, grant)
    assert scene.table_state().metadata.properties["word"] == "mine"


SIGNERS_REFUSED = {"rogue": "key_unknown", "operator-ruth": "key_is_break_glass", "source-payments": "key_role_wrong"}


@pytest.mark.parametrize("signer", sorted(SIGNERS_REFUSED))
def test_a_migration_signed_with_a_key_that_is_no_operators_is_refused(shared_scene: Scene, signer: str) -> None:
    migration = replace(shared_scene.migration(), operator=signer)
    assert refusal_of(shared_scene, lambda: shared_scene.migrate(migration, signer=signer)) == SIGNERS_REFUSED[signer]


def test_the_stewards_own_key_migrates_nothing(shared_scene: Scene) -> None:
    signer = shared_scene.notary.keys.signer(KeyRole.SIGNING, 1)
    data = sign_statement(replace(shared_scene.migration(), operator="steward-one"), signer).to_bytes()
    reason = refusal_of(shared_scene, lambda: shared_scene.notary.migrations.submit(data, shared_scene.grant()))
    assert reason == "approval_signed_by_steward"


def with_ref(migration: Migration, **facts: str) -> Migration:
    return replace(migration, table=replace(migration.table, **facts))


def with_state(migration: Migration, side: str, **facts: Any) -> Migration:
    return replace(migration, **{side: replace(getattr(migration, side), **facts)})


WRONG: dict[str, tuple[Callable[[Migration], Migration], str]] = {
    "UUID": (lambda good: with_ref(good, uuid=OTHER_UUID), "approval_wrong_table"),
    "name": (lambda good: with_ref(good, name="sales.invoices"), "approval_wrong_name"),
    "catalog": (lambda good: with_ref(good, catalog="elsewhere"), "approval_wrong_catalog"),
    "schema before": (lambda good: with_state(good, "before", schema_fingerprint="00" * 32), "approval_stale"),
    "spec before": (lambda good: with_state(good, "before", spec_id=3), "approval_stale"),
    "format before": (lambda good: with_state(good, "before", format_version=1), "approval_stale"),
    "structure before": (lambda good: with_state(good, "before", structure_sha256="00" * 32), "approval_stale"),
    "schema after": (lambda good: with_state(good, "after", schema_fingerprint="00" * 32), "migration_result_differs"),
    "spec after": (lambda good: with_state(good, "after", spec_id=3), "migration_result_differs"),
    "format after": (lambda good: with_state(good, "after", format_version=3), "migration_result_differs"),
    "structure after": (lambda good: with_state(good, "after", structure_sha256="00" * 32), "migration_result_differs"),
    "updates": (lambda good: replace(good, updates=json.dumps(ELSEWHERE)), "migration_result_differs"),
    "more updates": (lambda good: replace(good, updates=json.dumps([*WORD, *ELSEWHERE])), "migration_result_differs"),
    "no updates": (lambda good: replace(good, updates="[]"), "migration_result_differs"),
}


@pytest.mark.parametrize("wrong", sorted(WRONG))
def test_another_table_state_or_result_than_was_signed_is_refused(shared_scene: Scene, wrong: str) -> None:
    change, reason = WRONG[wrong]
    migration = change(shared_scene.migration())
    assert refusal_of(shared_scene, lambda: shared_scene.migrate(migration)) == reason


def test_a_migration_signed_under_an_earlier_contract_is_refused(scene: Scene) -> None:
    migration = scene.migration()
    scene.migrate(scene.migration([], contract=OTHER_CONTRACT))
    assert reason_of(lambda: scene.migrate(migration), NotAllowedError) == "approval_stale"


def snapshot_update(scene: Scene) -> list[Doc]:
    base = scene.table_state().metadata
    snapshot: Doc = {
        "snapshot-id": 77,
        "sequence-number": base.next_sequence_number,
        "timestamp-ms": max(scene.now // 1_000, base.last_updated_ms),
        "summary": {"operation": "append"},
        "manifest-list": f"{base.location}/metadata/snap-77.avro",
        "schema-id": 0,
    }
    return [{"action": "add-snapshot", "snapshot": snapshot}]


def statistics(action: str) -> list[Doc]:
    file: Doc = {"snapshot-id": 1_001, "statistics-path": "file:///x.puffin", "file-size-in-bytes": 1}
    if action == "set-partition-statistics":
        return [{"action": action, "partition-statistics": file}]
    file |= {"file-footer-size-in-bytes": 1, "blob-metadata": []}
    return [{"action": action, "snapshot-id": 1_001, "statistics": file}]


def branch(name: str, **facts: Any) -> list[Doc]:
    return [{"action": "set-snapshot-ref", "ref-name": name, "type": "branch", "snapshot-id": 1_001, **facts}]


FORBIDDEN: dict[str, tuple[Callable[[Scene], list[Doc]], str]] = {
    "a snapshot more": (snapshot_update, "migration_moves_data"),
    "a snapshot on main": (
        lambda s: [*snapshot_update(s), *branch("main", **{"snapshot-id": 77})],
        "migration_moves_data",
    ),
    "a snapshot less": (lambda _: [{"action": "remove-snapshots", "snapshot-ids": [1_001]}], "migration_moves_data"),
    "a branch more": (lambda _: branch("more"), "migration_moves_data"),
    "a branch less": (lambda _: [{"action": "remove-snapshot-ref", "ref-name": "stage"}], "migration_moves_data"),
    "main's retention": (lambda _: branch("main", **{"min-snapshots-to-keep": 1}), "migration_moves_data"),
    "no main": (lambda _: [{"action": "remove-snapshot-ref", "ref-name": "main"}], "migration_moves_data"),
    "statistics": (lambda _: statistics("set-statistics"), "migration_moves_data"),
    "partition statistics": (lambda _: statistics("set-partition-statistics"), "migration_moves_data"),
    "location": (lambda _: [{"action": "set-location", "location": "file:///elsewhere"}], "migration_moves_table"),
    "UUID": (lambda _: [{"action": "assign-uuid", "uuid": OTHER_UUID}], "migration_moves_table"),
}


@pytest.mark.parametrize("forbidden", sorted(FORBIDDEN))
def test_no_signature_lets_a_migration_touch_rows_or_identity(shared_scene: Scene, forbidden: str) -> None:
    updates, reason = FORBIDDEN[forbidden]
    # The signed state after the migration is the one that these updates give, and an allowed update comes first.
    migration = shared_scene.migration([*WORD, *updates(shared_scene)])
    assert refusal_of(shared_scene, lambda: shared_scene.migrate(migration)) == reason


def test_a_table_that_is_not_protected_is_not_migrated(shared_scene: Scene) -> None:
    migration = shared_scene.migration(name="free")
    assert refusal_of(shared_scene, lambda: shared_scene.migrate(migration)) == "not_protected"


def test_a_table_that_was_unprotected_since_is_not_migrated(scene: Scene) -> None:
    migration = scene.migration()
    scene.protect(scene.protection(action=ProtectionAction.UNPROTECT))
    assert reason_of(lambda: scene.migrate(migration), NotAllowedError) == "not_protected"


def test_an_expired_migration_is_refused(scene: Scene) -> None:
    migration = scene.migration()
    scene.stand.time.pass_by(3_600 * SECOND)
    assert reason_of(lambda: scene.migrate(migration), NotAllowedError) == "approval_expired"


def test_a_nonce_that_was_used_is_refused(scene: Scene) -> None:
    first = scene.migration()
    scene.migrate(first)
    second = replace(scene.migration(ELSEWHERE), nonce=first.nonce)
    assert reason_of(lambda: scene.migrate(second), NotAllowedError) == "approval_replayed"
    assert "elsewhere" not in scene.table_state().metadata.properties


def test_an_operator_of_another_domain_cannot_migrate_the_table(shared_scene: Scene) -> None:
    assert refusal_of(shared_scene, lambda: shared_scene.migrate(domain="risk")) == "domain_wrong"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{}", "lake_value_invalid"),
        ("[", "lake_json_malformed"),
        ('[{"action":"no-such-update"}]', "update_unknown"),
    ],
)
def test_malformed_or_unknown_updates_are_bad_input(shared_scene: Scene, text: str, reason: str) -> None:
    migration = replace(shared_scene.migration(), updates=text)
    assert refusal_of(shared_scene, lambda: shared_scene.migrate(migration), InputError) == reason


def test_migrations_are_shown_to_their_domain(scene: Scene) -> None:
    view = scene.migrate()
    assert scene.notary.migrations.list_migrations(scene.grant(Role.AUDITOR, "sales")) == [view]
    assert scene.notary.migrations.list_migrations(scene.grant(Role.AUDITOR, "risk")) == []
    other_domain = scene.grant(Role.AUDITOR, "risk")
    assert reason_of(lambda: scene.notary.migrations.get(view.migration_id, other_domain)) == "domain_wrong"
    assert reason_of(lambda: scene.notary.migrations.get("00" * 32, scene.grant())) == "migration_unknown"


def test_a_table_is_shown_to_an_operator_before_signing(scene: Scene) -> None:
    view = scene.notary.migrations.show_table(("sales",), "orders", scene.grant())
    assert (view.contract_sha256, view.id) == (HASH, scene.table_state().row.table_uuid)
    assert str(view.metadata).encode() == scene.table_state().metadata.to_bytes()
    other_domain = scene.grant(Role.OPERATOR, "risk")
    assert reason_of(lambda: scene.notary.migrations.show_table(("sales",), "orders", other_domain)) == "domain_wrong"
    namespace = scene.notary.migrations.show_namespace(("sales",), scene.grant())
    assert (namespace.catalog, namespace.name) == (scene.notary.catalog.name, "sales")


def test_a_migration_to_a_contract_that_is_no_yaml_is_refused(scene: Scene) -> None:
    migration = scene.migration([], contract="a: [1")
    assert reason_of(lambda: scene.migrate(migration), InputError) == "contract_unreadable"
    assert scene.contract_of() == HASH


def test_a_migration_to_a_claim_that_the_filter_does_not_bound_is_refused(scene: Scene) -> None:
    bad = OTHER_CONTRACT.replace("operation: append", "operation: append\n  claim: {column: id}")
    assert bad != OTHER_CONTRACT
    assert reason_of(lambda: scene.migrate(scene.migration([], contract=bad)), InputError) == "contract_invalid"
    assert scene.contract_of() == HASH


def test_a_migration_to_a_contract_for_another_table_is_refused(scene: Scene) -> None:
    migration = scene.migration([], contract=OTHER_CONTRACT.replace("sales.orders", "sales.invoices"))
    assert reason_of(lambda: scene.migrate(migration), NotAllowedError) == "contract_of_other_table"
    assert scene.contract_of() == HASH
