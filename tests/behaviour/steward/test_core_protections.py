"""Protection at the Steward: in force with its log entry or not at all; each way to misuse it has a code of its own."""

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
    code_of,
    contract_for,
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
def either(ledger_url: str, tmp_path: Path) -> Iterator[Scene]:
    """The scene on each database in turn."""
    with scene_at(tmp_path, ledger_url=ledger_url) as made:
        yield made


@pytest.fixture(scope="module")
def still() -> Iterator[Scene]:
    """A scene that no test may change: `orders` is free, `held` and the namespace `risk` are protected."""
    with memory_folder() as folder, scene_at(folder) as made:
        made.make("held")
        made.protect(made.protection("held"))
        made.protect(made.namespace_protection(levels=("risk",)))
        yield made


def refused(scene: Scene, call: Callable[[], object], kind: type[PvdmError] = NotAllowedError) -> str:
    """The code, once it is clear that nothing was kept."""

    def facts() -> tuple[object, ...]:
        return scene.notary.log.size(), scene.contract_of(), scene.contract_of("held"), scene.space(("risk",))

    before = facts()
    code = code_of(call, kind)
    assert facts() == before
    return code


def test_a_protected_table_is_gated_from_then_on(either: Scene) -> None:
    either.commit(WORD)
    view = either.protect()
    assert (either.contract_of(), view.contract_sha256, view.action) == (HASH, HASH, PROTECT)
    assert json.loads(entry_of(either.notary, view.log_index))["kind"] == "protection"
    with pytest.raises(NotAllowedError):
        either.commit([{"action": "set-properties", "updates": {"word": "other"}}])
    either.stage()
    assert either.notary.protections.contract(HASH, either.grant()) == CONTRACT.encode()


def test_an_unprotected_table_takes_ordinary_commits_again(either: Scene) -> None:
    either.protect()
    either.protect(either.protection(action=UNPROTECT))
    either.commit(WORD)
    assert either.contract_of() is None
    assert [view.action for view in either.notary.protections.listed(either.grant())] == [
        UNPROTECT,
        ProtectionAction.PROTECT,
    ]


def test_a_new_table_of_a_protected_namespace_is_born_protected_until_the_namespace_is_free(either: Scene) -> None:
    either.protect(either.namespace_protection())
    assert either.make("born").row.contract_hash == HASH
    either.protect(either.namespace_protection(action=UNPROTECT))
    assert either.make("free").row.contract_hash is None
    assert (either.contract_of("born"), either.contract_of()) == (HASH, None)


def test_the_same_bytes_again_give_the_same_answer(scene: Scene) -> None:
    envelope = signed(scene.protection())
    first = scene.notary.protections.submit(envelope, scene.grant())
    size = scene.notary.log.size()
    assert scene.notary.protections.submit(envelope, scene.grant()) == first
    assert scene.notary.log.size() == size


def test_bytes_of_before_do_not_protect_what_was_unprotected_since(scene: Scene) -> None:
    envelope = signed(scene.protection())
    first = scene.notary.protections.submit(envelope, scene.grant())
    scene.protect(scene.protection(action=UNPROTECT))
    assert scene.notary.protections.submit(envelope, scene.grant()) == first
    assert scene.contract_of() is None


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """What each call gives, or the code it is refused with."""
    barrier = threading.Barrier(len(calls))
    answers: list[Any] = [None] * len(calls)

    def run(place: int, call: Callable[[], Any]) -> None:
        barrier.wait()
        try:
            answers[place] = call()
        except PvdmError as error:
            answers[place] = error.reason

    threads = [threading.Thread(target=run, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_of_the_same_bytes_several_times_at_once_all_get_one_answer(either: Scene) -> None:
    envelope, grant = signed(either.protection()), either.grant()
    answers = at_once(*[lambda: either.notary.protections.submit(envelope, grant)] * 4)
    assert answers == [answers[0]] * 4
    assert len(either.notary.protections.listed(grant)) == 1


def test_of_two_concurrent_protections_one_is_accepted(either: Scene) -> None:
    grant = either.grant()
    envelopes = [signed(either.protection(contract=text)) for text in (CONTRACT, OTHER_CONTRACT)]
    answers = at_once(*[partial(either.notary.protections.submit, data, grant) for data in envelopes])
    (won,) = [answer for answer in answers if not isinstance(answer, str)]
    assert "protected_already" in answers
    assert either.contract_of() == won.contract_sha256


def test_commits_to_branches_meanwhile_are_neither_lost_nor_in_the_way(either: Scene) -> None:
    envelope, grant = signed(either.protection()), either.grant()

    def stage() -> int:
        for _ in range(6):
            either.stage()
        return len(either.found().metadata.snapshots)

    answers = at_once(stage, lambda: either.notary.protections.submit(envelope, grant))
    assert answers[0] == 7
    assert either.contract_of() == HASH


def test_a_commit_to_main_that_was_judged_before_the_protection_does_not_slip_through(scene: Scene) -> None:
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
    assert "word" not in scene.found().metadata.properties


def test_a_protection_whose_answer_was_lost_is_answered_when_asked_again(scene: Scene) -> None:
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
def test_a_key_that_is_no_operators_is_refused(still: Scene, signer: str) -> None:
    said = replace(still.protection(), operator=signer)
    assert refused(still, lambda: still.protect(said, signer=signer)) == SIGNERS_REFUSED[signer]


def test_an_unsigned_protection_is_refused(still: Scene) -> None:
    value = {**json.loads(signed(still.protection())), "signatures": []}
    data = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
    assert refused(still, lambda: still.notary.protections.submit(data, still.grant())) == "approval_unsigned"


def test_the_stewards_own_key_protects_nothing(still: Scene) -> None:
    signer = still.notary.keys.signer(KeyRole.SIGNING, 1)
    data = sign_statement(replace(still.protection(), operator="steward-one"), signer).to_bytes()
    code = refused(still, lambda: still.notary.protections.submit(data, still.grant()))
    assert code == "approval_signed_by_steward"


def test_a_signature_in_another_operators_name_is_refused(still: Scene) -> None:
    said = replace(still.protection(), operator="operator-ruth")
    assert refused(still, lambda: still.protect(said)) == "signer_name_wrong"


def changed(said: Protection, **facts: Any) -> Protection:
    """The same protection with other facts about its table."""
    assert isinstance(said.target, TableTarget)
    named = {key: value for key, value in facts.items() if key in ("catalog", "uuid", "name")}
    state = {key: value for key, value in facts.items() if key not in named}
    table = replace(said.target.table, **named)
    target = replace(said.target, table=table, state=replace(said.target.state, **state))
    return replace(said, target=target)


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
def test_a_protection_of_another_table_or_another_state_is_refused(still: Scene, wrong: str) -> None:
    facts, code = WRONG_TARGETS[wrong]
    assert refused(still, lambda: still.protect(changed(still.protection(), **facts))) == code


def test_what_moved_is_named(still: Scene) -> None:
    with pytest.raises(NotAllowedError) as caught:
        still.protect(changed(still.protection(), spec_id=7))
    assert "partition spec" in caught.value.message
    assert caught.value.expected == "partition spec 7"


@pytest.mark.parametrize("updates", [WORD, COLUMN], ids=["a property", "a column"])
def test_a_table_that_changed_since_it_was_signed_is_not_protected(scene: Scene, updates: Any) -> None:
    said = scene.protection()
    scene.commit(updates)
    assert code_of(lambda: scene.protect(said), NotAllowedError) == "approval_stale"
    assert scene.contract_of() is None


def test_a_table_that_was_created_again_under_the_name_is_another_one(scene: Scene) -> None:
    said = scene.protection()
    scene.notary.catalog.tables.drop(scene.grant(), SALES, "orders")
    scene.make()
    assert code_of(lambda: scene.protect(said), NotAllowedError) == "approval_wrong_table"


def test_a_renamed_table_is_not_protected_under_its_old_name(scene: Scene) -> None:
    said = scene.protection()
    scene.notary.catalog.tables.rename(scene.grant(), (SALES, "orders"), (SALES, "invoices"))
    assert code_of(lambda: scene.protect(said), NotAllowedError) == "approval_wrong_name"


@pytest.mark.parametrize("owner", ["sales", "somebody"], ids=["the same", "another"])
def test_what_is_protected_is_not_protected_again(still: Scene, owner: str) -> None:
    said = still.protection("held", contract=contract_for("held", owner=owner))
    assert refused(still, lambda: still.protect(said)) == "protected_already"
    contract = contract_for(levels=("risk",), domain="risk", owner=owner)
    spaced = still.namespace_protection(levels=("risk",), contract=contract)
    assert refused(still, lambda: still.protect(spaced)) == "protected_already"


def test_what_is_not_protected_cannot_leave_a_contract(still: Scene) -> None:
    assert refused(still, lambda: still.protect(still.protection(action=UNPROTECT))) == "not_protected"
    assert refused(still, lambda: still.protect(still.namespace_protection(action=UNPROTECT))) == "not_protected"


def test_what_is_under_another_contract_does_not_leave_this_one(still: Scene) -> None:
    said = still.protection("held", action=UNPROTECT, contract=OTHER_CONTRACT)
    assert refused(still, lambda: still.protect(said)) == "approval_stale"
    spaced = still.namespace_protection(action=UNPROTECT, levels=("risk",), contract=OTHER_CONTRACT)
    assert refused(still, lambda: still.protect(spaced)) == "approval_stale"


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"id": "00" * 16}, "approval_wrong_namespace"),
        ({"name": "other"}, "approval_wrong_name"),
        ({"catalog": "elsewhere"}, "approval_wrong_catalog"),
    ],
)
def test_a_protection_of_another_namespace_is_refused(still: Scene, facts: dict[str, str], code: str) -> None:
    said = still.namespace_protection()
    assert isinstance(said.target, NamespaceTarget)
    other = replace(said, target=NamespaceTarget(replace(said.target.namespace, **facts), HASH))
    assert refused(still, lambda: still.protect(other)) == code


def test_an_expired_protection_is_refused(scene: Scene) -> None:
    said = scene.protection()
    scene.stand.time.pass_by(3_600 * SECOND)
    assert code_of(lambda: scene.protect(said), NotAllowedError) == "approval_expired"


def test_a_protection_from_the_future_is_refused(still: Scene) -> None:
    later = still.now + 120 * SECOND
    said = replace(still.protection(), issued_at=later, expires_at=later + 60 * SECOND)
    assert refused(still, lambda: still.protect(said)) == "statement_from_future"


def test_a_nonce_that_was_used_is_refused_whatever_for(scene: Scene) -> None:
    first = scene.protection()
    scene.protect(first)
    second = replace(scene.protection(action=UNPROTECT), nonce=first.nonce)
    assert code_of(lambda: scene.protect(second), NotAllowedError) == "approval_replayed"
    with scene.notary.ledger.read() as unit:
        used = nonces.find(unit, first.nonce)
    assert used is not None
    assert used.state.value == "COMMITTED"


def test_another_signature_over_the_same_statement_is_a_replay(scene: Scene) -> None:
    said = scene.protection()
    scene.protect(said)
    value = json.loads(signed(said))
    value["signatures"][0]["sig"] = "A" * 86 + "=="
    data = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
    assert code_of(lambda: scene.notary.protections.submit(data, scene.grant())) == "signature_invalid"


def test_an_operator_of_another_domain_protects_nothing_here(still: Scene) -> None:
    for said in (still.protection(), still.namespace_protection()):
        assert refused(still, partial(still.protect, said, domain="risk")) == "domain_wrong"


def test_bytes_that_were_accepted_are_shown_to_their_domain_only(still: Scene) -> None:
    (view,) = [each for each in still.notary.protections.listed(still.grant()) if each.name == "sales.held"]
    strange = still.grant(Role.CONSUMER, "risk")
    assert code_of(lambda: still.notary.protections.get(view.protection_id, strange)) == "domain_wrong"
    assert [each.name for each in still.notary.protections.listed(strange)] == ["risk"]
    assert still.notary.protections.get(view.protection_id, still.grant(Role.CONSUMER, "sales")) == view


def test_a_contract_is_shown_to_the_domains_that_are_under_it(scene: Scene) -> None:
    scene.protect(scene.protection(contract=OTHER_CONTRACT))
    assert scene.notary.protections.contract(OTHER_HASH, scene.grant(Role.CONSUMER, "sales"))
    assert code_of(lambda: scene.notary.protections.contract(OTHER_HASH, scene.grant(Role.CONSUMER, "risk"))) == (
        "domain_wrong"
    )
    assert code_of(lambda: scene.notary.protections.contract("00" * 32, scene.grant()), InputError) == (
        "contract_unknown"
    )


def test_a_contract_that_is_no_yaml_is_refused_by_the_steward_too(still: Scene) -> None:
    for text in ("a: [1", "a: 1\n---\nb: 1\n", "!!python/name:os.system x"):
        said = still.protection(contract=text)
        assert refused(still, partial(still.protect, said), InputError) == "contract_unreadable"


def test_a_contract_that_the_language_refuses_is_refused_by_the_steward_too(still: Scene) -> None:
    said = still.protection(contract=CONTRACT.replace("append", "merge"))
    assert refused(still, partial(still.protect, said), InputError) == "contract_invalid"


def test_a_claim_that_the_filter_does_not_bound_protects_nothing(still: Scene) -> None:
    said = still.protection(contract=CONTRACT.replace("operation: append", "operation: append\n  claim: {column: id}"))
    assert refused(still, partial(still.protect, said), InputError) == "contract_invalid"


@pytest.mark.parametrize("asked", ["profile: T\n", "profile: O\n"])
def test_what_a_later_version_serves_is_refused_when_protecting(still: Scene, asked: str) -> None:
    said = still.protection(contract=CONTRACT + asked)
    assert refused(still, partial(still.protect, said), InputError) == "contract_not_yet"


def test_a_contract_for_another_table_protects_nothing(still: Scene) -> None:
    said = still.protection(contract=contract_for("invoices"))
    assert refused(still, partial(still.protect, said), NotAllowedError) == "contract_of_other_table"


def test_a_contract_of_another_domain_protects_nothing(still: Scene) -> None:
    said = still.protection(contract=contract_for(domain="risk"))
    assert refused(still, partial(still.protect, said), NotAllowedError) == "contract_of_other_domain"


@pytest.mark.parametrize("source", ["risk.secrets", "nowhere.yet"], ids=["another domain's", "nobody's yet"])
def test_a_token_of_one_domain_approves_no_source_of_another(scene: Scene, source: str) -> None:
    """Producers would be told which rows of it they lack."""
    text = CONTRACT.replace("table: raw.orders", f"table: {source}")
    for said in (scene.protection(contract=text), scene.namespace_protection(contract=text)):
        call = partial(scene.protect, said, domain="sales")
        assert code_of(call, NotAllowedError) == "source_of_other_domain"
    scene.protect(scene.protection(contract=CONTRACT.replace("table: raw.orders", "table: sales.raw")), domain="sales")
    migration = scene.migration([], contract=text)
    assert code_of(partial(scene.migrate, migration, domain="sales"), NotAllowedError) == "source_of_other_domain"
    if source == "nowhere.yet":
        scene.notary.catalog.namespaces.create(scene.grant(), ("nowhere",), {"pvdm.domain": "elsewhere"})
    scene.migrate(scene.migration([], contract=text))


def test_a_contract_for_a_table_elsewhere_protects_no_namespace(still: Scene) -> None:
    said = still.namespace_protection(contract=contract_for(levels=("risk",)))
    assert refused(still, partial(still.protect, said), NotAllowedError) == "contract_of_other_table"


def test_a_contract_of_another_domain_protects_no_namespace(still: Scene) -> None:
    said = still.namespace_protection(contract=contract_for(domain="risk"))
    assert refused(still, partial(still.protect, said), NotAllowedError) == "contract_of_other_domain"


def test_a_key_that_is_taken_back_meanwhile_protects_nothing(scene: Scene) -> None:
    envelope, grant = signed(scene.protection()), scene.grant()
    done: list[None] = []

    def next_root() -> None:
        if not done:
            done.append(None)
            root = scene.notary.trust.current()
            active = scene.notary.epochs.book().active
            assert active is not None
            scene.notary.trust.accept(signed_root(root_naming(active, version=2, previous=root.sha256)))

    accept = scene.notary.trust.ids

    def ids_then_root() -> tuple[str, ...]:
        found = accept()
        next_root()
        return found

    trust = type(scene.notary.trust)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trust, "ids", lambda _: ids_then_root())
        code = code_of(lambda: scene.notary.protections.submit(envelope, grant), ConflictError)
    assert code == "trust_root_moved"
    assert scene.contract_of() is None


def test_a_protection_that_is_not_there_is_unknown(still: Scene) -> None:
    assert code_of(lambda: still.notary.protections.get("00" * 32, still.grant())) == "protection_unknown"
