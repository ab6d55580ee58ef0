"""Signed protections: the Steward applies each with its log entry or not at all, and refuses every misuse."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pvdm.errors import ConflictError, InputError, NotAllowedError, PvdmError, UnavailableError
from pvdm.ledger.work import nonces
from pvdm.model.role import Role
from pvdm.model.statements.migration import NamespaceTarget, Protection, ProtectionAction, TableTarget
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.verify import sign_statement
from tests.support import fault
from tests.support.gate.approvals import (
    COLUMN,
    CONTRACT,
    HASH,
    OTHER_CONTRACT,
    OTHER_HASH,
    SALES,
    WORD,
    Scene,
    contract_for,
    reason_of,
    scene_at,
    signed,
)
from tests.support.ledger.databases import memory_folder
from tests.support.steward.logged import entry_of
from tests.support.steward.notary import root_naming, signed_root
from tools.proof_kit import SECOND

PROTECT = ProtectionAction.PROTECT
UNPROTECT = ProtectionAction.UNPROTECT
OTHER_UUID = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def scene() -> Iterator[Scene]:
    with memory_folder() as folder, scene_at(folder) as made:
        yield made


@pytest.fixture
def db_scene(ledger_url: str, tmp_path: Path) -> Iterator[Scene]:
    """The scene on SQLite and PostgreSQL in turn."""
    with scene_at(tmp_path, ledger_url=ledger_url) as made:
        yield made


@pytest.fixture(scope="module")
def shared_scene() -> Iterator[Scene]:
    """One scene for all tests that change nothing: `held` and the namespace `risk` are protected, `orders` is not."""
    with memory_folder() as folder, scene_at(folder) as made:
        made.make("held")
        made.protect(made.protection("held"))
        made.protect(made.namespace_protection(levels=("risk",)))
        yield made


def refusal_of(scene: Scene, call: Callable[[], object], kind: type[PvdmError] = NotAllowedError) -> str:
    """The reason of the refusal, after which log, tables and namespaces are as before."""

    def facts() -> tuple[object, ...]:
        return scene.notary.log.size(), scene.contract_of(), scene.contract_of("held"), scene.space(("risk",))

    before = facts()
    reason = reason_of(call, kind)
    assert facts() == before
    return reason


def test_a_protected_table_refuses_ordinary_commits_to_main(db_scene: Scene) -> None:
    db_scene.commit(WORD)
    view = db_scene.protect()
    assert (db_scene.contract_of(), view.contract_sha256, view.action) == (HASH, HASH, PROTECT)
    assert json.loads(entry_of(db_scene.notary, view.log_index))["kind"] == "protection"
    with pytest.raises(NotAllowedError):
        db_scene.commit([{"action": "set-properties", "updates": {"word": "other"}}])
    db_scene.stage()
    assert db_scene.notary.protections.get_contract(HASH, db_scene.grant()) == CONTRACT.encode()


def test_an_unprotected_table_accepts_ordinary_commits_again(db_scene: Scene) -> None:
    db_scene.protect()
    db_scene.protect(db_scene.protection(action=UNPROTECT))
    db_scene.commit(WORD)
    assert db_scene.contract_of() is None
    assert [view.action for view in db_scene.notary.protections.list_protections(db_scene.grant())] == [
        UNPROTECT,
        ProtectionAction.PROTECT,
    ]


def test_a_new_table_is_protected_if_its_namespace_is_protected_when_it_is_created(db_scene: Scene) -> None:
    db_scene.protect(db_scene.namespace_protection())
    assert db_scene.make("born").row.contract_hash == HASH
    db_scene.protect(db_scene.namespace_protection(action=UNPROTECT))
    assert db_scene.make("free").row.contract_hash is None
    assert (db_scene.contract_of("born"), db_scene.contract_of()) == (HASH, None)


def test_a_protection_submitted_again_gives_the_same_answer(scene: Scene) -> None:
    envelope = signed(scene.protection())
    first = scene.notary.protections.submit(envelope, scene.grant())
    size = scene.notary.log.size()
    assert scene.notary.protections.submit(envelope, scene.grant()) == first
    assert scene.notary.log.size() == size


def test_a_protection_submitted_again_does_not_protect_a_table_that_was_unprotected_since(scene: Scene) -> None:
    envelope = signed(scene.protection())
    first = scene.notary.protections.submit(envelope, scene.grant())
    scene.protect(scene.protection(action=UNPROTECT))
    assert scene.notary.protections.submit(envelope, scene.grant()) == first
    assert scene.contract_of() is None


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Run these calls at the same time; returns each result, or the reason of its error."""
    barrier = threading.Barrier(len(calls))
    answers: list[Any] = [None] * len(calls)

    def run(index: int, call: Callable[[], Any]) -> None:
        barrier.wait()
        try:
            answers[index] = call()
        except PvdmError as error:
            answers[index] = error.reason

    threads = [threading.Thread(target=run, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_a_protection_submitted_several_times_at_once_is_stored_once(db_scene: Scene) -> None:
    envelope, grant = signed(db_scene.protection()), db_scene.grant()
    answers = at_once(*[lambda: db_scene.notary.protections.submit(envelope, grant)] * 4)
    assert answers == [answers[0]] * 4
    assert len(db_scene.notary.protections.list_protections(grant)) == 1


def test_of_two_concurrent_protections_one_is_accepted(db_scene: Scene) -> None:
    grant = db_scene.grant()
    envelopes = [signed(db_scene.protection(contract=text)) for text in (CONTRACT, OTHER_CONTRACT)]
    answers = at_once(*[partial(db_scene.notary.protections.submit, data, grant) for data in envelopes])
    (accepted,) = [answer for answer in answers if not isinstance(answer, str)]
    assert "protected_already" in answers
    assert db_scene.contract_of() == accepted.contract_sha256


def test_commits_to_branches_meanwhile_are_not_lost_and_do_not_stop_a_protection(db_scene: Scene) -> None:
    envelope, grant = signed(db_scene.protection()), db_scene.grant()

    def stage() -> int:
        for _ in range(6):
            db_scene.stage()
        return len(db_scene.table_state().metadata.snapshots)

    answers = at_once(stage, lambda: db_scene.notary.protections.submit(envelope, grant))
    assert answers[0] == 7
    assert db_scene.contract_of() == HASH


def test_a_commit_to_main_that_was_checked_before_the_protection_is_refused(scene: Scene) -> None:
    done: list[object] = []

    def protect_meanwhile() -> None:
        if not done:
            done.append(None)
            scene.protect()

    with (
        fault.armed("catalog.after_metadata_file", fault.Call(protect_meanwhile)),
        pytest.raises(NotAllowedError) as caught,
    ):
        scene.commit(WORD)
    assert caught.value.reason == "main_gated"
    assert "word" not in scene.table_state().metadata.properties


def test_a_protection_whose_answer_was_lost_is_answered_when_submitted_again(scene: Scene) -> None:
    envelope, grant = signed(scene.protection()), scene.grant()
    with (
        fault.armed("steward.before_outside", fault.Raise(UnavailableError("lost", "the answer is lost"))),
        pytest.raises(UnavailableError),
    ):
        scene.notary.protections.submit(envelope, grant)
    assert scene.contract_of() == HASH
    notary = scene.stand.reopen()
    assert notary.protections.submit(envelope, scene.grant()).contract_sha256 == HASH
    notary.recorder.require_consistent()


def test_a_protection_that_fails_before_its_commit_leaves_nothing(scene: Scene) -> None:
    size = scene.notary.log.size()
    grant, envelope = scene.grant(), signed(scene.protection())
    with (
        fault.armed("ledger.before_commit", fault.Raise(UnavailableError("no", "the database is gone"))),
        pytest.raises(UnavailableError),
    ):
        scene.notary.protections.submit(envelope, grant)
    assert (scene.notary.log.size(), scene.contract_of()) == (size, None)
    assert scene.notary.protections.submit(envelope, grant).contract_sha256 == HASH


SIGNERS_REFUSED = {
    "rogue": "key_unknown",
    "operator-ruth": "key_is_break_glass",
    "source-payments": "key_role_wrong",
}


@pytest.mark.parametrize("signer", sorted(SIGNERS_REFUSED))
def test_a_protection_signed_with_a_key_that_is_no_operators_is_refused(shared_scene: Scene, signer: str) -> None:
    protection = replace(shared_scene.protection(), operator=signer)
    assert refusal_of(shared_scene, lambda: shared_scene.protect(protection, signer=signer)) == SIGNERS_REFUSED[signer]


def test_an_unsigned_protection_is_refused(shared_scene: Scene) -> None:
    value = {**json.loads(signed(shared_scene.protection())), "signatures": []}
    data = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
    reason = refusal_of(shared_scene, lambda: shared_scene.notary.protections.submit(data, shared_scene.grant()))
    assert reason == "approval_unsigned"


def test_the_stewards_own_key_protects_nothing(shared_scene: Scene) -> None:
    signer = shared_scene.notary.keys.signer(KeyRole.SIGNING, 1)
    data = sign_statement(replace(shared_scene.protection(), operator="steward-one"), signer).to_bytes()
    reason = refusal_of(shared_scene, lambda: shared_scene.notary.protections.submit(data, shared_scene.grant()))
    assert reason == "approval_signed_by_steward"


def test_a_signature_in_another_operators_name_is_refused(shared_scene: Scene) -> None:
    protection = replace(shared_scene.protection(), operator="operator-ruth")
    assert refusal_of(shared_scene, lambda: shared_scene.protect(protection)) == "signer_name_wrong"


def with_facts(protection: Protection, **facts: Any) -> Protection:
    """The same protection with other facts about its table."""
    assert isinstance(protection.target, TableTarget)
    named = {key: value for key, value in facts.items() if key in ("catalog", "uuid", "name")}
    state = {key: value for key, value in facts.items() if key not in named}
    table = replace(protection.target.table, **named)
    target = replace(protection.target, table=table, state=replace(protection.target.state, **state))
    return replace(protection, target=target)


WRONG_TARGETS: dict[str, tuple[dict[str, Any], str]] = {
    "UUID": ({"uuid": OTHER_UUID}, "approval_wrong_table"),
    "name": ({"name": "sales.invoices"}, "approval_wrong_name"),
    "catalog": ({"catalog": "elsewhere"}, "approval_wrong_catalog"),
    "schema": ({"schema_fingerprint": "00" * 32}, "approval_stale"),
    "spec": ({"spec_id": 1}, "approval_stale"),
    "format": ({"format_version": 1}, "approval_stale"),
    "structure": ({"structure_sha256": "00" * 32}, "approval_stale"),
}


@pytest.mark.parametrize("wrong", sorted(WRONG_TARGETS))
def test_a_protection_of_another_table_or_another_state_is_refused(shared_scene: Scene, wrong: str) -> None:
    facts, reason = WRONG_TARGETS[wrong]
    protection = with_facts(shared_scene.protection(), **facts)
    assert refusal_of(shared_scene, lambda: shared_scene.protect(protection)) == reason


def test_a_refusal_names_the_part_of_the_state_that_differs(shared_scene: Scene) -> None:
    with pytest.raises(NotAllowedError) as caught:
        shared_scene.protect(with_facts(shared_scene.protection(), spec_id=7))
    assert "partition spec" in caught.value.message
    assert caught.value.expected == "partition spec 7"


@pytest.mark.parametrize("updates", [WORD, COLUMN], ids=["a property", "a column"])
def test_a_table_that_changed_since_the_signature_is_not_protected(scene: Scene, updates: Any) -> None:
    protection = scene.protection()
    scene.commit(updates)
    assert reason_of(lambda: scene.protect(protection), NotAllowedError) == "approval_stale"
    assert scene.contract_of() is None


def test_a_table_that_was_created_again_under_its_name_is_not_protected(scene: Scene) -> None:
    protection = scene.protection()
    scene.notary.catalog.tables.drop(scene.grant(), SALES, "orders")
    scene.make()
    assert reason_of(lambda: scene.protect(protection), NotAllowedError) == "approval_wrong_table"


def test_a_renamed_table_is_not_protected_under_its_old_name(scene: Scene) -> None:
    protection = scene.protection()
    scene.notary.catalog.tables.rename(scene.grant(), (SALES, "orders"), (SALES, "invoices"))
    assert reason_of(lambda: scene.protect(protection), NotAllowedError) == "approval_wrong_name"


@pytest.mark.parametrize("owner", ["sales", "somebody"], ids=["the same", "another"])
def test_a_protected_table_or_namespace_is_not_protected_again(shared_scene: Scene, owner: str) -> None:
    protection = shared_scene.protection("held", contract=contract_for("held", owner=owner))
    assert refusal_of(shared_scene, lambda: shared_scene.protect(protection)) == "protected_already"
    contract = contract_for(levels=("risk",), domain="risk", owner=owner)
    of_namespace = shared_scene.namespace_protection(levels=("risk",), contract=contract)
    assert refusal_of(shared_scene, lambda: shared_scene.protect(of_namespace)) == "protected_already"


def test_an_unprotected_table_or_namespace_is_not_unprotected_again(shared_scene: Scene) -> None:
    protection = shared_scene.protection(action=UNPROTECT)
    assert refusal_of(shared_scene, lambda: shared_scene.protect(protection)) == "not_protected"
    of_namespace = shared_scene.namespace_protection(action=UNPROTECT)
    assert refusal_of(shared_scene, lambda: shared_scene.protect(of_namespace)) == "not_protected"


def test_an_unprotection_that_names_another_contract_is_refused(shared_scene: Scene) -> None:
    protection = shared_scene.protection("held", action=UNPROTECT, contract=OTHER_CONTRACT)
    assert refusal_of(shared_scene, lambda: shared_scene.protect(protection)) == "approval_stale"
    of_namespace = shared_scene.namespace_protection(action=UNPROTECT, levels=("risk",), contract=OTHER_CONTRACT)
    assert refusal_of(shared_scene, lambda: shared_scene.protect(of_namespace)) == "approval_stale"


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"id": "00" * 16}, "approval_wrong_namespace"),
        ({"name": "other"}, "approval_wrong_name"),
        ({"catalog": "elsewhere"}, "approval_wrong_catalog"),
    ],
)
def test_a_protection_of_another_namespace_is_refused(shared_scene: Scene, facts: dict[str, str], reason: str) -> None:
    protection = shared_scene.namespace_protection()
    assert isinstance(protection.target, NamespaceTarget)
    other = replace(protection, target=NamespaceTarget(replace(protection.target.namespace, **facts), HASH))
    assert refusal_of(shared_scene, lambda: shared_scene.protect(other)) == reason


def test_an_expired_protection_is_refused(scene: Scene) -> None:
    protection = scene.protection()
    scene.stand.time.pass_by(3_600 * SECOND)
    assert reason_of(lambda: scene.protect(protection), NotAllowedError) == "approval_expired"


def test_a_protection_from_the_future_is_refused(shared_scene: Scene) -> None:
    later = shared_scene.now + 120 * SECOND
    protection = replace(shared_scene.protection(), issued_at=later, expires_at=later + 60 * SECOND)
    assert refusal_of(shared_scene, lambda: shared_scene.protect(protection)) == "statement_from_future"


def test_a_nonce_that_was_used_is_refused_for_another_action_too(scene: Scene) -> None:
    first = scene.protection()
    scene.protect(first)
    second = replace(scene.protection(action=UNPROTECT), nonce=first.nonce)
    assert reason_of(lambda: scene.protect(second), NotAllowedError) == "approval_replayed"
    with scene.notary.ledger.read() as unit:
        used = nonces.find(unit, first.nonce)
    assert used is not None
    assert used.state.value == "COMMITTED"


def test_an_accepted_protection_with_another_signature_is_refused(scene: Scene) -> None:
    protection = scene.protection()
    scene.protect(protection)
    value = json.loads(signed(protection))
    value["signatures"][0]["sig"] = "A" * 86 + "=="
    data = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
    assert reason_of(lambda: scene.notary.protections.submit(data, scene.grant())) == "signature_invalid"


def test_an_operator_of_another_domain_cannot_protect_table_or_namespace(shared_scene: Scene) -> None:
    for protection in (shared_scene.protection(), shared_scene.namespace_protection()):
        assert refusal_of(shared_scene, partial(shared_scene.protect, protection, domain="risk")) == "domain_wrong"


def test_a_protection_is_shown_to_its_domain_only(shared_scene: Scene) -> None:
    listed = shared_scene.notary.protections.list_protections(shared_scene.grant())
    (view,) = [each for each in listed if each.name == "sales.held"]
    other_domain = shared_scene.grant(Role.CONSUMER, "risk")
    assert reason_of(lambda: shared_scene.notary.protections.get(view.protection_id, other_domain)) == "domain_wrong"
    assert [each.name for each in shared_scene.notary.protections.list_protections(other_domain)] == ["risk"]
    assert shared_scene.notary.protections.get(view.protection_id, shared_scene.grant(Role.CONSUMER, "sales")) == view


def test_a_contract_is_shown_to_the_domain_of_its_table_only(scene: Scene) -> None:
    scene.protect(scene.protection(contract=OTHER_CONTRACT))
    assert scene.notary.protections.get_contract(OTHER_HASH, scene.grant(Role.CONSUMER, "sales"))
    assert reason_of(lambda: scene.notary.protections.get_contract(OTHER_HASH, scene.grant(Role.CONSUMER, "risk"))) == (
        "domain_wrong"
    )
    assert reason_of(lambda: scene.notary.protections.get_contract("00" * 32, scene.grant()), InputError) == (
        "contract_unknown"
    )


def test_a_contract_that_is_no_yaml_is_refused_by_the_steward_too(shared_scene: Scene) -> None:
    for text in ("a: [1", "a: 1\n---\nb: 1\n", "!!python/name:os.system x"):
        protection = shared_scene.protection(contract=text)
        assert refusal_of(shared_scene, partial(shared_scene.protect, protection), InputError) == "contract_unreadable"


def test_a_contract_that_the_language_refuses_is_refused_by_the_steward_too(shared_scene: Scene) -> None:
    protection = shared_scene.protection(contract=CONTRACT.replace("append", "merge"))
    assert refusal_of(shared_scene, partial(shared_scene.protect, protection), InputError) == "contract_invalid"


def test_a_contract_with_a_claim_that_the_filter_does_not_bound_is_refused(shared_scene: Scene) -> None:
    protection = shared_scene.protection(
        contract=CONTRACT.replace("operation: append", "operation: append\n  claim: {column: id}")
    )
    assert refusal_of(shared_scene, partial(shared_scene.protect, protection), InputError) == "contract_invalid"


@pytest.mark.parametrize("profile", ["profile: T\n", "profile: O\n"])
def test_a_contract_with_a_profile_that_is_not_supported_yet_is_refused(shared_scene: Scene, profile: str) -> None:
    protection = shared_scene.protection(contract=CONTRACT + profile)
    assert refusal_of(shared_scene, partial(shared_scene.protect, protection), InputError) == "contract_not_yet"


def test_a_contract_for_another_table_protects_nothing(shared_scene: Scene) -> None:
    protection = shared_scene.protection(contract=contract_for("invoices"))
    assert refusal_of(shared_scene, partial(shared_scene.protect, protection)) == "contract_of_other_table"


def test_a_contract_of_another_domain_protects_nothing(shared_scene: Scene) -> None:
    protection = shared_scene.protection(contract=contract_for(domain="risk"))
    assert refusal_of(shared_scene, partial(shared_scene.protect, protection)) == "contract_of_other_domain"


@pytest.mark.parametrize("source", ["risk.secrets", "nowhere.yet"], ids=["another domain's", "nobody's yet"])
def test_a_token_of_one_domain_approves_no_source_of_another(scene: Scene, source: str) -> None:
    """Otherwise a failed verification would show its producers rows of the other domain."""
    text = CONTRACT.replace("table: raw.orders", f"table: {source}")
    for protection in (scene.protection(contract=text), scene.namespace_protection(contract=text)):
        call = partial(scene.protect, protection, domain="sales")
        assert reason_of(call, NotAllowedError) == "source_of_other_domain"
    scene.protect(scene.protection(contract=CONTRACT.replace("table: raw.orders", "table: sales.raw")), domain="sales")
    migration = scene.migration([], contract=text)
    assert reason_of(partial(scene.migrate, migration, domain="sales"), NotAllowedError) == "source_of_other_domain"
    if source == "nowhere.yet":
        scene.notary.catalog.namespaces.create(scene.grant(), ("nowhere",), {"pvdm.domain": "elsewhere"})
    scene.migrate(scene.migration([], contract=text))


def test_a_contract_for_a_table_of_another_namespace_protects_no_namespace(shared_scene: Scene) -> None:
    protection = shared_scene.namespace_protection(contract=contract_for(levels=("risk",)))
    assert refusal_of(shared_scene, partial(shared_scene.protect, protection)) == "contract_of_other_table"


def test_a_contract_of_another_domain_protects_no_namespace(shared_scene: Scene) -> None:
    protection = shared_scene.namespace_protection(contract=contract_for(domain="risk"))
    assert refusal_of(shared_scene, partial(shared_scene.protect, protection)) == "contract_of_other_domain"


def test_a_protection_is_refused_if_a_new_trust_root_is_accepted_meanwhile(scene: Scene) -> None:
    envelope, grant = signed(scene.protection()), scene.grant()
    done: list[None] = []

    def accept_next_root() -> None:
        if not done:
            done.append(None)
            root = scene.notary.trust.current()
            active = scene.notary.epochs.book().active
            assert active is not None
            scene.notary.trust.accept(signed_root(root_naming(active, version=2, previous=root.sha256)))

    read_ids = scene.notary.trust.ids

    def ids_then_root() -> tuple[str, ...]:
        found = read_ids()
        accept_next_root()
        return found

    trust = type(scene.notary.trust)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trust, "ids", lambda _: ids_then_root())
        reason = reason_of(lambda: scene.notary.protections.submit(envelope, grant), ConflictError)
    assert reason == "trust_root_moved"
    assert scene.contract_of() is None


def test_an_unknown_protection_id_is_an_error(shared_scene: Scene) -> None:
    assert (
        reason_of(lambda: shared_scene.notary.protections.get("00" * 32, shared_scene.grant())) == "protection_unknown"
    )
