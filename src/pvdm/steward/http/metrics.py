"""Prometheus metrics of one service: what the door counts, and what the ledger says when it is asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from sqlalchemy import func, select

from pvdm.errors import PvdmError
from pvdm.ledger.schema.work import overrides, proofs
from pvdm.steward.http.errors import status_of
from pvdm.steward.http.request import Asked
from pvdm.steward.http.watched_facts import expiry_facts, job_facts, room_facts, vault_facts, waiting_facts
from pvdm.steward.notary import Notary

_MICROS: Final = 1_000_000
_LIMIT_STATUSES: Final = frozenset({408, 413, 429})
_LIMIT_CODES: Final = frozenset({"service_busy"})
_WATCHED: Final = (expiry_facts, room_facts, vault_facts, waiting_facts, job_facts)
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """The registry of one app; nothing is shared with other apps of the process."""

    def __init__(self, notary: Notary) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "pvdm_steward_requests",
            "Requests by route template and status; status 0: the caller was gone",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "pvdm_steward_request_seconds",
            "How long requests took, waiting included",
            ["route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.in_flight = Gauge("pvdm_steward_in_flight", "Requests under way", registry=self.registry)
        self._refused = Counter(
            "pvdm_steward_refused", "Requests that a limit refused, by code", ["code"], registry=self.registry
        )
        self.registry.register(_LedgerFacts(notary))

    def ended(self, asked: Asked, status: int | None) -> None:
        """Count a request; methods that no route has are counted as one, so that callers cannot make new series."""
        method = asked.method if asked.rule is not None else "(other)"
        self._requests.labels(method, asked.route, str(status or 0)).inc()
        self._seconds.labels(asked.route).observe(time.monotonic() - asked.started)

    def refused(self, error: PvdmError) -> None:
        """Count a refusal, if a limit made it."""
        if status_of(error) in _LIMIT_STATUSES or error.code in _LIMIT_CODES:
            self._refused.labels(error.code).inc()

    def exposed(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)


class _LedgerFacts(Collector):
    """Read when Prometheus asks, so that every Steward of one ledger tells the same."""

    def __init__(self, notary: Notary) -> None:
        self._notary = notary

    def describe(self) -> Iterator[Metric]:
        """Nothing is read when the collector is registered."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """What the ledger, log, clock and epoch book say; what cannot be read is left out, never made up."""
        yield from self._of_clock()
        readable = 1
        for read in (self._counted, self._of_log, self._of_epochs, *self._watched()):
            try:
                yield from list(read())
            except PvdmError:
                readable = 0
        yield _gauge("facts_readable", "Whether ledger, log, epoch book and certificate could be read", readable)

    def _watched(self) -> list[Callable[[], Iterator[Metric]]]:
        return [partial(read, self._notary) for read in _WATCHED]

    def _of_clock(self) -> Iterator[Metric]:
        clock = self._notary.clock
        away = 0 if clock.absence is None else clock.absence.to_micros - clock.absence.from_micros
        yield _gauge("clock_ready", "Whether the time can be told", int(clock.is_ready()))
        yield _gauge("clock_absence_seconds", "A rest before the start that no second clock bears out", away // _MICROS)
        behind = clock.lead_micros() // _MICROS
        yield _gauge("clock_lead_seconds", "How far the host's clock is behind the Steward's time", behind)

    def _counted(self) -> Iterator[Metric]:
        with self._notary.ledger.read() as unit:
            wanted = select(proofs.c.verdict, func.count().label("proofs")).group_by(proofs.c.verdict)
            verdicts: dict[str, int] = {row["verdict"]: row["proofs"] for row in unit.rows(wanted)}
            waived: int = unit.execute(select(func.count()).select_from(overrides)).scalar_one()
        by_verdict = CounterMetricFamily("pvdm_steward_proofs", "Proofs in the ledger by verdict", labels=["verdict"])
        for verdict in ("PASS", "FAIL"):
            by_verdict.add_metric([verdict], verdicts.get(verdict, 0))
        yield by_verdict
        broken = CounterMetricFamily("pvdm_steward_break_glass_overrides", "Break-glass overrides in the ledger")
        broken.add_metric([], waived)
        yield broken

    def _of_log(self) -> Iterator[Metric]:
        yield _gauge("log_size", "Entries of the transparency log", self._notary.log.size())
        outside = self._notary.outside.load()
        if outside is not None:
            size = outside.checkpoint.size
            yield _gauge("outside_checkpoint_size", "Entries that the outside checkpoint covers", size)

    def _of_epochs(self) -> Iterator[Metric]:
        active = self._notary.epochs.book().active
        if active is not None:
            yield _gauge("active_epoch", "The number of the active epoch", active.number)


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"pvdm_steward_{name}", help_text, value=value)
