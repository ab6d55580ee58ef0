"""The way of a chunk, joined: workloads are opened, staged data verified, published and cleaned up by the jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pvdm.catalog.catalog import Catalog
from pvdm.lake.stores.seal import Seals
from pvdm.lake.stores.stores import Stores
from pvdm.lake.vault import Vault
from pvdm.ledger import Ledger
from pvdm.ledger.clock import LedgerClock
from pvdm.steward.access import OWN
from pvdm.steward.cleanup.disposal import Disposal
from pvdm.steward.cleanup.leftovers import Leftovers
from pvdm.steward.cleanup.orphan_search import OrphanSearch
from pvdm.steward.cleanup.vault_sweep import VaultSweep
from pvdm.steward.config.steward import StewardConfig
from pvdm.steward.pipeline.break_glass import Waiving
from pvdm.steward.pipeline.jobs import Jobs, Tasks
from pvdm.steward.pipeline.proposals import Proposals
from pvdm.steward.pipeline.publishing import Ground, Publishing
from pvdm.steward.pipeline.spark import SparkDesk
from pvdm.steward.pipeline.verification import Verification
from pvdm.steward.pipeline.witness import Witness
from pvdm.steward.record.log import LogDesk
from pvdm.steward.record.proofs import Proofs
from pvdm.steward.record.recorder import Recorder
from pvdm.steward.record.roots import TrustRoots
from pvdm.steward.work.notify import Changes
from pvdm.steward.work.opening import Queue, Workloads
from pvdm.steward.work.requests import Work
from pvdm.steward.work.sources import Sources
from pvdm.trust.keys.handles import Handles
from pvdm.trust.keys.service import KeyService
from pvdm.verify.fetch import Files
from pvdm.verify.job import Tools


@dataclass(frozen=True, slots=True)
class Joined:
    """What the way of a chunk is joined to."""

    config: StewardConfig
    ledger: Ledger
    clock: LedgerClock
    keys: KeyService
    handles: Handles
    recorder: Recorder
    log: LogDesk
    trust: TrustRoots
    proofs: Proofs
    catalog: Callable[[], Catalog]
    stores: Stores
    spark: SparkDesk | None = None


@dataclass(frozen=True, slots=True)
class Path:
    """The desks that a chunk passes; without a catalog there is nothing to verify, and the jobs have nothing to do."""

    sources: Sources
    workloads: Workloads
    work: Work
    jobs: Jobs
    changes: Changes
    leftovers: Leftovers
    waiving: Waiving
    sweep: VaultSweep | None


def open_path(to: Joined) -> Path:
    """The desks over one ledger and catalog."""
    files, changes, soon = Files(to.stores), Changes(), _Soon()
    sources = Sources(to.ledger, to.catalog, files)
    vault = None if to.config.catalog is None else Vault(to.config.catalog.vault, to.stores)
    desks = None if vault is None else open_desks(to, vault, sources, files, soon)
    jobs = Jobs(to.ledger, to.clock, _tasks(desks, to.catalog), changed=changes.changed)
    soon.dispose = jobs.dispose
    queue = Queue(jobs.hurry, jobs.dispose, changes.changed)
    workloads = Workloads(
        to.ledger,
        to.clock,
        to.catalog,
        sources,
        queue,
        epoch=lambda: to.keys.epoch_for(None),
        files=files,
        extracts=None if to.spark is None else to.spark.extraction,
        seals=open_seals(to),
    )
    work = Work(to.ledger, to.clock, job_of=jobs.of_attempt, given_up=queue.given_up, vault=vault)
    return Path(
        sources,
        workloads,
        work,
        jobs,
        changes,
        Leftovers(to.catalog, None if desks is None else _orphans(to, desks.disposal, files)),
        _waiving(to, vault, workloads, work, files),
        None if vault is None else VaultSweep(to.ledger, to.clock, to.catalog, vault, files),
    )


def _orphans(to: Joined, disposal: Disposal, files: Files) -> OrphanSearch:
    return OrphanSearch(to.ledger, to.catalog, files, disposal)


def _waiving(to: Joined, vault: Vault | None, workloads: Workloads, work: Work, files: Files) -> Waiving:
    def give_up(attempt_id: str, reason: str) -> None:
        work.abort(OWN, attempt_id, reason)

    return Waiving(to.ledger, to.clock, to.catalog, workloads, vault, files, give_up)


class _Soon:
    """Cleaning up after an attempt is a job of its own; the jobs are there by the time that somebody asks."""

    def __init__(self) -> None:
        self.dispose: Callable[[str], None] = lambda _: None

    def __call__(self, attempt_id: str) -> None:
        self.dispose(attempt_id)


@dataclass(frozen=True, slots=True)
class Desks:
    """The desks that the jobs work for."""

    disposal: Disposal
    verification: Verification
    publishing: Publishing


def open_desks(to: Joined, vault: Vault, sources: Sources, files: Files, dispose: Callable[[str], object]) -> Desks:
    """The desks themselves; `dispose` cleans up after an attempt that has ended, now or soon."""
    disposal = Disposal(to.ledger, to.clock, to.catalog, vault, files, to.recorder.require_consistent)
    seals = open_seals(to)
    tools = Tools(
        files,
        to.handles,
        to.keys,
        vault,
        large=None if to.spark is None else to.spark.reader,
        extraction=None if to.spark is None else to.spark.extraction,
    )
    verification = Verification(to.ledger, to.clock, to.catalog, sources, to.proofs, vault, tools, dispose, seals)
    witness = Witness(to.ledger, to.keys, to.recorder, notary=to.config.notary)
    ground = Ground(to.ledger, to.clock, to.catalog, to.trust, to.log, vault, files, to.config.origin, dispose, seals)
    publishing = Publishing(ground, Proposals(to.ledger, vault, sources, witness), witness)
    return Desks(disposal, verification, publishing)


def open_seals(to: Joined) -> Seals:
    """Seals of one ledger's Stewards: a bucket's policy has one writer at a time."""

    def alone(bucket: str, work: Callable[[], None]) -> None:
        with to.ledger.hold_lock(f"policy of bucket {bucket}"):
            work()

    return Seals(to.stores, to.config.vending, alone)


def _tasks(desks: Desks | None, catalog: Callable[[], Catalog]) -> Tasks:
    if desks is None:

        def nothing(*_: object) -> None:
            catalog()  # says that there is none

        return Tasks(nothing, nothing, nothing, lambda: None)

    def settle() -> None:
        desks.publishing.settle()
        desks.disposal.settle()
        desks.publishing.require_settled()

    return Tasks(desks.verification.verify, desks.publishing.publish, desks.disposal.dispose, settle)
