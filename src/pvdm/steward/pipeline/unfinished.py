"""Unfinished work of the ledger: one Steward at a time does it, and another takes it up when that one is gone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

from pvdm.errors import UnavailableError
from pvdm.ledger import Ledger
from pvdm.ledger.record import receipts
from pvdm.ledger.work import attempts, verified
from pvdm.ledger.work.attempts import Attempt
from pvdm.model.states import AttemptState

WORK_HELD: Final = "work_held"
# What is older was looked at by an earlier look of this Steward, or by its start.
_LOOKED_AT_MICROS: Final = 3_600 * 1_000_000


def publication_of(workload_id: str, attempt_ids: Sequence[str]) -> str:
    """What is published at once, by one id: the only attempt, or the workload."""
    return attempt_ids[0] if len(attempt_ids) == 1 else workload_id


@contextlib.contextmanager
def working_on(ledger: Ledger, subject: str) -> Iterator[None]:
    """Verify, publish or clean up the attempt, or publish the workload, while no other Steward of the ledger does."""
    with ledger.try_lock(_name(subject)) as held:
        if not held:
            raise UnavailableError(
                WORK_HELD,
                "another Steward of this ledger is working on it",
                got=subject,
                hint="nothing is to be done: it is looked at again when that Steward is done, or gone",
            )
        yield


class Unfinished:
    """What no Steward is working on, and should be; a look at it costs little, however long the history is."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._unsettled: frozenset[str] = frozenset()
        self._settled: frozenset[str] = frozenset()
        self._since_micros = 0

    def attempts(self) -> list[Attempt]:
        """Every attempt whose next step is a Steward's."""
        with self._ledger.read() as unit:
            return [each for each in attempts.list_live(unit) if each.state is not AttemptState.STAGING]

    def is_worked_on(self, attempt: Attempt) -> bool:
        """Whether a Steward holds it just now, alone or with its workload."""
        return self._is_held(attempt.attempt_id) or (
            attempt.state is AttemptState.COMMITTING and self._is_held(attempt.workload_id)
        )

    def _is_held(self, subject: str) -> bool:
        with self._ledger.try_lock(_name(subject)) as held:
            return not held

    def settling_is_due(self, now_micros: int) -> bool:
        """Whether a receipt or a clean-up was missing at the last look too, so that it is not just being made.

        Each is a reason once: what settling cannot repair is not tried at every look.
        """
        with self._ledger.read() as unit:
            unreceipted = receipts.list_missing(unit, since_micros=self._since_micros)
            uncleaned = verified.list_undisposed(unit, since_micros=self._since_micros)
        now = frozenset(
            [
                *(f"{each.table_uuid}/{each.snapshot_id}" for each in unreceipted),
                *(each.attempt_id for each in uncleaned),
            ]
        )
        due = (now & self._unsettled) - self._settled
        self._unsettled = now
        self._settled = (self._settled & now) | due
        self._since_micros = max(0, now_micros - _LOOKED_AT_MICROS)
        return bool(due)


def _name(subject: str) -> str:
    return f"work on {subject}"
