"""A clock that jumps back an hour or forward a year, between requests and in the middle of them, breaks no promise."""

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
class Clocked:
    """A Steward under a trust root that outlasts a year, and what was acknowledged so far."""

    steward: Served
    time: Time
    drawn: list[str] = field(default_factory=list)
    attested: list[str] = field(default_factory=list)

    def headers(self, role: Role = Role.OPERATOR, name: str = "operator-tom") -> dict[str, str]:
        return self.steward.headers(role, "*", name)

    def draw(self, number: int, attestor: dict[str, str]) -> httpx.Response:
        nonce = f"{number:032x}"
        response = self.steward.http.post(CHALLENGES, json=challenge_body(nonce), headers=attestor)
        if response.status_code == 200:
            self.drawn.append(nonce)
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
        """The Steward's time, as far as it trusts it: a source's own clock is right."""
        return self.steward.stand.notary.clock.trusted_micros()

    def confirm(self, operator: dict[str, str]) -> httpx.Response:
        return self.steward.http.post("/v1/clock/confirm", json=REASON, headers=operator)


@pytest.fixture
def clocked(tmp_path: Path) -> Iterator[Clocked]:
    with served(tmp_path, rooted=False) as steward:
        active = steward.stand.notary.epochs.book().active
        assert active is not None
        root = root_naming(active)
        lasting = tuple(replace(key, valid_until=key.valid_until + 2 * YEAR) for key in root.keys)
        root = replace(root, expires_at=root.expires_at + 2 * YEAR, keys=lasting)
        steward.stand.notary.trust.accept(signed_root(root), pin=root.sha256)
        yield Clocked(steward, steward.stand.time)


@pytest.fixture
def attestor(clocked: Clocked) -> dict[str, str]:
    return clocked.headers(Role.ATTESTOR, "source-payments")


def times_of(stand: Stand) -> tuple[list[int], list[int]]:
    """The times of the step log and of the transparency log, each in its own order."""
    with stand.notary.ledger.read() as unit:
        wanted = select(events.c.at_micros).order_by(events.c.event_id)
        steps = [row["at_micros"] for row in unit.rows(wanted)]
    reader = LedgerLogReader(stand.notary.ledger)
    return steps, [parse_entry(data).time for data in reader.read_entries(0, reader.size())]


def stored(stand: Stand) -> tuple[list[str], list[str]]:
    """The nonces of challenges and of attestations that the ledger holds."""
    with stand.notary.ledger.read() as unit:
        drawn = [row["nonce"] for row in unit.rows(select(challenges).order_by(challenges.c.nonce))]
        return drawn, [row["nonce"] for row in unit.rows(select(attestations).order_by(attestations.c.nonce))]


def judge(clocked: Clocked) -> None:
    """Everything acknowledged is there once, nothing else is, and no time runs back."""
    assert stored(clocked.steward.stand) == (sorted(clocked.drawn), sorted(clocked.attested))
    for times in times_of(clocked.steward.stand):
        assert times == sorted(times)


def during(call: Callable[[], httpx.Response], move: Callable[[], None]) -> httpx.Response:
    """The request's answer, with the clock moved while it stands before its commit."""
    with ThreadPoolExecutor(1) as pool, blocked_commits() as (reached, go):
        waiting = pool.submit(call)
        assert reached.wait(10)
        move()
        go.set()
        return waiting.result(20)


@pytest.mark.parametrize("when", ["between", "during"])
def test_an_hour_back_changes_nothing(clocked: Clocked, attestor: dict[str, str], when: str) -> None:
    assert clocked.draw(1, attestor).status_code == 200
    if when == "between":
        clocked.time.jump(-HOUR)
        answers = [clocked.draw(2, attestor), clocked.attest(1, attestor)]
    else:
        answers = [during(lambda: clocked.draw(2, attestor), lambda: clocked.time.jump(-HOUR))]
        clocked.time.jump(HOUR)
        answers += [during(lambda: clocked.attest(1, attestor), lambda: clocked.time.jump(-HOUR))]
    answers += [clocked.attest(2, attestor), clocked.draw(3, attestor)]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert clocked.steward.http.get("/readyz").status_code == 200
    judge(clocked)


@pytest.mark.parametrize("when", ["between", "during"])
def test_a_year_forward_stops_the_work_until_an_operator_confirms(
    clocked: Clocked, attestor: dict[str, str], when: str
) -> None:
    operator = clocked.headers()
    assert clocked.draw(1, attestor).status_code == 200
    if when == "between":
        clocked.time.jump(YEAR)
    else:
        # What was under way before the jump is done, at its own time; the answer says so.
        assert during(lambda: clocked.draw(2, attestor), lambda: clocked.time.jump(YEAR)).status_code == 200
    for answer in (clocked.draw(3, attestor), clocked.attest(1, attestor), clocked.draw(1, attestor)):
        assert refusal(answer) == (503, "clock_jumped")
        assert int(answer.headers["retry-after"]) > 0
    ready = clocked.steward.http.get("/readyz")
    assert (ready.status_code, [reason["code"] for reason in ready.json()["reasons"]]) == (503, ["clock_jumped"])
    assert clocked.confirm(operator).json() == {"at": clocked.time.wall, "confirmed": True}
    assert clocked.steward.http.get("/readyz").json() == {"ready": True, "reasons": []}
    judge(clocked)


def test_after_the_confirmation_everything_works_and_what_is_a_year_old_has_expired(
    clocked: Clocked, attestor: dict[str, str]
) -> None:
    operator = clocked.headers()
    clocked.draw(1, attestor)
    clocked.time.jump(YEAR)
    assert refusal(clocked.draw(2, attestor)) == (503, "clock_jumped")
    assert clocked.confirm(operator).status_code == 200
    for headers in (operator, attestor):
        assert refusal(clocked.steward.http.get("/v1/identity", headers=headers)) == (401, "token_expired")
    fresh = clocked.headers(Role.ATTESTOR, "source-payments")
    assert refusal(clocked.attest(1, fresh)) == (422, "challenge_expired")
    assert clocked.draw(2, fresh).status_code == 200
    assert clocked.attest(2, fresh).status_code == 200
    recorded = clocked.steward.stand.proved("late")
    path = f"/v1/proofs/{recorded.statement_id}"
    told = clocked.steward.http.get(path, headers=clocked.headers(Role.AUDITOR)).json()
    assert told["issued_at"] >= clocked.time.wall
    assert told["expires_at"] == told["issued_at"] + HOUR
    judge(clocked)


def test_a_corrected_clock_jump_still_needs_a_confirmation_and_ends_no_token(
    clocked: Clocked, attestor: dict[str, str]
) -> None:
    operator = clocked.headers()
    clocked.time.jump(YEAR)
    assert refusal(clocked.draw(1, attestor)) == (503, "clock_jumped")
    clocked.time.jump(-YEAR)
    assert refusal(clocked.draw(1, attestor)) == (503, "clock_jumped")
    clocked.time.pass_by(SECOND)
    assert clocked.confirm(operator).json() == {"at": clocked.time.wall, "confirmed": True}
    assert clocked.draw(1, attestor).status_code == 200
    assert clocked.attest(1, attestor).status_code == 200
    judge(clocked)


def test_a_jump_in_the_middle_of_a_confirmation_is_a_jump_again(clocked: Clocked, attestor: dict[str, str]) -> None:
    operator = clocked.headers()
    clocked.time.jump(10 * DAY)
    assert during(lambda: clocked.confirm(operator), lambda: clocked.time.jump(YEAR)).status_code == 200
    assert refusal(clocked.draw(1, attestor)) == (503, "clock_jumped")
    judge(clocked)


@pytest.mark.parametrize("jump", [-HOUR, -3 * HOUR, YEAR - HOUR])
def test_neither_expiry_nor_revocation_is_taken_back_by_a_jump(clocked: Clocked, jump: int) -> None:
    access = clocked.steward.stand.notary.access
    short, _ = access.issue(Role.OPERATOR, domain="*", name="short", lifetime_seconds=600)
    text, grant = clocked.steward.stand.token()
    child, _ = access.exchange(grant.token_id, text)
    access.revoke(grant.token_id)
    clocked.time.pass_by(601 * SECOND)
    clocked.time.jump(jump)
    for token, code in ((short.reveal(), "token_expired"), (text, "token_revoked"), (child.reveal(), "token_revoked")):
        for _ in range(2):
            answer = clocked.steward.http.get("/v1/identity", headers=bearer(token))
            assert refusal(answer) == (401, code)
        clocked.time.jump(-HOUR)


def test_a_token_that_expired_before_a_restart_is_not_revived_by_a_clock_that_was_set_back(tmp_path: Path) -> None:
    with stand_at(tmp_path) as stand:
        token, _ = stand.notary.access.issue(Role.OPERATOR, domain="*", name="short", lifetime_seconds=600)
        stand.time.pass_by(601 * SECOND)
        stand.time.jump(-HOUR)
        notary = stand.reopen()
        with pytest.raises(NotAllowedError, match="the token has expired"):
            notary.access.authenticate(token.reveal())


def test_a_challenge_that_expired_stays_expired_when_the_clock_goes_back(
    clocked: Clocked, attestor: dict[str, str]
) -> None:
    clocked.draw(1, attestor)
    issued = clocked.now()
    clocked.time.pass_by(DAY + SECOND)
    clocked.time.jump(-2 * HOUR)
    assert refusal(clocked.attest(1, attestor, issued_at=issued)) == (422, "challenge_expired")
    judge(clocked)


def override(clocked: Clocked, name: str) -> Callable[[], httpx.Response]:
    """Hands in a new override of one hour."""
    stand = clocked.steward.stand
    core = failed(stand.verifying(name))
    recorded = stand.record(core)
    body = {"envelope": json.loads(signed_override(override_of(recorded, core, clocked.now(), nonce=name)))}
    operator = clocked.headers()
    return lambda: clocked.steward.http.post("/v1/overrides", json=body, headers=operator)


def test_an_override_that_expired_stays_expired_when_the_clock_goes_back(clocked: Clocked) -> None:
    submit = override(clocked, "late")
    clocked.time.pass_by(HOUR + SECOND)
    clocked.time.jump(-2 * HOUR)
    answer = submit()
    assert (answer.status_code, answer.json()["error"]["reason"]) == (403, "override_expired")


def test_an_override_is_judged_at_the_confirmed_time_and_not_during_a_jump(clocked: Clocked) -> None:
    submit, other = override(clocked, "one"), override(clocked, "two")
    operator = clocked.headers()
    answer = during(submit, lambda: clocked.time.jump(10 * DAY))
    assert answer.status_code == 200
    assert refusal(other()) == (503, "clock_jumped")
    assert clocked.confirm(operator).status_code == 200
    assert refusal(other()) == (403, "override_expired")
    listed = clocked.steward.http.get("/v1/overrides", headers=operator).json()["overrides"]
    assert [each["fail_proof_id"] for each in listed] == [answer.json()["fail_proof_id"]]


def test_no_attempts_token_is_made_while_the_clock_is_in_doubt(clocked: Clocked) -> None:
    stand = clocked.steward.stand
    path = f"/v1/attempts/{stand.verifying('one').attempt.attempt_id}"
    producer = clocked.steward.headers(Role.PRODUCER, "sales")
    before = count(stand.notary.ledger, tokens)
    clocked.time.jump(YEAR)
    drawn = {"secret_sha256": "ab" * 32}
    assert refusal(clocked.steward.http.post(f"{path}/tokens", json=drawn, headers=producer)) == (503, "clock_jumped")
    assert refusal(clocked.steward.http.post(f"{path}/abort", json=REASON, headers=producer)) == (503, "clock_jumped")
    assert count(stand.notary.ledger, tokens) == before


def test_proofs_are_not_signed_while_the_clock_is_in_doubt(clocked: Clocked) -> None:
    stand = clocked.steward.stand
    core = stand.verifying("one")
    before = count(stand.notary.ledger, statements)
    clocked.time.jump(YEAR)
    with pytest.raises(UnavailableError, match="the clock jumped forward"):
        stand.record(core)
    assert count(stand.notary.ledger, statements) == before


def count(ledger: Ledger, table: Table) -> int:
    with ledger.read() as unit:
        found: int = unit.execute(select(func.count()).select_from(table)).scalar_one()
        return found


@pytest.mark.parametrize("name", JUMPS)
def test_a_crash_in_the_middle_of_a_jump_loses_and_doubles_nothing(
    clocked: Clocked, attestor: dict[str, str], name: str
) -> None:
    operator = clocked.headers()
    clocked.draw(1, attestor)

    def crash() -> None:
        clocked.time.jump(JUMPS[name])
        raise RuntimeError("a crash")

    with fault.armed("steward.before_outside", fault.Call(crash)):
        assert clocked.attest(1, attestor).status_code == 500
    if JUMPS[name] > 0:
        # It is in the log, and acknowledged once the outside knows it; asking again says so, whatever the clock.
        assert clocked.steward.http.get("/readyz").status_code == 503
        assert clocked.attest(1, attestor).status_code == 200
        assert clocked.confirm(operator).status_code == 200
    else:
        assert clocked.attest(1, attestor).status_code == 200
    judge(clocked)


def test_times_in_the_log_of_two_stewards_whose_clocks_differ_never_run_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stand_at(tmp_path) as stand:
        behind = Time(stand.time.wall - 100 * SECOND)
        early, late = (stand.verifying(name) for name in ("one", "two"))
        other = replace(stand, notary=opened(stand.config, behind), time=behind)
        read, waiting = PinnedLogReader.pin_now, [early]

        def edge(ledger: Ledger) -> PinnedLogReader:
            # Just before the second Steward looks at the log, the first one appends.
            if ledger is other.notary.ledger and waiting:
                stand.time.pass_by(SECOND)
                stand.record(waiting.pop())
            return read(ledger)

        monkeypatch.setattr(PinnedLogReader, "pin_now", staticmethod(edge))
        try:
            index = other.record(late).log_index
        finally:
            other.notary.close()
        assert (waiting, index) == ([], stand.notary.log.size() - 1)
        for times in times_of(stand):
            assert times == sorted(times)
