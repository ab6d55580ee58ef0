"""Random sequences of operations on the ledger and on a model: both allow the same steps and have the same states."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pvdm.errors import PvdmError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.record import events
from pvdm.ledger.work import attempts, chunks, nonces
from pvdm.model.filter.claim import Claim
from pvdm.model.states import ATTEMPT, AttemptState
from tests.support.claims import overlap
from tests.support.ledger.databases import NOW, ledger_at
from tests.support.ledger.rows import attempt_opening, hex32, open_workload

pytestmark = pytest.mark.property

CHUNKS = ("a", "b")
OPERATIONS = ("open", "verify", "commit", "publish", "fail", "roll back", "settle yes", "settle no")


@dataclass
class Model:
    """The rules of attempts and nonces on plain dictionaries."""

    state: dict[str, str] = field(default_factory=dict)
    chunk: dict[str, str] = field(default_factory=dict)
    nonce: dict[str, str | None] = field(default_factory=dict)
    drawn: set[str] = field(default_factory=set)
    published: dict[str, str] = field(default_factory=dict)

    def allows(self, attempt: str, new: str) -> bool:
        return attempt in self.state and ATTEMPT.allows(self.state[attempt], new)

    def step(self, operation: str, attempt: str, chunk: str, nonce: str) -> bool:
        """Do the operation if it is allowed; returns whether it is."""
        if operation == "open":
            if attempt in self.state:
                return self.chunk[attempt] == chunk
            alive = any(self.chunk[a] == chunk and s in ATTEMPT.live() for a, s in self.state.items())
            if alive or chunk in self.published or nonce in self.drawn:
                return False
            self.state[attempt], self.chunk[attempt], self.nonce[attempt] = "STAGING", chunk, nonce
            self.drawn.add(nonce)
            return True
        if operation == "verify":
            if not self.allows(attempt, "VERIFYING") or nonce in self.drawn:
                return False
            self.state[attempt], self.nonce[attempt] = "VERIFYING", nonce
            self.drawn.add(nonce)
            return True
        return self._step_after_verification(operation, attempt)

    def _step_after_verification(self, operation: str, attempt: str) -> bool:
        if operation == "commit":
            return self._move(attempt, "COMMITTING")
        if operation in ("fail", "roll back"):
            new = "VERIFICATION_FAILED" if operation == "fail" else "ROLLED_BACK"
            if self.state.get(attempt) == new:
                return True
            if not self._move(attempt, new):
                return False
            self.nonce[attempt] = None
            return True
        if self.nonce.get(attempt) is None:
            return False
        if operation == "settle no":
            if self.state[attempt] == "COMMITTED":
                return False
            self.nonce[attempt] = None
            return True
        if operation == "settle yes" and self.state[attempt] == "COMMITTED":
            return True
        if not self._move(attempt, "COMMITTED"):
            return False
        self.published[self.chunk[attempt]] = attempt
        return True

    def _move(self, attempt: str, new: str) -> bool:
        if not self.allows(attempt, new):
            return False
        self.state[attempt] = new
        return True


def apply_to_ledger(unit: Unit, operation: str, name: int, chunk: str, nonce: str) -> None:
    opening = attempt_opening(name, chunk_id=chunk)
    attempt = opening.attempt_id
    held = nonces.find_current(unit, attempt)
    using = held.nonce if held else hex32("none")
    match operation:
        case "open":
            attempts.open_next(unit, type(opening)(**{**_fields(opening), "nonce": nonce}))
        case "verify":
            attempts.begin_verifying(unit, attempt, nonce=nonce, staged_snapshot_id="5", reason="")
        case "commit":
            attempts.begin_committing(unit, attempt, reason="")
        case "publish":
            attempts.publish(unit, attempt, nonce=using, snapshot_id="900")
        case "fail":
            attempts.end(unit, attempt, AttemptState.VERIFICATION_FAILED, reason="")
        case "roll back":
            attempts.end(unit, attempt, AttemptState.ROLLED_BACK, reason="")
        case "settle yes":
            attempts.settle(unit, attempt, using, "900")
        case _:
            nonces.abort(unit, using, reason="")


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


steps = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 3), st.sampled_from(CHUNKS), st.integers(0, 12)),
    min_size=1,
    max_size=40,
)


def play(ledger: Ledger, sequence: list[tuple[str, int, str, int]]) -> None:
    """Run the sequence on both, comparing after each step; a refused step leaves nothing behind."""
    model = Model()
    # A refusal may abort a transaction on PostgreSQL, so every step is a unit of its own.
    ledger.transact(open_workload, at_micros=NOW)
    for operation, name, chunk, number in sequence:
        attempt = attempt_opening(name).attempt_id
        expected = model.step(operation, attempt, chunk, hex32(number))
        work = partial(apply_to_ledger, operation=operation, name=name, chunk=chunk, nonce=hex32(number))
        try:
            ledger.transact(work, at_micros=NOW)
            happened = True
        except PvdmError:
            happened = False
        assert happened == expected, (operation, name, chunk, number)
    with ledger.read() as unit:
        compare(unit, model)


def compare(unit: Unit, model: Model) -> None:
    """The ledger's rows, and its events, have the model's states, nonces and publications."""
    states: dict[str, str] = {}
    for event in events.page(unit):
        if event.subject == "attempts":
            assert event.new is not None
            states[event.row_key] = event.new["state"]
    assert states == model.state
    for attempt, state in model.state.items():
        held = nonces.find_current(unit, attempt)
        assert attempts.get(unit, attempt).state == state
        assert (held.nonce if held else None) == model.nonce[attempt]
    found = {one.chunk_id: one.attempt_id for one in chunks.list_publications(unit, "orders-1")}
    assert found == model.published


@settings(max_examples=30)
@given(sequence=steps)
def test_the_ledger_does_what_the_model_does_on_sqlite(
    migrated_file: Path, tmp_path_factory: pytest.TempPathFactory, sequence: list[tuple[str, int, str, int]]
) -> None:
    path = tmp_path_factory.mktemp("model") / "ledger.db"
    shutil.copy(migrated_file, path)
    with ledger_at(f"sqlite:///{path}") as ledger:
        play(ledger, sequence)


@pytest.mark.parametrize("seed", range(10))
def test_the_ledger_does_what_the_model_does(ledger: Ledger, seed: int) -> None:
    random = Random(seed)
    # Mostly operations of a successful attempt, so that some attempts are published.
    likely = ("open", "verify", "commit", "publish")
    sequence = [
        (
            random.choice(likely if random.random() < 0.7 else OPERATIONS),
            random.randrange(4),
            random.choice(CHUNKS),
            random.randrange(60),
        )
        for _ in range(60)
    ]
    play(ledger, sequence)


numbers = st.one_of(st.none(), st.integers(-5, 5))


@given(first=st.tuples(numbers, numbers), second=st.tuples(numbers, numbers))
def test_ranges_overlap_exactly_if_they_share_a_number(
    first: tuple[int | None, int | None], second: tuple[int | None, int | None]
) -> None:
    ranges = [range(-9 if low is None else low, 9 if high is None else high) for low, high in (first, second)]
    if all(ranges):
        one, two = (Claim.between("c", "long", *bounds) for bounds in (first, second))
        assert overlap(one, two) == bool(set(ranges[0]) & set(ranges[1]))


@given(st.lists(st.text(max_size=5), min_size=2, max_size=2))
def test_text_bounds_compare_as_code_points(values: list[str]) -> None:
    keys = [Claim.value("c", "string", value).lower for value in values]
    assert (keys[0] < keys[1]) == (values[0] < values[1])
