"""Builds the services that a chunk passes through: they open workloads, and their jobs verify, publish and clean up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from pvdm.catalog.catalog import Catalog
from pvdm.lake.stores.seal import Seals
from pvdm.lake.stores.stores import Stores
from pvdm.lake.vault import Vault
from pvdm.ledger import Ledger
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.work.plannings import UnfinishedPlan
from pvdm.steward.access import STEWARD_GRANT
from pvdm.steward.cleanup.disposal import Disposal
from pvdm.steward.cleanup.orphan_search import OrphanRequests, OrphanSearch
from pvdm.steward.cleanup.vault import VaultSweep
from pvdm.steward.config.steward import StewardConfig
from pvdm.steward.pipeline.break_glass import OverrideStaging
from pvdm.steward.pipeline.jobs import Changes, Jobs, Tasks
from pvdm.steward.pipeline.proposals import Proposals, StatementSigner
from pvdm.steward.pipeline.publishing import Publishing
from pvdm.steward.pipeline.spark import SparkVerifier
from pvdm.steward.pipeline.verification import Verification
from pvdm.steward.record.log import LogQueries
from pvdm.steward.record.proofs import Proofs
from pvdm.steward.record.recorder import Recorder
from pvdm.steward.record.roots import TrustRoots
from pvdm.steward.work.leases import Leases
from pvdm.steward.work.notices import Notices
from pvdm.steward.work.opening import Queue, Workloads
from pvdm.steward.work.planning import Planner
from pvdm.steward.work.queries import WorkQueries
from pvdm.steward.work.sources import Sources
from pvdm.steward.work.stale import StaleStaging
from pvdm.trust.keys.handles import Handles
from pvdm.trust.keys.service import KeyService
from pvdm.verify.fetch import Files
from pvdm.verify.job import Tools


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineParts:
    """The parts of a Steward that its pipeline is built from."""

    config: StewardConfig
    ledger: Ledger
    clock: LedgerClock
    keys: KeyService
    handles: Handles
    recorder: Recorder
    log: LogQueries
    trust: TrustRoots
    proofs: Proofs
    catalog: Catalog
    stores: Stores
    notices: Notices
    spark: SparkVerifier | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline(PipelineParts):
    """The parts of a Steward, and the services that a chunk passes through."""

    sources: Sources
    workloads: Workloads
    leases: Leases
    work: WorkQueries
    jobs: Jobs
    changes: Changes
    orphans: OrphanRequests
    override_staging: OverrideStaging
    vault_sweep: VaultSweep


def fields_of(parts: PipelineParts) -> dict[str, Any]:
    """The values of all fields by name, as arguments for the constructor of a subclass."""
    return {field.name: getattr(parts, field.name) for field in fields(parts)}


def build_pipeline(parts: PipelineParts) -> Pipeline:
    """Build the services that a chunk passes through, over one ledger and catalog."""
    files, changes = Files(parts.stores), Changes()
    sources = Sources(parts.ledger, parts.catalog, files)
    vault = Vault(parts.config.catalog.vault, parts.stores)

    def dispose(attempt_id: str) -> None:
        jobs.dispose(attempt_id)  # `jobs` is built below, before any service calls `dispose`

    def begin_plan(wanted: UnfinishedPlan) -> None:
        jobs.plan(wanted)

    services = build_job_services(parts, vault, sources, files, dispose)

    def settle() -> None:
        services.publishing.settle()
        services.disposal.settle()
        services.publishing.require_settled()

    planner = Planner(
        parts.ledger,
        parts.clock,
        sources,
        files,
        epoch=lambda: parts.keys.epoch_for(None),  # the active epoch
        begin=begin_plan,
    )
    verify, publish = services.verification.verify, services.publishing.publish

    def end_stale() -> None:
        stale.roll_back()  # `stale` is built below, since it queues jobs

    tasks = Tasks(verify, publish, services.disposal.dispose, settle, planner.run, end_stale)
    jobs = Jobs(parts.ledger, parts.clock, tasks, changed=changes.notify)
    queue = Queue(jobs.hurry, jobs.dispose, changes.notify)
    stale = StaleStaging(parts.ledger, parts.clock, parts.notices, queue.clean_up_after)
    workloads = Workloads(
        parts.ledger,
        parts.clock,
        parts.catalog,
        sources,
        queue,
        planner=planner,
        files=files,
        spark_extraction=None if parts.spark is None else parts.spark.extraction,
        seals=build_seals(parts),
    )
    work = WorkQueries(
        parts.ledger, parts.clock, vault, job_of=jobs.find_job, on_abort=queue.clean_up_after, notices=parts.notices
    )
    give_up = partial(work.abort, STEWARD_GRANT)
    orphans = OrphanSearch(parts.ledger, parts.catalog, files, services.disposal)
    return Pipeline(
        **fields_of(parts),
        sources=sources,
        workloads=workloads,
        leases=Leases(parts.ledger, parts.clock, parts.notices),
        work=work,
        jobs=jobs,
        changes=changes,
        orphans=OrphanRequests(parts.catalog, orphans),
        override_staging=OverrideStaging(parts.ledger, parts.clock, parts.catalog, workloads, vault, files, give_up),
        vault_sweep=VaultSweep(parts.ledger, parts.clock, parts.catalog, vault, files),
    )


@dataclass(frozen=True, slots=True)
class JobServices:
    """The services that the Steward's jobs call."""

    disposal: Disposal
    verification: Verification
    publishing: Publishing


def build_job_services(
    parts: PipelineParts, vault: Vault, sources: Sources, files: Files, dispose: Callable[[str], object]
) -> JobServices:
    """Build the services that the jobs call; `dispose` cleans up after an ended attempt, now or later."""
    ledger, clock, catalog, origin = parts.ledger, parts.clock, parts.catalog, parts.config.origin
    disposal = Disposal(ledger, clock, catalog, vault, files, parts.recorder.require_consistent)
    seals = build_seals(parts)
    tools = Tools(files, parts.handles, parts.keys, vault)
    if parts.spark is not None:
        tools = replace(tools, large=parts.spark.reader, extraction=parts.spark.extraction)
    verification = Verification(
        ledger, clock, catalog, sources, parts.proofs, vault, tools, dispose, seals, parts.notices
    )
    signer = StatementSigner(ledger, parts.keys, parts.recorder, notary=parts.config.notary)
    proposals = Proposals(ledger, vault, sources, signer)
    publishing = Publishing(
        ledger,
        clock,
        catalog,
        parts.trust,
        parts.log,
        vault,
        files,
        origin,
        dispose,
        proposals,
        signer,
        seals,
        parts.notices,
    )
    return JobServices(disposal, verification, publishing)


def build_seals(parts: PipelineParts) -> Seals:
    """Build the seals of staged files (storage `sealed`); one Steward at a time changes a bucket's policy."""

    def run_locked(bucket: str, work: Callable[[], None]) -> None:
        with parts.ledger.hold_lock(f"policy of bucket {bucket}"):
            work()

    return Seals(parts.stores, parts.config.vending, run_locked)
