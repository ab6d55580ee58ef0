"""TLC accepts the step log of a real run as a run of the TLA+ model, and refuses falsified steps (spec/model)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from pvdm import Chunk, Committed, Coordinator, RolledBack, VerificationFailed
from tests.behaviour.durable.test_segments import folder, run
from tests.support.services import require
from tests.support.steward.pipeline import BY_DAY
from tests.support.steward.shop import ROWS, Shop, shop_at, table_of
from tools.check_model import ModelError, fetch_tlc
from tools.check_trace import Step, find_refused, read_steps

__all__ = ["folder"]

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def tlc() -> Path:
    try:
        return fetch_tlc()
    except ModelError as error:
        require(False, str(error))
        raise


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


def build(_spark: object, chunk: Chunk) -> pa.Table:
    return table_of([row for row in ROWS if chunk.chunk_id in ("all", f"day={row[1]}")])


def steps_of(shop: Shop, table: str) -> list[Step]:
    return read_steps(shop.steward.notary.ledger, "run-1" + table)


def run_clean(shop: Shop, table: str) -> None:
    with Coordinator(shop.steward) as coordinator:
        assert isinstance(coordinator.execute_workload("run-1" + table, build, table=table), Committed)


def run_and_repair(shop: Shop, table: str) -> None:
    with Coordinator(shop.steward) as coordinator:
        wrong = coordinator.execute_workload("run-1" + table, lambda _, chunk: build(_, chunk).slice(1), table=table)
        assert isinstance(wrong, VerificationFailed)
        assert isinstance(coordinator.repair("run-1" + table, build, reason="all rows"), Committed)


def run_in_two_segments(shop: Shop, table: str) -> None:
    outcomes = []
    for _ in range(2):
        with Coordinator(shop.steward, max_chunks=1) as coordinator:
            outcomes.append(coordinator.execute_workload("run-1" + table, build, table=table).name)
    assert outcomes == ["SEGMENT_ENDED", "COMMITTED"]


def run_with_takeover(shop: Shop, table: str) -> None:
    begun, taken_over, outcomes = threading.Event(), threading.Event(), []

    def build_slowly(_spark: object, chunk: Chunk) -> pa.Table:
        begun.set()
        assert taken_over.wait(60)
        return build(_spark, chunk)

    def run_first() -> None:
        with Coordinator(shop.steward) as coordinator:
            outcomes.append(coordinator.execute_workload("run-1" + table, build_slowly, table=table))

    first = threading.Thread(target=run_first)
    first.start()
    assert begun.wait(60)
    with Coordinator(shop.steward, take_over=True) as coordinator:
        assert isinstance(coordinator.execute_workload("run-1" + table, build, table=table), Committed)
    taken_over.set()
    first.join()
    assert isinstance(outcomes[0], RolledBack)


@pytest.mark.parametrize(
    ("play", "atomicity"),
    [
        (run_clean, "chunk"),
        (run_clean, "workload"),
        (run_and_repair, "chunk"),
        (run_in_two_segments, "chunk"),
        (run_with_takeover, "chunk"),
    ],
)
def test_a_real_run_is_a_run_of_the_model(
    shop: Shop, tlc: Path, play: Callable[[Shop, str], None], atomicity: str
) -> None:
    table = shop.target(f"{play.__name__}_{atomicity}", BY_DAY, f"atomicity: {atomicity}")
    play(shop, table)
    steps = steps_of(shop, table)
    assert sum(each.action == "Swap" for each in steps) == 2
    assert find_refused(tlc, steps) is None


@pytest.mark.usefixtures("folder")
def test_a_run_whose_processes_were_killed_is_a_run_of_the_model(shop: Shop, tlc: Path) -> None:
    table = shop.target("killed", BY_DAY)
    assert run(shop, table, "killed_at_each_first_call")[0] == 0
    steps = steps_of(shop, table)
    assert sum(each.action == "Abort" for each in steps) == 2
    assert find_refused(tlc, steps) is None


def remove_proof(steps: Sequence[Step]) -> list[Step]:
    """Remove the proof of the first publication, and the end of its verification."""
    published = next(each.facts["attempt"] for each in steps if each.action == "Swap")
    proving = ("Prove", "EndVerification")
    return [each for each in steps if each.action not in proving or each.facts["attempt"] != published]


def turn_proof_into_fail(steps: Sequence[Step]) -> list[Step]:
    """Give the first proof the verdict FAIL."""
    at = next(at for at, each in enumerate(steps) if each.action == "Prove")
    return [*steps[:at], replace(steps[at], facts={**steps[at].facts, "proof": "FAIL"}), *steps[at + 1 :]]


def repeat_publication(steps: Sequence[Step]) -> list[Step]:
    """Repeat the last publication at the end."""
    return [*steps, next(each for each in reversed(steps) if each.action == "Swap")]


def hand_in_without_lease(steps: Sequence[Step]) -> list[Step]:
    """The first run hands its attempt in after another run has taken the lease; all later steps are removed."""
    at = next(at for at, each in enumerate(steps) if each.action == "Abort")
    return [*steps[:at], Step("HandIn", {"attempt": 1, "state": "VERIFYING", "nonce": "RESERVED"})]


@pytest.fixture(scope="module")
def takeover_steps(shop: Shop) -> list[Step]:
    """The steps of a run that another run has taken over."""
    table = shop.target("falsified")
    run_with_takeover(shop, table)
    return steps_of(shop, table)


@pytest.mark.parametrize(
    ("falsify", "refused"),
    [
        (list, None),
        (remove_proof, "Swap"),
        (turn_proof_into_fail, "EndVerification"),
        (repeat_publication, "Swap"),
        (hand_in_without_lease, "HandIn"),
    ],
)
def test_a_falsified_run_is_refused_at_its_false_step(
    takeover_steps: list[Step], tlc: Path, falsify: Callable[[Sequence[Step]], list[Step]], refused: str | None
) -> None:
    found = find_refused(tlc, falsify(takeover_steps))
    assert (None if found is None else found.action) == refused
