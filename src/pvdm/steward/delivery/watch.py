"""Finds what becomes worth an alert by the passing of time: deadlines, expiries, stuck jobs; and used overrides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

from pvdm.api.work import JobState
from pvdm.errors import PvdmError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import proofs
from pvdm.ledger.work import deadlines
from pvdm.model.printable import iso_time
from pvdm.steward.logs import log_warning
from pvdm.steward.record.expiries import Expiries
from pvdm.steward.work.notices import AlertFacts, AlertKind, Notices, describe_workload_facts
from pvdm.steward.work.opened import describe_work
from pvdm.steward.work.queries import JobStatus

_MICROS: Final = 1_000_000
_DAY_SECONDS: Final = 86_400
# How far back the ledger is searched: a Steward that was down for longer does not report what happened before.
_LOOK_BACK_MICROS: Final = 30 * _DAY_SECONDS * _MICROS
# An expiry is reported when so much time is left, and again at each later mark.
_MARKS_SECONDS: Final = (30 * _DAY_SECONDS, 7 * _DAY_SECONDS, _DAY_SECONDS, 0)
# These are made for a shorter time. Tokens of jobs, which are made for hours, are not reported.
_MARKS_OF_KINDS: Final = {"last_operator_token": _MARKS_SECONDS[1:], "tls_certificate": _MARKS_SECONDS[1:], "token": ()}


@dataclass(frozen=True, slots=True)
class Watch:
    """Adds an alert for each such occurrence once; it may run in every Steward of a ledger."""

    ledger: Ledger
    clock: LedgerClock
    notices: Notices
    expiries: Expiries
    list_jobs: Callable[[], Sequence[JobStatus]]
    job_stuck_seconds: int
    interval_seconds: ClassVar = 30.0

    def look(self) -> None:
        """Add the alerts that are due. What cannot be read is logged, and read again by the next call."""
        for read in (self._read_ledger, self._read_expiries, self._read_jobs):
            try:
                if found := read():
                    self.ledger.transact(partial(self._add, alerts=found), at_micros=self._now())
            except PvdmError as error:
                log_warning("not_watched", what=read.__name__.removeprefix("_read_"), code=error.reason)

    def _now(self) -> int:
        return self.clock.now_micros()

    def _add(self, unit: Unit, alerts: Sequence[_Alert]) -> None:
        for each in alerts:
            facts = {} if each.workload_id is None else describe_workload_facts(unit, each.workload_id)
            self.notices.add_alert(unit, each.kind, each.key, {**facts, **each.facts})

    def _read_ledger(self) -> list[_Alert]:
        now = self._now()
        with self.ledger.read() as unit:
            passed = deadlines.list_passed(unit, since_micros=now - _LOOK_BACK_MICROS, now_micros=now)
            used = proofs.list_used_overrides(unit, since_micros=now - _LOOK_BACK_MICROS)
        late = [
            _Alert(
                AlertKind.DEADLINE_PASSED,
                f"{each.workload_id} {each.deadline_micros}",
                {"deadline": iso_time(each.deadline_micros)},
                each.workload_id,
            )
            for each in passed
        ]
        overridden = [
            _Alert(
                AlertKind.BREAK_GLASS_USED,
                each.override_id,
                {"override_id": each.override_id, "proof_id": each.fail_proof_id, "operator": each.operator},
                workload_id,
            )
            for each, workload_id in used
        ]
        return [*late, *overridden]

    def _read_expiries(self) -> list[_Alert]:
        found, now = [], self._now()
        for what, expires in self.expiries.micros().items():
            marks = _MARKS_OF_KINDS.get(what, _MARKS_SECONDS)
            passed = [mark for mark in marks if expires - now <= mark * _MICROS]
            if passed:
                facts: AlertFacts = {"what": what, "expires": iso_time(expires), "expired": expires <= now}
                found.append(_Alert(AlertKind.EXPIRING, f"{what} {expires} {min(passed)}", facts))
        return found

    def _read_jobs(self) -> list[_Alert]:
        day = self._now() // (_DAY_SECONDS * _MICROS)
        stuck = [
            each
            for each in self.list_jobs()
            if each.state is JobState.FAILED or each.age_seconds >= self.job_stuck_seconds
        ]
        found = []
        for each in stuck:
            facts: AlertFacts = {
                **describe_work(self.ledger, each.subject),
                "job": each.kind.value,
                "job_state": each.state.value,
                "age_seconds": int(each.age_seconds),
                "reason": None if each.error is None else each.error.reason,
            }
            found.append(_Alert(AlertKind.JOB_STUCK, f"{each.kind} {each.subject} {each.state} {day}", facts))
        return found


@dataclass(frozen=True, slots=True)
class _Alert:
    kind: AlertKind
    key: str  # two alerts of a kind with the same key are one
    facts: AlertFacts
    workload_id: str | None = None
