"""Access to the Steward: tokens are issued, rotated, exchanged and ended, and a token sees only its domain's work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pvdm.errors import PvdmError
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work import nonces
from pvdm.model.role import Role
from pvdm.model.states import AttemptState
from pvdm.steward.access import (
    ACCESS_TOKEN_SECONDS,
    ATTEMPT_TOKEN_SECONDS,
    TOKEN_LIFETIME_MAX_SECONDS,
    TOKEN_OVERLAP_MAX_SECONDS,
    Access,
)
from tests.support.ledger.databases import memory_folder
from tests.support.steward.notary import Stand, attempt_token, core_of, stand_at
from tools.proof_kit import SECOND, fixed


@pytest.fixture
def stand() -> Iterator[Stand]:
    with memory_folder() as folder, stand_at(folder) as made:
        yield made


@pytest.fixture
def access(stand: Stand) -> Access:
    return stand.notary.access


def reason_of(call: Callable[[], object]) -> str:
    with pytest.raises(PvdmError) as caught:
        call()
    return caught.value.reason


def producer(stand: Stand, domain: str = "sales") -> tuple[str, Grant]:
    return stand.token(Role.PRODUCER, domain, "etl")


def test_a_token_grants_its_role_and_domain_until_it_expires(stand: Stand, access: Access) -> None:
    token, grant = access.issue(Role.AUDITOR, domain="sales", name="ann", lifetime_seconds=60)
    assert access.authenticate(token.reveal()) == grant
    assert (grant.role, grant.domain, grant.name) == (Role.AUDITOR, "sales", "ann")
    stand.time.pass_by(60 * SECOND)
    assert reason_of(lambda: access.authenticate(token.reveal())) == "token_expired"


@pytest.mark.parametrize("text", ["", "pvdm_guess", "x" * 257, "pvdm_ä"])
def test_a_text_that_is_no_token_is_unknown(access: Access, text: str) -> None:
    assert reason_of(lambda: access.authenticate(text)) == "token_unknown"


@pytest.mark.parametrize("seconds", [0, -1, TOKEN_LIFETIME_MAX_SECONDS + 1])
def test_a_lifetime_out_of_range_is_refused(access: Access, seconds: int) -> None:
    options: dict[str, Any] = {"domain": "sales", "name": "x", "lifetime_seconds": seconds}
    assert reason_of(lambda: access.issue(Role.OPERATOR, **options)) == "token_lifetime_invalid"


def test_a_revoked_token_is_refused_and_still_listed(stand: Stand, access: Access) -> None:
    text, grant = stand.token()
    access.revoke(grant.token_id)
    assert reason_of(lambda: access.authenticate(text)) == "token_revoked"
    assert [each.revoked_micros for each in access.list_tokens()] == [stand.time.wall]


def test_a_rotated_token_has_the_same_rights_and_the_old_one_ends_after_the_overlap(
    stand: Stand, access: Access
) -> None:
    text, old = producer(stand)
    token, new = access.rotate(old.token_id, lifetime_seconds=3_600, overlap_seconds=60)
    assert (new.role, new.domain, new.name) == (old.role, old.domain, old.name)
    assert access.authenticate(text).token_id == old.token_id
    stand.time.pass_by(60 * SECOND)
    assert reason_of(lambda: access.authenticate(text)) == "token_rotated"
    assert access.authenticate(token.reveal()) == new


def test_a_rotation_without_overlap_ends_the_old_token_at_once(stand: Stand, access: Access) -> None:
    text, old = producer(stand)
    access.rotate(old.token_id, lifetime_seconds=3_600)
    assert reason_of(lambda: access.authenticate(text)) == "token_rotated"


def test_a_second_rotation_does_not_give_the_old_token_more_time(stand: Stand, access: Access) -> None:
    text, old = producer(stand)
    access.rotate(old.token_id, lifetime_seconds=3_600, overlap_seconds=60)
    access.rotate(old.token_id, lifetime_seconds=3_600, overlap_seconds=600)
    stand.time.pass_by(60 * SECOND)
    assert reason_of(lambda: access.authenticate(text)) == "token_rotated"


@pytest.mark.parametrize("overlap", [-1, TOKEN_OVERLAP_MAX_SECONDS + 1])
def test_an_overlap_out_of_range_is_refused(stand: Stand, access: Access, overlap: int) -> None:
    text, old = producer(stand)
    assert reason_of(lambda: access.rotate(old.token_id, overlap_seconds=overlap)) == "token_overlap_invalid"
    assert access.authenticate(text) == old


def test_a_token_that_has_ended_is_not_rotated(stand: Stand, access: Access) -> None:
    _, old = producer(stand)
    access.revoke(old.token_id)
    assert reason_of(lambda: access.rotate(old.token_id, lifetime_seconds=60)) == "token_revoked"
    assert len(access.list_tokens()) == 1


def test_a_refused_rotation_ends_nothing(stand: Stand, access: Access) -> None:
    text, old = producer(stand)
    assert reason_of(lambda: access.rotate(old.token_id, lifetime_seconds=0)) == "token_lifetime_invalid"
    assert access.authenticate(text) == old


def test_an_exchange_gives_a_short_token_with_the_same_rights(stand: Stand, access: Access) -> None:
    text, parent = producer(stand)
    token, grant = access.exchange(parent.token_id, text)
    assert (grant.role, grant.domain, grant.name, grant.parent_id) == (
        parent.role,
        parent.domain,
        parent.name,
        parent.token_id,
    )
    assert grant.expires_micros == stand.time.wall + ACCESS_TOKEN_SECONDS * SECOND
    assert access.authenticate(token.reveal()) == grant


def test_an_exchanged_token_does_not_outlive_its_parent(stand: Stand, access: Access) -> None:
    token, parent = access.issue(Role.PRODUCER, domain="sales", name="etl", lifetime_seconds=60)
    _, grant = access.exchange(parent.token_id, token.reveal())
    assert grant.expires_micros == parent.expires_micros


def test_an_exchange_needs_id_and_secret_of_one_token(stand: Stand, access: Access) -> None:
    text, _ = producer(stand)
    _, other = producer(stand)
    assert reason_of(lambda: access.exchange(other.token_id, text)) == "token_unknown"
    assert reason_of(lambda: access.exchange(other.token_id, "pvdm_guess")) == "token_unknown"


def test_a_derived_token_ends_with_its_parent(stand: Stand, access: Access) -> None:
    text, parent = producer(stand)
    token, _ = access.exchange(parent.token_id, text)
    access.revoke(parent.token_id)
    assert reason_of(lambda: access.authenticate(token.reveal())) == "token_revoked"


def test_a_derived_token_makes_no_further_tokens(stand: Stand, access: Access) -> None:
    text, parent = producer(stand)
    stand.verifying()
    token, grant = access.exchange(parent.token_id, text)
    attempt_id = core_of("one").attempt.attempt_id
    assert reason_of(lambda: access.exchange(grant.token_id, token.reveal())) == "token_derived"
    assert reason_of(lambda: attempt_token(access, grant, attempt_id)) == "token_derived"
    assert reason_of(lambda: access.rotate(grant.token_id, lifetime_seconds=60)) == "token_derived"


def test_a_token_for_one_attempt_is_short_and_bound_to_it(stand: Stand, access: Access) -> None:
    stand.verifying()
    attempt_id = core_of("one").attempt.attempt_id
    token, grant = attempt_token(access, producer(stand)[1], attempt_id)
    assert (grant.attempt_id, grant.expires_micros) == (attempt_id, stand.time.wall + ATTEMPT_TOKEN_SECONDS * SECOND)
    assert access.authenticate(token.reveal()) == grant


def test_an_attempt_of_another_domain_gets_no_token(stand: Stand, access: Access) -> None:
    stand.verifying(domain="sales")
    grant = producer(stand, "risk")[1]
    assert reason_of(lambda: attempt_token(access, grant, core_of("one").attempt.attempt_id)) == "domain_wrong"


def test_an_attempt_that_has_ended_gets_no_token(stand: Stand, access: Access) -> None:
    stand.staging()
    attempt_id, (_, grant) = core_of("one").attempt.attempt_id, producer(stand)
    stand.notary.work.abort(grant, attempt_id, "given up", lease_number=1)
    assert reason_of(lambda: attempt_token(access, grant, attempt_id)) == "attempt_ended"


def test_an_unknown_attempt_gets_no_token(stand: Stand, access: Access) -> None:
    assert reason_of(lambda: attempt_token(access, producer(stand)[1], fixed("none", 16))) == "attempt_unknown"


def test_workloads_are_listed_for_their_domain(stand: Stand) -> None:
    for name, domain in (("one", "sales"), ("two", "risk"), ("three", "sales")):
        stand.verifying(name, domain=domain)
    work = stand.notary.work

    def ids(domain: str, **options: Any) -> list[str]:
        return [found.workload_id for found in work.list_workloads(producer(stand, domain)[1], **options)]

    assert ids("sales") == ["work-one", "work-three"]
    assert ids("*") == ["work-one", "work-three", "work-two"]
    assert ids("*", after="work-one", count=1) == ["work-three"]


def test_a_workload_is_shown_with_its_plan_and_attempts(stand: Stand) -> None:
    core = stand.verifying()
    view = stand.notary.work.get_workload_detail(producer(stand)[1], "work-one")
    assert (view.chunk_count, view.chunk_ids) == (1, (core.attempt.chunk_id,))
    assert [(attempt.attempt_id, attempt.state) for attempt in view.attempts] == [
        (core.attempt.attempt_id, AttemptState.VERIFYING)
    ]
    assert (view.domain, view.published) == ("sales", ())


@pytest.mark.parametrize("name", ["workload", "attempt", "abort"])
def test_work_of_another_domain_is_refused(stand: Stand, name: str) -> None:
    core = stand.verifying(domain="sales")
    grant, work = producer(stand, "risk")[1], stand.notary.work
    calls: dict[str, Callable[[], object]] = {
        "workload": lambda: work.get_workload_detail(grant, "work-one"),
        "attempt": lambda: work.get_attempt(grant, core.attempt.attempt_id),
        "abort": lambda: work.abort(grant, core.attempt.attempt_id, "not mine", lease_number=1),
    }
    assert reason_of(calls[name]) == "domain_wrong"
    assert work.get_attempt(producer(stand)[1], core.attempt.attempt_id).state is AttemptState.VERIFYING


def test_a_token_for_one_attempt_sees_that_attempt_only(stand: Stand) -> None:
    one, two = (stand.verifying(name).attempt.attempt_id for name in ("one", "two"))
    _, grant = attempt_token(stand.notary.access, producer(stand)[1], one)
    work = stand.notary.work
    assert work.get_attempt(grant, one).attempt_id == one
    for call in (
        lambda: work.get_attempt(grant, two),
        lambda: work.abort(grant, two, "not mine", lease_number=1),
        lambda: work.get_workload_detail(grant, "work-one"),
        lambda: work.list_workloads(grant),
    ):
        assert reason_of(call) == "token_of_other_attempt"


def test_the_nonce_of_an_aborted_attempt_is_aborted(stand: Stand) -> None:
    core = stand.staging()
    _, grant = attempt_token(stand.notary.access, producer(stand)[1], core.attempt.attempt_id)
    aborted = stand.notary.work.abort(grant, core.attempt.attempt_id, "the source was wrong", lease_number=1)
    assert (aborted.state, aborted.reason) == (AttemptState.ROLLED_BACK, "the source was wrong")
    with stand.notary.ledger.read() as unit:
        nonce = nonces.find(unit, fixed("first nonce one", 16))
    assert nonce is not None
    assert nonce.state.value == "ABORTED"
    assert stand.notary.work.abort(grant, core.attempt.attempt_id, "again", lease_number=1) == aborted
