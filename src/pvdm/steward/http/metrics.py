"""Prometheus metrics of one service: what the door counts, and what is read for each scrape."""

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

from pvdm.api.work import JobState
from pvdm.errors import Code, PvdmError
from pvdm.lake.vault import VaultKind
from pvdm.ledger.schema.record import overrides, proofs
from pvdm.ledger.work import attempts
from pvdm.steward.cleanup.storage_usage import local_folders, measure_disk_space
from pvdm.steward.http.errors import status_of
from pvdm.steward.http.request import RequestContext
from pvdm.steward.notary import Notary

_MICROS: Final = 1_000_000
_LIMIT_STATUSES: Final = frozenset({408, 413, 429})
_LIMIT_CODES: Final = frozenset({Code.SERVICE_BUSY})
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

    def ended(self, context: RequestContext, status: int | None) -> None:
        """Count a request; methods that no route has are counted as one, so that callers cannot make new series."""
        method = context.method if context.rule is not None else "(other)"
        self._requests.labels(method, context.route, str(status or 0)).inc()
        self._seconds.labels(context.route).observe(time.monotonic() - context.started)

    def refused(self, error: PvdmError) -> None:
        """Count a refusal, if a limit made it."""
        if status_of(error) in _LIMIT_STATUSES or error.code in _LIMIT_CODES:
            self._refused.labels(error.code).inc()

    def exposed(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)


class _LedgerFacts(Collector):
    """Read at each scrape, so that every Steward of one ledger gives the same values."""

    def __init__(self, notary: Notary) -> None:
        self._notary = notary

    def describe(self) -> Iterator[Metric]:
        """Nothing is read when the collector is registered."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """What the ledger, log, clock and epoch book say; what cannot be read is left out."""
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


def expiry_facts(notary: Notary) -> Iterator[Metric]:
    """Seconds until the nearest expiry of each kind; raises PvdmError where one cannot be read."""
    found = GaugeMetricFamily(
        "pvdm_steward_expiry_seconds", "Seconds until the first of a kind expires; negative after it", labels=["kind"]
    )
    for kind, seconds in sorted(notary.expiries.seconds().items()):
        found.add_metric([kind], seconds)
    yield found


def room_facts(notary: Notary) -> Iterator[Metric]:
    """Free and all bytes of the file system of each folder on this machine."""
    free = GaugeMetricFamily("pvdm_steward_folder_free_bytes", "Free bytes where the folder lies", labels=["folder"])
    size = GaugeMetricFamily("pvdm_steward_folder_size_bytes", "All bytes where the folder lies", labels=["folder"])
    for name, room in measure_disk_space(local_folders(notary.config, notary.ledger.file)).items():
        free.add_metric([name], room.free_bytes)
        size.add_metric([name], room.size_bytes)
    yield from (free, size)


def vault_facts(notary: Notary) -> Iterator[Metric]:
    """The last count of the vault, with its age; nothing before the first."""
    last = notary.usage.last()
    if last is None:
        return
    files = GaugeMetricFamily("pvdm_steward_vault_files", "Files in the vault at the last count", labels=["kind"])
    size = GaugeMetricFamily("pvdm_steward_vault_bytes", "Bytes in the vault at the last count", labels=["kind"])
    for kind in VaultKind:
        files.add_metric([kind.value], last.files.get(kind, 0))
        size.add_metric([kind.value], last.size_bytes.get(kind, 0))
    yield from (files, size)
    now = time.time()
    if last.oldest_seconds is not None:
        yield _gauge("quarantine_oldest_seconds", "Age of the oldest file in quarantine", now - last.oldest_seconds)
    yield _gauge("vault_counted_seconds", "Seconds since the last count of the vault", now - last.counted)
    yield _gauge("vault_counted_whole", "Whether that count saw every file", int(last.whole))


def waiting_facts(notary: Notary) -> Iterator[Metric]:
    """Attempts that have not ended, by state, and how long the oldest has been in that state; from the ledger."""
    with notary.ledger.read() as unit:
        waiting = attempts.count_live(unit)
    count = GaugeMetricFamily("pvdm_steward_attempts", "Attempts that have not ended", labels=["state"])
    oldest = GaugeMetricFamily(
        "pvdm_steward_attempt_oldest_seconds", "How long the oldest attempt has been in its state", labels=["state"]
    )
    now = notary.clock.trusted_micros()
    for state, (number, since_micros) in waiting.items():
        count.add_metric([state.value], number)
        if since_micros is not None:
            oldest.add_metric([state.value], max(0.0, (now - since_micros) / 1e6))
    yield from (count, oldest)


def job_facts(notary: Notary) -> Iterator[Metric]:
    """This Steward's own jobs: a failed job is one that an operator must look at."""
    listed = notary.jobs.listed()
    count = GaugeMetricFamily("pvdm_steward_jobs", "Jobs of this Steward that are not done", labels=["state"])
    oldest = GaugeMetricFamily(
        "pvdm_steward_job_oldest_seconds", "How long ago the oldest job was asked for", labels=["state"]
    )
    for state in JobState:
        ages = [job.age_seconds for job in listed if job.state is state]
        count.add_metric([state.value], len(ages))
        if ages:
            oldest.add_metric([state.value], max(ages))
    yield from (count, oldest)


_WATCHED: Final = (expiry_facts, room_facts, vault_facts, waiting_facts, job_facts)


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"pvdm_steward_{name}", help_text, value=value)
