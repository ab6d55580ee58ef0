"""Tokens that were derived from a rotated token stay valid while its successor is valid."""

from __future__ import annotations

import functools

import pytest

from pvdm.errors import PvdmError
from pvdm.ledger.record.tokens import BearerToken, Grant
from pvdm.model.role import Role
from pvdm.steward.access import ATTEMPT_TOKEN_SECONDS, Access
from tests.behaviour.steward.test_core_access import access as access  # noqa: PLC0414 - the fixture
from tests.behaviour.steward.test_core_access import reason_of
from tests.behaviour.steward.test_core_access import stand as stand  # noqa: PLC0414 - the fixture
from tests.support.steward.notary import Stand, attempt_token, core_of
from tools.proof_kit import SECOND

MINUTE = 60 * SECOND


def issue_tokens(stand: Stand) -> tuple[Grant, str]:
    """Open an attempt. Returns a producer's token, and the text of a token for the attempt, derived from it."""
    stand.staging()
    _, parent = stand.token(Role.PRODUCER, "sales", "etl")
    token, _ = attempt_token(stand.notary.access, parent, core_of("one").attempt.attempt_id)
    return parent, token.reveal()


def test_a_token_for_one_attempt_outlives_the_overlap_of_a_rotation(stand: Stand, access: Access) -> None:
    parent, text = issue_tokens(stand)
    access.rotate(parent.token_id, overlap_seconds=600)
    stand.time.pass_by(11 * MINUTE)
    assert access.authenticate(text).parent_id == parent.token_id


def test_a_token_for_one_attempt_that_is_issued_in_the_overlap_outlives_it(stand: Stand, access: Access) -> None:
    stand.staging()
    text, parent = stand.token(Role.PRODUCER, "sales", "etl")
    access.rotate(parent.token_id, overlap_seconds=600)
    stand.time.pass_by(9 * MINUTE)
    token, _ = attempt_token(access, access.authenticate(text), core_of("one").attempt.attempt_id)
    stand.time.pass_by(2 * MINUTE)
    assert reason_of(lambda: access.authenticate(text)) == "token_rotated"
    assert access.authenticate(token.reveal()).parent_id == parent.token_id


def test_a_derived_token_ends_when_the_successor_is_revoked(stand: Stand, access: Access) -> None:
    parent, text = issue_tokens(stand)
    _, new = access.rotate(parent.token_id, overlap_seconds=600)
    access.revoke(new.token_id)
    assert reason_of(lambda: access.authenticate(text)) == "token_revoked"


def test_a_derived_token_ends_when_the_successor_of_the_successor_is_revoked(stand: Stand, access: Access) -> None:
    parent, text = issue_tokens(stand)
    _, second = access.rotate(parent.token_id)
    _, third = access.rotate(second.token_id)
    assert access.authenticate(text).parent_id == parent.token_id
    access.revoke(third.token_id)
    assert reason_of(lambda: access.authenticate(text)) == "token_revoked"


def test_a_derived_token_ends_when_the_rotated_token_itself_is_revoked(stand: Stand, access: Access) -> None:
    parent, text = issue_tokens(stand)
    access.rotate(parent.token_id, overlap_seconds=600)
    access.revoke(parent.token_id)
    assert reason_of(lambda: access.authenticate(text)) == "token_revoked"


def test_a_derived_token_ends_when_a_token_in_the_middle_of_the_rotations_is_revoked(
    stand: Stand, access: Access
) -> None:
    parent, text = issue_tokens(stand)
    _, second = access.rotate(parent.token_id)
    access.rotate(second.token_id, overlap_seconds=600)
    access.revoke(second.token_id)
    assert reason_of(lambda: access.authenticate(text)) == "token_revoked"


def test_a_derived_token_ends_when_the_successor_expires(stand: Stand, access: Access) -> None:
    parent, text = issue_tokens(stand)
    access.rotate(parent.token_id, lifetime_seconds=60)
    stand.time.pass_by(MINUTE)
    assert reason_of(lambda: access.authenticate(text)) == "token_expired"


def test_a_derived_token_expires_at_its_own_time_even_if_the_successor_lives_longer(
    stand: Stand, access: Access
) -> None:
    parent, text = issue_tokens(stand)
    access.rotate(parent.token_id)
    stand.time.pass_by(ATTEMPT_TOKEN_SECONDS * SECOND)
    assert reason_of(lambda: access.authenticate(text)) == "token_expired"


def test_no_token_is_derived_in_the_overlap_after_the_successor_was_revoked(stand: Stand, access: Access) -> None:
    stand.staging()
    text, parent = stand.token(Role.PRODUCER, "sales", "etl")
    _, new = access.rotate(parent.token_id, overlap_seconds=600)
    access.revoke(new.token_id)
    grant = access.authenticate(text)
    assert reason_of(lambda: attempt_token(access, grant, core_of("one").attempt.attempt_id)) == "token_revoked"


def test_an_exchanged_token_outlives_the_overlap_too(stand: Stand, access: Access) -> None:
    text, parent = stand.token(Role.PRODUCER, "sales", "etl")
    token, _ = access.exchange(parent.token_id, text)
    access.rotate(parent.token_id)
    stand.time.pass_by(MINUTE)
    assert access.authenticate(token.reveal()).parent_id == parent.token_id
    assert reason_of(lambda: access.exchange(parent.token_id, text)) == "token_rotated"


def test_a_derived_token_may_outlive_an_old_token_that_has_a_longer_successor(stand: Stand, access: Access) -> None:
    stand.staging()
    old, parent = access.issue(Role.PRODUCER, domain="sales", name="etl", lifetime_seconds=120)
    access.rotate(parent.token_id, lifetime_seconds=86_400, overlap_seconds=600)
    token, grant = attempt_token(access, access.authenticate(old.reveal()), core_of("one").attempt.attempt_id)
    assert grant.expires_micros == stand.time.wall + ATTEMPT_TOKEN_SECONDS * SECOND
    stand.time.pass_by(3 * MINUTE)
    assert access.authenticate(token.reveal()) == grant


def test_the_same_hash_again_is_the_same_token_for_the_attempt(stand: Stand, access: Access) -> None:
    stand.staging()
    _, parent = stand.token(Role.PRODUCER, "sales", "etl")
    token, attempt_id = BearerToken.draw(), core_of("one").attempt.attempt_id
    grant = access.issue_attempt_token(parent, attempt_id, token.sha256)
    stand.time.pass_by(SECOND)
    assert access.issue_attempt_token(parent, attempt_id, token.sha256) == grant
    _, successor = access.rotate(parent.token_id)
    assert access.issue_attempt_token(successor, attempt_id, token.sha256) == grant
    assert access.authenticate(token.reveal()) == grant


def test_the_hash_of_another_bearers_token_is_refused(stand: Stand, access: Access) -> None:
    stand.staging()
    text, parent = stand.token(Role.PRODUCER, "sales", "etl")
    _, other = stand.token(Role.PRODUCER, "sales", "else")
    token, attempt_id = BearerToken.draw(), core_of("one").attempt.attempt_id
    access.issue_attempt_token(parent, attempt_id, token.sha256)
    for taken in (token.sha256, BearerToken(text).sha256):
        call = functools.partial(access.issue_attempt_token, other, attempt_id, taken)
        assert reason_of(call) == "token_secret_taken"


def test_the_hash_of_another_attempts_token_is_refused(stand: Stand, access: Access) -> None:
    stand.staging()
    stand.staging("two")
    _, parent = stand.token(Role.PRODUCER, "sales", "etl")
    token = BearerToken.draw()
    access.issue_attempt_token(parent, core_of("one").attempt.attempt_id, token.sha256)
    attempt_id = core_of("two").attempt.attempt_id
    assert reason_of(lambda: access.issue_attempt_token(parent, attempt_id, token.sha256)) == "token_secret_taken"


def test_a_revoked_token_for_an_attempt_is_not_issued_again(stand: Stand, access: Access) -> None:
    stand.staging()
    _, parent = stand.token(Role.PRODUCER, "sales", "etl")
    token, attempt_id = BearerToken.draw(), core_of("one").attempt.attempt_id
    access.revoke(access.issue_attempt_token(parent, attempt_id, token.sha256).token_id)
    assert reason_of(lambda: access.issue_attempt_token(parent, attempt_id, token.sha256)) == "token_revoked"


def test_a_rotation_keeps_the_lifetime_of_the_old_token_unless_another_is_given(stand: Stand, access: Access) -> None:
    _, old = access.issue(Role.PRODUCER, domain="sales", name="etl", lifetime_seconds=7 * 86_400)
    stand.time.pass_by(5 * 86_400 * SECOND)
    _, new = access.rotate(old.token_id)
    assert new.expires_micros == stand.time.wall + 7 * 86_400 * SECOND
    _, shorter = access.rotate(new.token_id, lifetime_seconds=60)
    assert shorter.expires_micros == stand.time.wall + MINUTE
    _, same = access.rotate(shorter.token_id)
    assert same.expires_micros == stand.time.wall + MINUTE


def test_a_rotated_token_names_its_successor(stand: Stand, access: Access) -> None:
    text, old = stand.token(Role.PRODUCER, "sales", "etl")
    _, new = access.rotate(old.token_id)
    with pytest.raises(PvdmError) as caught:
        access.authenticate(text)
    assert (caught.value.reason, caught.value.details["successor_id"]) == ("token_rotated", new.token_id)
    assert caught.value.hint is not None
