"""What an operator watches beside the door: expiries, room, the vault, and how long work has waited."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from pvdm.api.work import JobState
from pvdm.lake.vault import VaultKind
from pvdm.ledger.work import attempts
from pvdm.steward.cleanup.disk_space import local_folders, measure_room
from pvdm.steward.notary import Notary


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
    for name, room in measure_room(local_folders(notary.config, notary.ledger.file)).items():
        free.add_metric([name], room.free_bytes)
        size.add_metric([name], room.size_bytes)
    yield from (free, size)


def vault_facts(notary: Notary) -> Iterator[Metric]:
    """The last count of the vault, with its age; nothing before the first."""
    last = None if notary.usage is None else notary.usage.last()
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
        waiting = attempts.waiting(unit)
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


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"pvdm_steward_{name}", help_text, value=value)
