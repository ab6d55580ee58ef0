"""The table of states and steps: the page spec/states.md, the code and the database agree with it."""

from __future__ import annotations

from itertools import product

import pytest
from sqlalchemy import update

from pvdm.errors import ConflictError, NotAllowedError, PvdmError
from pvdm.ledger import Unit
from pvdm.ledger.schema import metadata
from pvdm.ledger.schema.work import NoncePurpose, attempts, workloads
from pvdm.ledger.work import nonces
from pvdm.model.states import ATTEMPT, MACHINES, NONCE, WORKLOAD, AttemptState, Machine, NonceState, WorkloadState
from tests.support.for_each import for_each
from tests.support.ledger.rows import attempt_in_state, hex32, open_workload
from tools.make_states import PAGE, page


def test_the_page_of_states_is_generated_from_the_table() -> None:
    assert PAGE.read_text() == page()


@for_each("machine", MACHINES, ids=lambda machine: machine.name)
def test_every_state_can_be_reached(machine: Machine) -> None:
    reached = {machine.initial} | {step.new for step in machine.transitions}
    assert reached == set(machine.states)


def test_an_attempt_has_these_terminal_states() -> None:
    assert set(ATTEMPT.terminal()) == {"COMMITTED", "VERIFICATION_FAILED", "ROLLED_BACK"}


@for_each(("old", "new"), list(product(AttemptState, AttemptState)))
def test_the_code_allows_a_step_exactly_if_the_table_has_it(old: AttemptState, new: AttemptState) -> None:
    if any((step.old, step.new) == (old, new) for step in ATTEMPT.transitions):
        ATTEMPT.require(old, new)
    else:
        with pytest.raises(PvdmError, match="no such step of the attempt"):
            ATTEMPT.require(old, new)


# The step into COMMITTED needs a publication too, so it has a test of its own below.
STEPS = [(old, new) for old, new in product(AttemptState, AttemptState) if new is not AttemptState.COMMITTED]


@for_each(("old", "new"), STEPS)
def test_the_database_allows_a_step_exactly_if_the_table_has_it(
    scratch: Unit, old: AttemptState, new: AttemptState
) -> None:
    with scratch.dry_run():
        open_workload(scratch)
        attempt = attempt_in_state(scratch, old)
        step = update(attempts).where(attempts.c.attempt_id == attempt.attempt_id).values(state=new)
        if ATTEMPT.allows(old, new):
            assert scratch.execute(step).rowcount == 1
        else:
            with pytest.raises(NotAllowedError, match="no such step of the attempt"):
                scratch.execute(step)


def test_the_database_refuses_a_committed_attempt_without_its_publication(scratch: Unit) -> None:
    open_workload(scratch)
    attempt = attempt_in_state(scratch, AttemptState.COMMITTING)
    step = update(attempts).where(attempts.c.attempt_id == attempt.attempt_id).values(state="COMMITTED")
    with pytest.raises(NotAllowedError, match="a committed attempt is published"):
        scratch.execute(step)


def test_the_database_refuses_an_unknown_state(scratch: Unit) -> None:
    open_workload(scratch)
    with pytest.raises((ConflictError, NotAllowedError)):
        scratch.execute(update(workloads).values(state="PAUSED"))


def test_the_database_refuses_a_nonce_that_begins_committed(scratch: Unit) -> None:
    row = {"nonce": hex32(1), "purpose": "break-glass", "holder": "x", "state": "COMMITTED", "reason": ""}
    with pytest.raises(NotAllowedError, match="nonces begin in RESERVED"):
        scratch.insert(metadata.tables["nonces"], **row)


@pytest.mark.parametrize("end", [NonceState.COMMITTED, NonceState.ABORTED])
@pytest.mark.parametrize("to", list(NonceState))
def test_the_database_refuses_a_step_of_an_ended_nonce(scratch: Unit, end: NonceState, to: NonceState) -> None:
    nonces.reserve(scratch, hex32(1), purpose=NoncePurpose.BREAK_GLASS, holder="x")
    if end is NonceState.COMMITTED:
        nonces.commit(scratch, hex32(1), snapshot_id=None)
    else:
        nonces.abort(scratch, hex32(1), reason="given up")
    with pytest.raises(NotAllowedError, match="no such step of the nonce"):
        scratch.execute(update(metadata.tables["nonces"]).values(state=to))


def test_nonce_and_workload_have_these_terminal_states() -> None:
    assert (NONCE.terminal(), WORKLOAD.terminal()) == (
        (NonceState.COMMITTED, NonceState.ABORTED),
        (WorkloadState.COMPLETE, WorkloadState.ABANDONED),
    )
