"""Prometheus metrics of one service: those that the middleware counts, and those read at each scrape."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from sqlalchemy import func, select

from pvdm.api.work import JobState
from pvdm.errors import Code, PvdmError
from pvdm.lake.vault import VaultKind
from pvdm.ledger.record import outbox
from pvdm.ledger.schema.record import overrides
from pvdm.model.fields import MICROS_PER_SECOND
from pvdm.steward.cleanup.vault import local_folders
from pvdm.steward.http.errors import status_of
from pvdm.steward.http.request import RequestContext
from pvdm.steward.http.work_metrics import WorkMetrics
from pvdm.steward.notary import Notary

_LIMIT_STATUSES: Final = frozenset({408, 413, 429})
_LIMIT_CODES: Final = frozenset({Code.SERVICE_BUSY})
_BUCKET_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """The registry of one app; nothing is shared with other apps of the process."""

    def __init__(self, notary: Notary) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "pvdm_steward_requests",
            "Requests by route template and status; status 0: the caller disconnected",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "pvdm_steward_request_seconds",
            "How long requests took, waiting included",
            ["route"],
            buckets=_BUCKET_SECONDS,
            registry=self.registry,
        )
        self.in_flight = Gauge("pvdm_steward_in_flight", "Requests under way", registry=self.registry)
        self._refused = Counter(
            "pvdm_steward_refused", "Requests that a limit refused, by code", ["code"], registry=self.registry
        )
        self.registry.register(_ScrapedFacts(notary))

    def count_request(self, context: RequestContext, status: int | None) -> None:
        """Count a request at its end. Without a route its method is "(other)": callers cannot create new series."""
        method = context.method if context.rule is not None else "(other)"
        self._requests.labels(method, context.route, str(status or 0)).inc()
        self._seconds.labels(context.route).observe(time.monotonic() - context.started)

    def count_refusal(self, error: PvdmError) -> None:
        """Count an error if a limit caused it."""
        if status_of(error) in _LIMIT_STATUSES or error.code in _LIMIT_CODES:
            self._refused.labels(error.reason).inc()

    def render(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)


class _ScrapedFacts(Collector):
    """Values that are read at each scrape; those from the ledger are the same in every Steward of one ledger."""

    def __init__(self, notary: Notary) -> None:
        self._notary = notary
        self._work = WorkMetrics()

    def describe(self) -> Iterator[Metric]:
        """No metrics. Without this method the registry would call `collect` when the collector is registered."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """All values. A reader that fails yields none of its values."""
        yield from self._clock_facts()
        readable = 1
        for read in (*_READERS, self._work.collect):
            try:
                yield from list(read(self._notary))
            except PvdmError:
                readable = 0
        yield _gauge("facts_readable", "Whether ledger, log, epoch book and certificate could be read", readable)

    def _clock_facts(self) -> Iterator[Metric]:
        clock = self._notary.clock
        absence = 0 if clock.absence is None else clock.absence.to_micros - clock.absence.from_micros
        yield _gauge("clock_ready", "Whether the clock is ready", int(clock.is_ready()))
        absence_help = "Time that the Steward was off and that no second clock confirms"
        yield _gauge("clock_absence_seconds", absence_help, absence // MICROS_PER_SECOND)
        behind = clock.lead_micros() // MICROS_PER_SECOND
        yield _gauge("clock_lead_seconds", "How far the host's clock is behind the Steward's time", behind)


def _override_facts(notary: Notary) -> Iterator[Metric]:
    with notary.ledger.read() as unit:
        count: int = unit.execute(select(func.count()).select_from(overrides)).scalar_one()
    help_text = "Break-glass overrides in the ledger"
    yield CounterMetricFamily("pvdm_steward_break_glass_overrides", help_text, value=count)


def _log_facts(notary: Notary) -> Iterator[Metric]:
    yield _gauge("log_size", "Entries of the transparency log", notary.log.size())
    outside = notary.outside.load()
    if outside is not None:
        yield _gauge("outside_checkpoint_size", "Entries that the outside checkpoint covers", outside.checkpoint.size)


def _epoch_facts(notary: Notary) -> Iterator[Metric]:
    active = notary.epochs.book().active
    if active is not None:
        yield _gauge("active_epoch", "The number of the active epoch", active.number)


def expiry_facts(notary: Notary) -> Iterator[Metric]:
    """Seconds until the nearest expiry of each kind, such as certificate or trust root; raises if one is unreadable."""
    seconds = dict(sorted(notary.expiries.seconds().items()))
    yield _gauges("expiry_seconds", "Seconds until the first of a kind expires; negative after it", "kind", seconds)


def folder_facts(notary: Notary) -> Iterator[Metric]:
    """Free and total bytes of the file system of each local folder."""
    free: dict[str, float] = {}
    size: dict[str, float] = {}
    for name, folder in local_folders(notary.config, notary.ledger.file).items():
        with contextlib.suppress(OSError):  # readiness reports a missing folder
            usage = shutil.disk_usage(folder)
            free[name], size[name] = usage.free, usage.total
    yield _gauges("folder_free_bytes", "Free bytes where the folder lies", "folder", free)
    yield _gauges("folder_size_bytes", "Total bytes where the folder lies", "folder", size)


def vault_facts(notary: Notary) -> Iterator[Metric]:
    """The last count of the vault's files, with its age; nothing before the first count."""
    last = notary.usage.last
    if last is None:
        return
    files = {kind.value: last.files.get(kind, 0) for kind in VaultKind}
    size = {kind.value: last.size_bytes.get(kind, 0) for kind in VaultKind}
    yield _gauges("vault_files", "Files in the vault at the last count", "kind", files)
    yield _gauges("vault_bytes", "Bytes in the vault at the last count", "kind", size)
    now = time.time()
    if last.oldest_modified_at is not None:
        yield _gauge("quarantine_oldest_seconds", "Age of the oldest file in quarantine", now - last.oldest_modified_at)
    yield _gauge("vault_counted_seconds", "Seconds since the last count of the vault", now - last.counted_at)
    yield _gauge("vault_counted_whole", "Whether that count saw every file", int(last.whole))


def outbox_facts(notary: Notary) -> Iterator[Metric]:
    """Events that are not delivered, for each configured channel: how many there are, and the age of the oldest."""
    with notary.ledger.read() as unit:
        pending = {channel.value: outbox.find_pending(unit, channel) for channel in notary.deliveries}
    now = notary.clock.trusted_micros()
    count = {channel: 0 if each is None else each.count for channel, each in pending.items()}
    ages = {
        channel: 0.0 if each is None else max(0.0, (now - each.since_micros) / MICROS_PER_SECOND)
        for channel, each in pending.items()
    }
    yield _gauges("outbox_pending", "Events that are not delivered", "channel", count)
    yield _gauges("outbox_oldest_seconds", "Age of the oldest event that is not delivered", "channel", ages)


def job_facts(notary: Notary) -> Iterator[Metric]:
    """This Steward's own jobs, by state. An operator must look at a failed job."""
    listed = notary.jobs.list_jobs()
    ages = {state.value: [job.age_seconds for job in listed if job.state is state] for state in JobState}
    oldest = {state: max(seconds) for state, seconds in ages.items() if seconds}
    count = {state: len(seconds) for state, seconds in ages.items()}
    yield _gauges("jobs", "Jobs of this Steward that are not done", "state", count)
    yield _gauges("job_oldest_seconds", "Age of the oldest job", "state", oldest)


_STATEMENT_READERS: Final = (_override_facts, _log_facts, _epoch_facts)
_READERS: Final = (*_STATEMENT_READERS, expiry_facts, folder_facts, vault_facts, outbox_facts, job_facts)


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"pvdm_steward_{name}", help_text, value=value)


def _gauges(name: str, help_text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"pvdm_steward_{name}", help_text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
