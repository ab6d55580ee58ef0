"""A clock that jumps between or during requests: nothing is lost or doubled, and nothing expired is valid again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Table, func, select

from pvdm.errors import NotAllowedError, UnavailableError
from pvdm.ledger import Ledger
from pvdm.ledger.schema.record import attestations, challenges, events, statements, tokens
from pvdm.model.role import Role
from pvdm.steward.record.log import LedgerLogReader, PinnedLogReader
from pvdm.trust.log.entry import parse_entry
from tests.support import fault
from tests.support.steward.http import REASON, Served, bearer, blocked_commits, refusal, served
from tests.support.steward.load import ATTESTATIONS, CHALLENGES, challenge_body, signed_attestation
from tests.support.steward.notary import (
    Stand,
    Time,
    failed,
    opened,
    override_of,
    root_naming,
    signed_override,
    signed_root,
    stand_at,
)
from tools.proof_kit import DAY, SECOND

HOUR = 3_600 * SECOND
YEAR = 365 * DAY
JUMPS = {"back an hour": -HOUR, "forward a year": YEAR}


@dataclass(slots=True)
class ClockScene:
    """A Steward whose trust root is valid for years, and the nonces that it has acknowledged so far."""

    steward: Served
    time: Time
    challenged: list[str] = field(default_factory=list)
    attested: list[str] = field(default_factory=list)

    def headers(self, role: Role = Role.OPERATOR, name: str = "operator-tom") -> dict[str, str]:
        return self.steward.headers(role, "*", name)

    def challenge(self, number: int, attestor: dict[str, str]) -> httpx.Response:
        nonce = f"{number:032x}"
        response = self.steward.http.post(CHALLENGES, json=challenge_body(nonce), headers=attestor)
        if response.status_code == 200:
            self.challenged.append(nonce)
        return response

    def attest(self, number: int, attestor: dict[str, str], *, issued_at: int | None = None) -> httpx.Response:
        nonce = f"{number:032x}"
        issued = self.now() if issued_at is None else issued_at
        body = {"envelope": json.loads(signed_attestation(nonce, epoch=1, now=issued))}
        response = self.steward.http.post(ATTESTATIONS, json=body, headers=attestor)
        if response.status_code == 200:
            self.attested.append(nonce)
        return response

    def now(self) -> int:
        """The time that the Steward trusts; sources, whose clocks are right, have the same."""
        return self.steward.stand.notary.clock.trusted_micros()

    def confirm(self, operator: dict[str, str]) -> httpx.Response:
        return self.steward.http.post("/v1/clock/confirm", json=REASON, headers=operator)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[ClockScene]:
    with served(tmp_path, rooted=False) as steward:
        active = steward.stand.notary.epochs.book().active
        assert active is not None
        root = root_naming(active)
        lasting = tuple(replace(key, valid_until=key.valid_until + 2 * YEAR) for key in root.keys)
        root = replace(root, expires_at=root.expires_at + 2 * YEAR, keys=lasting)
        steward.stand.notary.trust.accept(signed_root(root), pin=root.sha256)
        yield ClockScene(steward, steward.stand.time)


@pytest.fixture
def attestor(scene: ClockScene) -> dict[str, str]:
    return scene.headers(Role.ATTESTOR, "source-payments")


def times_of(stand: Stand) -> tuple[list[int], list[int]]:
    """The times of the step log and of the transparency log, each in its own order."""
    with stand.notary.ledger.read() as unit:
        wanted = select(events.c.at_micros).order_by(events.c.event_id)
        steps = [row["at_micros"] for row in unit.rows(wanted)]
    reader = LedgerLogReader(stand.notary.ledger)
    return steps, [parse_entry(data).time for data in reader.read_entries(0, reader.size())]


def stored_nonces(stand: Stand) -> tuple[list[str], list[str]]:
    """The nonces of challenges and of attestations that the ledger holds."""
    with stand.notary.ledger.read() as unit:
        challenged = [row["nonce"] for row in unit.rows(select(challenges).order_by(challenges.c.nonce))]
        return challenged, [row["nonce"] for row in unit.rows(select(attestations).order_by(attestations.c.nonce))]


def assert_consistent(scene: ClockScene) -> None:
    """The ledger has every acknowledged nonce once and no other, and no recorded time runs back."""
    assert stored_nonces(scene.steward.stand) == (sorted(scene.challenged), sorted(scene.attested))
    for times in times_of(scene.steward.stand):
        assert times == sorted(times)


def move_clock_during(call: Callable[[], httpx.Response], move: Callable[[], None]) -> httpx.Response:
    """Move the clock while the request waits before its commit; returns the response."""
    with ThreadPoolExecutor(1) as pool, blocked_commits() as (reached, go):
        response = pool.submit(call)
        assert reached.wait(10)
        move()
        go.set()
        return response.result(20)


@pytest.mark.parametrize("when", ["between", "during"])
def test_a_jump_back_by_an_hour_changes_nothing(scene: ClockScene, attestor: dict[str, str], when: str) -> None:
    assert scene.challenge(1, attestor).status_code == 200
    if when == "between":
        scene.time.jump(-HOUR)
        answers = [scene.challenge(2, attestor), scene.attest(1, attestor)]
    else:
        answers = [move_clock_during(lambda: scene.challenge(2, attestor), lambda: scene.time.jump(-HOUR))]
        scene.time.jump(HOUR)
        answers += [move_clock_during(lambda: scene.attest(1, attestor), lambda: scene.time.jump(-HOUR))]
    answers += [scene.attest(2, attestor), scene.challenge(3, attestor)]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert scene.steward.http.get("/readyz").status_code == 200
    assert_consistent(scene)


@pytest.mark.parametrize("when", ["between", "during"])
def test_a_jump_forward_by_a_year_stops_requests_until_an_operator_confirms(
    scene: ClockScene, attestor: dict[str, str], when: str
) -> None:
    operator = scene.headers()
    assert scene.challenge(1, attestor).status_code == 200
    if when == "between":
        scene.time.jump(YEAR)
    else:
        # A request that began before the jump succeeds.
        assert move_clock_during(lambda: scene.challenge(2, attestor), lambda: scene.time.jump(YEAR)).status_code == 200
    for answer in (scene.challenge(3, attestor), scene.attest(1, attestor), scene.challenge(1, attestor)):
        assert refusal(answer) == (503, "clock_jumped")
        assert int(answer.headers["retry-after"]) > 0
    ready = scene.steward.http.get("/readyz")
    assert (ready.status_code, [reason["code"] for reason in ready.json()["reasons"]]) == (503, ["clock_jumped"])
    assert scene.confirm(operator).json() == {"at": scene.time.wall, "confirmed": True}
    assert scene.steward.http.get("/readyz").json() == {"ready": True, "reasons": []}
    assert_consistent(scene)


def test_after_the_confirmation_old_tokens_and_challenges_have_expired_and_new_ones_work(
    scene: ClockScene, attestor: dict[str, str]
) -> None:
    operator = scene.headers()
    scene.challenge(1, attestor)
    scene.time.jump(YEAR)
    assert refusal(scene.challenge(2, attestor)) == (503, "clock_jumped")
    assert scene.confirm(operator).status_code == 200
    for headers in (operator, attestor):
        assert refusal(scene.steward.http.get("/v1/identity", headers=headers)) == (401, "token_expired")
    fresh = scene.headers(Role.ATTESTOR, "source-payments")
    assert refusal(scene.attest(1, fresh)) == (422, "challenge_expired")
    assert scene.challenge(2, fresh).status_code == 200
    assert scene.attest(2, fresh).status_code == 200
    recorded = scene.steward.stand.proved("late")
    path = f"/v1/proofs/{recorded.statement_id}"
    proof = scene.steward.http.get(path, headers=scene.headers(Role.AUDITOR)).json()
    assert proof["issued_at"] >= scene.time.wall
    assert proof["expires_at"] == proof["issued_at"] + HOUR
    assert_consistent(scene)


def test_a_corrected_clock_jump_still_needs_a_confirmation_and_ends_no_token(
    scene: ClockScene, attestor: dict[str, str]
) -> None:
    operator = scene.headers()
    scene.time.jump(YEAR)
    assert refusal(scene.challenge(1, attestor)) == (503, "clock_jumped")
    scene.time.jump(-YEAR)
    assert refusal(scene.challenge(1, attestor)) == (503, "clock_jumped")
    scene.time.pass_by(SECOND)
    assert scene.confirm(operator).json() == {"at": scene.time.wall, "confirmed": True}
    assert scene.challenge(1, attestor).status_code == 200
    assert scene.attest(1, attestor).status_code == 200
    assert_consistent(scene)


def test_a_jump_during_a_confirmation_is_not_confirmed_by_it(scene: ClockScene, attestor: dict[str, str]) -> None:
    operator = scene.headers()
    scene.time.jump(10 * DAY)
    assert move_clock_during(lambda: scene.confirm(operator), lambda: scene.time.jump(YEAR)).status_code == 200
    assert refusal(scene.challenge(1, attestor)) == (503, "clock_jumped")
    assert_consistent(scene)


@pytest.mark.parametrize("jump", [-HOUR, -3 * HOUR, YEAR - HOUR])
def test_neither_expiry_nor_revocation_is_taken_back_by_a_jump(scene: ClockScene, jump: int) -> None:
    access = scene.steward.stand.notary.access
    short, _ = access.issue(Role.OPERATOR, domain="*", name="short", lifetime_seconds=600)
    text, grant = scene.steward.stand.token()
    child, _ = access.exchange(grant.token_id, text)
    access.revoke(grant.token_id)
    scene.time.pass_by(601 * SECOND)
    scene.time.jump(jump)
    for token, code in ((short.reveal(), "token_expired"), (text, "token_revoked"), (child.reveal(), "token_revoked")):
        for _ in range(2):
            answer = scene.steward.http.get("/v1/identity", headers=bearer(token))
            assert refusal(answer) == (401, code)
        scene.time.jump(-HOUR)


def test_a_token_that_expired_before_a_restart_is_not_revived_by_a_clock_that_was_set_back(tmp_path: Path) -> None:
    with stand_at(tmp_path) as stand:
        token, _ = stand.notary.access.issue(Role.OPERATOR, domain="*", name="short", lifetime_seconds=600)
        stand.time.pass_by(601 * SECOND)
        stand.time.jump(-HOUR)
        notary = stand.reopen()
        with pytest.raises(NotAllowedError, match="the token has expired"):
            notary.access.authenticate(token.reveal())


def test_a_challenge_that_expired_stays_expired_when_the_clock_goes_back(
    scene: ClockScene, attestor: dict[str, str]
) -> None:
    scene.challenge(1, attestor)
    issued = scene.now()
    scene.time.pass_by(DAY + SECOND)
    scene.time.jump(-2 * HOUR)
    assert refusal(scene.attest(1, attestor, issued_at=issued)) == (422, "challenge_expired")
    assert_consistent(scene)


def prepare_override(scene: ClockScene, name: str) -> Callable[[], httpx.Response]:
    """A function that submits a new override, which is valid for one hour."""
    stand = scene.steward.stand
    core = failed(stand.verifying(name))
    recorded = stand.record(core)
    body = {"envelope": json.loads(signed_override(override_of(recorded, core, scene.now(), nonce=name)))}
    operator = scene.headers()
    return lambda: scene.steward.http.post("/v1/overrides", json=body, headers=operator)


def test_an_override_that_expired_stays_expired_when_the_clock_goes_back(scene: ClockScene) -> None:
    submit = prepare_override(scene, "late")
    scene.time.pass_by(HOUR + SECOND)
    scene.time.jump(-2 * HOUR)
    answer = submit()
    assert (answer.status_code, answer.json()["error"]["reason"]) == (403, "override_expired")


def test_an_override_is_judged_at_the_confirmed_time_and_not_during_a_jump(scene: ClockScene) -> None:
    submit, other = prepare_override(scene, "one"), prepare_override(scene, "two")
    operator = scene.headers()
    answer = move_clock_during(submit, lambda: scene.time.jump(10 * DAY))
    assert answer.status_code == 200
    assert refusal(other()) == (503, "clock_jumped")
    assert scene.confirm(operator).status_code == 200
    assert refusal(other()) == (403, "override_expired")
    listed = scene.steward.http.get("/v1/overrides", headers=operator).json()["overrides"]
    assert [each["fail_proof_id"] for each in listed] == [answer.json()["fail_proof_id"]]


def test_an_attempt_gets_no_token_and_is_not_aborted_while_the_clock_is_in_doubt(scene: ClockScene) -> None:
    stand = scene.steward.stand
    path = f"/v1/attempts/{stand.verifying('one').attempt.attempt_id}"
    producer = scene.steward.headers(Role.PRODUCER, "sales")
    before = count(stand.notary.ledger, tokens)
    scene.time.jump(YEAR)
    body = {"secret_sha256": "ab" * 32}
    assert refusal(scene.steward.http.post(f"{path}/tokens", json=body, headers=producer)) == (503, "clock_jumped")
    assert refusal(scene.steward.http.post(f"{path}/abort", json={**REASON, "lease_number": 1}, headers=producer)) == (
        503,
        "clock_jumped",
    )
    assert count(stand.notary.ledger, tokens) == before


def test_proofs_are_not_signed_while_the_clock_is_in_doubt(scene: ClockScene) -> None:
    stand = scene.steward.stand
    core = stand.verifying("one")
    before = count(stand.notary.ledger, statements)
    scene.time.jump(YEAR)
    with pytest.raises(UnavailableError, match="the clock jumped forward"):
        stand.record(core)
    assert count(stand.notary.ledger, statements) == before


def count(ledger: Ledger, table: Table) -> int:
    with ledger.read() as unit:
        found: int = unit.execute(select(func.count()).select_from(table)).scalar_one()
        return found


@pytest.mark.parametrize("name", JUMPS)
def test_a_crash_right_after_a_jump_loses_and_doubles_nothing(
    scene: ClockScene, attestor: dict[str, str], name: str
) -> None:
    operator = scene.headers()
    scene.challenge(1, attestor)

    def crash() -> None:
        scene.time.jump(JUMPS[name])
        raise RuntimeError("a crash")

    with fault.armed("steward.before_outside", fault.Call(crash)):
        assert scene.attest(1, attestor).status_code == 500
    if JUMPS[name] > 0:
        # The attestation is in the log: a repeated request is acknowledged even while the clock is in doubt.
        assert scene.steward.http.get("/readyz").status_code == 503
        assert scene.attest(1, attestor).status_code == 200
        assert scene.confirm(operator).status_code == 200
    else:
        assert scene.attest(1, attestor).status_code == 200
    assert_consistent(scene)


def test_times_in_the_log_of_two_stewards_whose_clocks_differ_never_run_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stand_at(tmp_path) as stand:
        behind = Time(stand.time.wall - 100 * SECOND)
        early, late = (stand.verifying(name) for name in ("one", "two"))
        other = replace(stand, notary=opened(stand.config, behind), time=behind)
        pin_now, unrecorded = PinnedLogReader.pin_now, [early]

        def pin_after_the_other_appended(ledger: Ledger) -> PinnedLogReader:
            # Just before the second Steward reads the log, the first one appends.
            if ledger is other.notary.ledger and unrecorded:
                stand.time.pass_by(SECOND)
                stand.record(unrecorded.pop())
            return pin_now(ledger)

        monkeypatch.setattr(PinnedLogReader, "pin_now", staticmethod(pin_after_the_other_appended))
        try:
            index = other.record(late).log_index
        finally:
            other.notary.close()
        assert (unrecorded, index) == ([], stand.notary.log.size() - 1)
        for times in times_of(stand):
            assert times == sorted(times)
