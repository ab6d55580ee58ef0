"""Adds alerts about passed deadlines, expiries, stuck jobs and used overrides, which it finds by polling."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final

from pvdm.api.work import JobState
from pvdm.errors import PvdmError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import outbox, proofs
from pvdm.ledger.record.outbox import Channel, event_id_of
from pvdm.ledger.work import deadlines
from pvdm.model.fields import MICROS_PER_SECOND
from pvdm.model.printable import iso_time
from pvdm.steward.logs import log_failure, log_warning
from pvdm.steward.record.expiries import Expiries
from pvdm.steward.work.notices import AlertFacts, AlertKind, Notices, describe_known_facts
from pvdm.steward.work.opened import describe_work
from pvdm.steward.work.queries import JobKind, JobStatus

_DAY_SECONDS: Final = 86_400
# How far back the ledger is searched: a Steward that was down for longer does not report what happened before.
_LOOK_BACK_MICROS: Final = 30 * _DAY_SECONDS * MICROS_PER_SECOND
# How many alerts are added in one transaction: other writers wait for it.
_ADDED_AT_ONCE: Final = 50
# An expiry is reported when this much time is left, and again at each later mark.
_MARKS_SECONDS: Final = (30 * _DAY_SECONDS, 7 * _DAY_SECONDS, _DAY_SECONDS, 0)
# Operators' tokens and certificates are valid for a shorter time. `token` is never reported: jobs' last for hours.
_MARKS_OF_KINDS: Final = {"last_operator_token": _MARKS_SECONDS[1:], "tls_certificate": _MARKS_SECONDS[1:], "token": ()}


@dataclass(frozen=True, slots=True)
class Watch:
    """Adds one alert for each occurrence. May run in every Steward of a ledger."""

    ledger: Ledger
    clock: LedgerClock
    notices: Notices
    expiries: Expiries
    list_jobs: Callable[[], Sequence[JobStatus]]
    job_stuck_seconds: int
    interval_seconds: ClassVar = 30.0

    def look(self) -> None:
        """Add the alerts that are due. A failed read is logged, and the next call reads again.

        The next call also tries again to add an alert for which the outbox had no place.
        """
        full: set[tuple[AlertKind, str]] = set()
        for read in (self._read_overrides, self._read_expiries, self._read_jobs, self._read_deadlines):
            what = read.__name__.removeprefix("_read_")
            try:
                for page in read():
                    self._add_new(page, full)
            except PvdmError as error:
                log_warning("not_watched", what=what, code=error.reason)
            except Exception as error:  # a bug in one function does not stop the others
                log_failure("not_watched", error, what=what)

    def _now(self) -> int:
        return self.clock.now_micros()

    def _add_new(self, alerts: Sequence[_Alert], full: set[tuple[AlertKind, str]]) -> None:
        """Add the alerts that are not stored yet, in short transactions, except those whose place is in `full`.

        Puts places for which the outbox refuses an alert into `full`, so that a full outbox costs one transaction.
        """
        with self.ledger.read() as unit:
            stored = outbox.find_stored(unit, [each.event_id for each in alerts])
        new = [each for each in alerts if each.event_id not in stored]
        for start in range(0, len(new), _ADDED_AT_ONCE):
            page = [each for each in new[start : start + _ADDED_AT_ONCE] if each.place not in full]
            if page:
                with self.ledger.read() as unit:
                    described = [_describe(unit, each) for each in page]
                full |= self.ledger.transact(partial(self._add, alerts=described), at_micros=self._now())

    def _add(self, unit: Unit, alerts: Sequence[_Alert]) -> set[tuple[AlertKind, str]]:
        """Add the alerts. Returns the kinds and domains for which the outbox has no place left."""
        full: set[tuple[AlertKind, str]] = set()
        for each in alerts:
            if each.place not in full and not self.notices.add_alert(unit, each.kind, each.key, each.facts):
                full.add(each.place)
        return full

    def _read_deadlines(self) -> Iterator[list[_Alert]]:
        now = self._now()
        after = (now - _LOOK_BACK_MICROS, "")
        while True:
            with self.ledger.read() as unit:
                passed = deadlines.page_passed(unit, after=after, now_micros=now)
            yield [
                _Alert(
                    AlertKind.DEADLINE_PASSED,
                    f"{each.workload_id} {each.deadline_micros}",
                    {"deadline": iso_time(each.deadline_micros), "domain": each.domain},
                    each.workload_id,
                )
                for each in passed
            ]
            if len(passed) < deadlines.PASSED_PAGE_MAX_ROWS:
                break
            after = (passed[-1].deadline_micros, passed[-1].workload_id)

    def _read_overrides(self) -> Iterator[list[_Alert]]:
        with self.ledger.read() as unit:
            used = proofs.list_used_overrides(unit, since_micros=self._now() - _LOOK_BACK_MICROS)
        yield [
            _Alert(
                AlertKind.BREAK_GLASS_USED,
                each.override_id,
                {"override_id": each.override_id, "proof_id": each.fail_proof_id, "operator": each.operator},
                workload_id,
            )
            for each, workload_id in used
        ]

    def _read_expiries(self) -> Iterator[list[_Alert]]:
        found, now = [], self._now()
        for what, expires in self.expiries.micros().items():
            marks = _MARKS_OF_KINDS.get(what, _MARKS_SECONDS)
            passed = [mark for mark in marks if expires - now <= mark * MICROS_PER_SECOND]
            if passed:
                facts: AlertFacts = {"what": what, "expires": iso_time(expires), "expired": expires <= now}
                found.append(_Alert(AlertKind.EXPIRING, f"{what} {expires} {min(passed)}", facts))
        yield found

    def _read_jobs(self) -> Iterator[list[_Alert]]:
        day = self._now() // (_DAY_SECONDS * MICROS_PER_SECOND)
        stuck = [
            each
            for each in self.list_jobs()
            if each.state is JobState.FAILED or each.age_seconds >= self.job_stuck_seconds
        ]
        found = []
        for each in stuck:
            work = describe_work(self.ledger, each.subject, is_plan=each.kind is JobKind.PLAN)
            facts: AlertFacts = {
                **work,
                "job": each.kind.value,
                "job_state": each.state.value,
                "age_seconds": int(each.age_seconds),
                "reason": None if each.error is None else each.error.reason,
            }
            workload_id = None if work["workload_id"] is None else str(work["workload_id"])
            # The key has no other state: a job that is tried again changes between waiting, queued and running.
            key = f"{each.kind} {each.subject} {each.state is JobState.FAILED} {day}"
            found.append(_Alert(AlertKind.JOB_STUCK, key, facts, workload_id))
        yield found


@dataclass(frozen=True, slots=True)
class _Alert:
    kind: AlertKind
    key: str  # alerts of one kind with the same key are stored once
    facts: AlertFacts
    workload_id: str | None = None

    @property
    def event_id(self) -> str:
        return event_id_of(Channel.ALERTS, self.kind, self.key)

    @property
    def place(self) -> tuple[AlertKind, str]:
        """Kind and domain. The outbox has a limited number of places for each kind, which the domains share."""
        return self.kind, str(self.facts.get("domain") or "")


def _describe(unit: Unit, alert: _Alert) -> _Alert:
    """The alert with the facts of its workload."""
    if alert.workload_id is None:
        return alert
    return replace(alert, facts={**describe_known_facts(unit, alert.workload_id), **alert.facts})
