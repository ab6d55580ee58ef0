"""Creates or opens the Steward of one process: ledger, clock, keys, log and outside checkpoint, and its services."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from pvdm.catalog.catalog import Catalog, StewardPlaces, open_catalog
from pvdm.digest.digester import kernel_engine
from pvdm.errors import Code, PvdmError, UnavailableError
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.health import FolderHealth, StoreHealth
from pvdm.lake.stores.store import translate_errors
from pvdm.lake.stores.stores import ConfiguredPath, Stores, location_of
from pvdm.lake.vault import Vault
from pvdm.ledger import Ledger, ledger_file, open_ledger
from pvdm.ledger.catalog import tables
from pvdm.ledger.clock import LedgerClock, boot_id, database_micros, monotonic_micros, wall_micros
from pvdm.ledger.migrations import is_migrated, migrate
from pvdm.ledger.record import outbox, receipts, restores
from pvdm.ledger.record.outbox import Channel
from pvdm.ledger.work import leases
from pvdm.model.statements.epoch import EpochStage
from pvdm.steward.access import Access
from pvdm.steward.claim_releases import ClaimReleases
from pvdm.steward.cleanup.quarantine import QuarantineFiles, QuarantineRetention
from pvdm.steward.cleanup.vault import VaultUsage
from pvdm.steward.config.ledger_agreement import require_shared_settings, require_table_folders, store_shared_settings
from pvdm.steward.config.resources import archive_folder, open_keys, open_mounts, outside_file
from pvdm.steward.config.steward import FileKeys, StewardConfig
from pvdm.steward.delivery.alerts import open_alert_sender
from pvdm.steward.delivery.delivery import Delivery, Send
from pvdm.steward.delivery.lineage import LineageWatch
from pvdm.steward.delivery.watch import Watch
from pvdm.steward.migrations import Migrations
from pvdm.steward.pipeline.assemble import Pipeline, PipelineParts, build_pipeline, fields_of
from pvdm.steward.pipeline.spark import SparkVerifier
from pvdm.steward.protections import Approvals, Protections
from pvdm.steward.record.attestations import Attestations
from pvdm.steward.record.audit import Audits
from pvdm.steward.record.epochs import Epochs, LedgerEpochs, LedgerHandles
from pvdm.steward.record.expiries import Expiries
from pvdm.steward.record.log import Archive, LedgerLogReader, LogQueries
from pvdm.steward.record.overrides import Overrides
from pvdm.steward.record.proofs import Proofs
from pvdm.steward.record.recorder import Recorder
from pvdm.steward.record.roots import TrustRoots
from pvdm.steward.work.notices import Notices
from pvdm.trust.keys.epochs import EpochBook, KeyRole
from pvdm.trust.keys.handles import Handles
from pvdm.trust.keys.service import KeyService
from pvdm.trust.log.checkpoint import read_unverified
from pvdm.trust.log.note import NoteKey
from pvdm.trust.log.outside import FileOutsideCheckpoint
from pvdm.trust.root import require_root_current
from pvdm.verify.fetch import Files
from pvdm.verify.spark.access import StoreAccess

Clock = Callable[[], int]  # returns a time in microseconds
_DELIVERY_STOP_SECONDS: Final = 5.0
_DAY_SECONDS: Final = 86_400
_MAY_SERVE_SECONDS: Final = 180  # a Steward whose mark is older (it stores one each minute) does not count as serving


@dataclass(frozen=True, slots=True, kw_only=True)
class Notary(Pipeline):
    """The services of one Steward; each may be used from several threads."""

    outside: FileOutsideCheckpoint
    epochs: Epochs
    overrides: Overrides
    attestations: Attestations
    access: Access
    quarantine: QuarantineFiles
    quarantine_retention: QuarantineRetention
    protections: Protections
    migrations: Migrations
    claim_releases: ClaimReleases
    audits: Audits
    expiries: Expiries
    folders: FolderHealth
    usage: VaultUsage
    watches: Sequence[Watch | LineageWatch] = ()
    deliveries: Mapping[Channel, Delivery] = field(default_factory=dict)
    buckets: StoreHealth | None = None

    def readiness(self) -> tuple[PvdmError, ...]:
        """The errors that keep the Steward from its work now; empty when it is ready."""
        bucket_checks = [] if self.buckets is None else [self.buckets.require]
        checks: list[Callable[[], object]] = [
            self.clock.now_micros,
            lambda: require_root_current(self.trust.current(), self.clock.trusted_micros()),
            lambda: self.trust.require_trusted(self.keys.epoch_for(None)),  # the active epoch
            self.recorder.require_consistent,
            *bucket_checks,
            self.folders.require,
            kernel_engine,  # raises without the Rust kernel, which is needed to read staged files
        ]
        errors: dict[str, PvdmError] = {}
        for check in checks:
            try:
                check()
            except PvdmError as error:
                errors.setdefault(error.reason, error)
        return tuple(errors.values())

    def archive_in(self, folder: Path) -> Archive:
        """The archive of this log in this folder, which may be another folder than the configured one."""
        return Archive(self.ledger, folder)

    def mark_time(self, *, serving: bool = False) -> None:
        """Store the time in the ledger; after a restart the clock starts no earlier than this."""
        self.ledger.transact(partial(self.clock.mark, serving=serving), at_micros=self.clock.now_micros())

    def tidy(self) -> None:
        """Delete stored responses and events, old files (metadata, manifests, quarantine), and files that crashes left.

        Raises if the log contradicts the outside checkpoint: by an old copy of the ledger, newer files look unneeded.
        """
        self.recorder.require_consistent()
        if self.clock.is_ready():  # not after a jump, until an operator confirms the time
            self.catalog.requests.forget_old(self.clock.now_micros())
            self.catalog.unnamed_sweep.sweep()
            self.catalog.retention.sweep()
            if self.deliveries:
                self.ledger.transact(outbox.forget_old, at_micros=self.clock.now_micros())
            self.vault_sweep.sweep()
            self.quarantine_retention.sweep()

    def start_work(self) -> None:
        """Extend leases by the time in which no Steward served. Start the threads that run jobs and deliver events."""
        if self.clock.is_ready():
            # Only one process serves an SQLite ledger. With PostgreSQL, a recent mark means that another may serve.
            recent_micros = 0 if self.ledger.file is not None else _MAY_SERVE_SECONDS * 1_000_000
            extend = partial(leases.extend, recent_micros=recent_micros)
            self.ledger.transact(extend, at_micros=self.clock.now_micros())
            self.mark_time(serving=True)
        self.jobs.start()
        for delivery in self.deliveries.values():
            delivery.start()

    def stop_work(self) -> None:
        """Stop the threads of jobs and deliveries. Unfinished work continues after the next start."""
        self.jobs.stop()
        for delivery in self.deliveries.values():
            delivery.stop(_DELIVERY_STOP_SECONDS)

    def close(self) -> None:
        """Wait for running work, store the time, then release keys and database."""
        self.stop_work()
        if self.spark is not None:
            self.spark.close()
        with contextlib.suppress(PvdmError):
            self.mark_time()
        self.catalog.upstreams.close()
        self.keys.close()
        self.ledger.close()


def open_notary(config: StewardConfig, *, wall: Clock = wall_micros, monotonic: Clock = monotonic_micros) -> Notary:
    """Open an existing Steward. Raises if its ledger does not fit its outside checkpoint, settings and folders."""
    with contextlib.ExitStack() as undo:
        notary = assemble_notary(config, undo, wall=wall, monotonic=monotonic)
        with notary.ledger.read() as unit:
            restores.require_none_unfinished(unit)  # an interrupted restore must be finished first
        require_table_folders(notary.ledger, config.catalog)
        are_stored = require_shared_settings(notary.ledger, config)
        notary.recorder.check_at_start()
        if not are_stored:
            store_shared_settings(notary.ledger, config, at_micros=notary.clock.trusted_micros())
        # A Steward whose clock jumped starts too, so that an operator can log in and confirm the time.
        if notary.clock.is_ready():
            notary.epochs.log_missing("logged at start, after an interruption")
            notary.mark_time()
        undo.pop_all()
        return notary


def assemble_notary(config: StewardConfig, undo: contextlib.ExitStack, *, wall: Clock, monotonic: Clock) -> Notary:
    """Open the parts of an existing Steward, without the checks of `open_notary`; `undo` closes ledger and keys."""
    ledger, clock = _open_ledger(config, undo, wall, monotonic)
    keys = open_keys(config.keys, LedgerEpochs(ledger, clock))
    undo.callback(keys.close)
    _require_created(keys.book())
    return _build(config, ledger, clock, keys)


def create_notary(
    config: StewardConfig, *, reason: str, wall: Clock = wall_micros, monotonic: Clock = monotonic_micros
) -> Notary:
    """Create a Steward: keys, first epoch, first log entries, outside checkpoint. Existing parts are kept."""
    with contextlib.ExitStack() as undo:
        # A lost keystore is not replaced: with new keys, the Steward would be another notary of the same name.
        keystore = config.keys.path if isinstance(config.keys, FileKeys) else None
        keystore_is_missing = keystore is not None and not keystore.exists()
        if keystore_is_missing and outside_file(config).exists():
            got = f"none, beside a checkpoint in {outside_file(config)}"
            raise Code.KEYSTORE_LOST(expected=f"the keystore {keystore}", got=got)
        ledger, clock = _open_ledger(config, undo, wall, monotonic)
        with ledger.read() as unit:
            restores.require_none_unfinished(unit)
        require_shared_settings(ledger, config, creating=True)
        if keystore_is_missing and (size := LedgerLogReader(ledger).size()):
            got = f"none, beside a ledger whose log has {size} entries"
            raise Code.KEYSTORE_LOST(expected=f"the keystore {keystore}", got=got)
        keys = _open_or_create_keys(config, LedgerEpochs(ledger, clock))
        undo.callback(keys.close)
        if not keys.book().epochs:
            keys.create_epoch(reason)
        first, *others = keys.book().epochs
        if first.state is EpochStage.CREATED and not others:
            keys.activate_epoch(first.number, reason)
        _require_created(keys.book())
        notary = _build(config, ledger, clock, keys)
        notary.recorder.check_at_start()
        notary.epochs.log_missing(reason)
        # Stored last: if anything above raises, another configuration can still be used.
        store_shared_settings(ledger, config, at_micros=clock.trusted_micros(), creating=True)
        undo.pop_all()
        return notary


def log_keys(book: EpochBook, origin: str) -> Iterable[NoteKey]:
    """The public log keys of all epochs, in any state, since old checkpoints stay signed by old keys."""
    for epoch in book.epochs:
        public = epoch.key(KeyRole.LOG).public
        if public is not None:
            yield NoteKey(origin, public.der)


def known_log_keys(ledger: Ledger, book: EpochBook, origin: str) -> list[NoteKey]:
    """The log keys of all epochs, and those that operators named in restores of this log."""
    with ledger.read() as unit:
        restored = restores.list_log_keys(unit)
    named = (NoteKey(origin, der) for der, note in restored if read_unverified(note).checkpoint.origin == origin)
    return [*log_keys(book, origin), *named]


def _open_ledger(
    config: StewardConfig, undo: contextlib.ExitStack, wall: Clock, monotonic: Clock
) -> tuple[Ledger, LedgerClock]:
    file = ledger_file(config.ledger_url)
    if file is not None and _is_missing(file):
        _require_no_checkpoint(config, f"the ledger {file}")  # before the file is created
    ledger = open_ledger(config.ledger_url)
    undo.callback(ledger.close)
    if not is_migrated(ledger):
        _require_no_checkpoint(config, "a ledger in the database", unless=partial(is_migrated, ledger))
    migrate(ledger, at_micros=wall())  # the schema of the database
    if wall is not wall_micros:  # boot id and database time say nothing about a clock that the caller provides
        return ledger, LedgerClock(ledger, wall=wall, monotonic=monotonic)
    return ledger, LedgerClock(ledger, monotonic=monotonic, boot=boot_id(), server_time_micros=database_micros(ledger))


def _is_missing(file: Path) -> bool:
    """Whether there is no such file. Opening the file reports any other error."""
    try:
        file.stat()
    except FileNotFoundError:
        return True
    except OSError:
        pass
    return False


def _require_no_checkpoint(config: StewardConfig, expected: str, *, unless: Callable[[], bool] = lambda: False) -> None:
    """Raise if the outside checkpoint exists: a ledger is created before it, so the ledger is lost or misnamed.

    Does not raise if `unless` then returns True, since another Steward may have created the ledger meanwhile.
    """
    outside = outside_file(config)
    with translate_errors("outside_checkpoint_unavailable", "the outside checkpoint"):
        try:
            outside.read_bytes()
        except FileNotFoundError:
            if isinstance(outside, Path) and not outside.parent.is_dir():
                raise OSError(None, f"{outside.parent} is not there") from None
            return
    if not unless():
        got = f"none, beside a checkpoint in {outside}"
        raise Code.LEDGER_UNAVAILABLE(reason="ledger_lost", expected=expected, got=got)


def _open_or_create_keys(config: StewardConfig, book: LedgerEpochs) -> KeyService:
    try:
        return open_keys(config.keys, book)
    except UnavailableError as error:
        if error.code != Code.KEY_FILE_MISSING:
            raise
    return open_keys(config.keys, book, create=True)


def _build(config: StewardConfig, ledger: Ledger, clock: LedgerClock, keys: KeyService) -> Notary:
    outside = FileOutsideCheckpoint(
        outside_file(config), origin=config.origin, keys=lambda: known_log_keys(ledger, keys.book(), config.origin)
    )
    folder = archive_folder(config)
    archive = None if folder is None else Archive(ledger, folder)
    recorder = Recorder(ledger, clock, keys, outside, archive, origin=config.origin)
    log = LogQueries(ledger, recorder.require_covered)
    trust = TrustRoots(
        ledger, clock, keys, recorder, notary=config.notary, origin=config.origin, pin=config.trust_root_sha256
    )
    stores = Stores(config.s3, parse_location(config.catalog.warehouse))
    catalog = _open_catalog(config, ledger, clock, stores)
    access = Access(ledger, clock)
    spark = None
    if config.spark is not None:
        spark = SparkVerifier(config.spark, access, Files(stores), StoreAccess(config.s3, config.vending))
    spark_extraction = None if spark is None else spark.extraction
    parts = PipelineParts(
        config=config,
        ledger=ledger,
        clock=clock,
        keys=keys,
        handles=Handles(keys, LedgerHandles(ledger, clock)),
        recorder=recorder,
        log=log,
        trust=trust,
        proofs=Proofs(ledger, clock, keys, recorder, log, notary=config.notary, isolation=config.isolation),
        catalog=catalog,
        stores=stores,
        notices=Notices(config.notary, alerts=config.alerts is not None, lineage=config.lineage is not None),
        spark=spark,
    )
    pipeline = build_pipeline(parts)
    vault = Vault(config.catalog.vault, stores)
    quarantine = QuarantineFiles(ledger, clock, catalog, vault)
    approvals = Approvals(ledger, clock, recorder, trust, catalog, pipeline.sources, spark_extraction)
    expiries = Expiries(ledger, clock, trust, keys.book, config.service.tls_certificate)
    watches, deliveries = _open_deliveries(pipeline, expiries)
    return Notary(
        **fields_of(pipeline),
        outside=outside,
        epochs=Epochs(ledger, clock, keys, recorder, trust, notary=config.notary),
        overrides=Overrides(ledger, clock, recorder, trust, catalog),
        attestations=Attestations(ledger, clock, keys, recorder, trust),
        access=access,
        quarantine=quarantine,
        quarantine_retention=QuarantineRetention(quarantine, config.retention.quarantine_days),
        protections=Protections(approvals, Files(stores)),
        migrations=Migrations(approvals),
        claim_releases=ClaimReleases(approvals),
        audits=Audits(
            ledger,
            clock,
            recorder.require_covered,
            catalog,
            config.catalog.vault,
            stores,
            on_report=parts.notices.add_audit_finding,
        ),
        expiries=expiries,
        buckets=_bucket_health(config),
        folders=_folder_health(config, ledger),
        usage=VaultUsage(vault),
        watches=watches,
        deliveries=deliveries,
    )


def _open_deliveries(
    pipeline: Pipeline, expiries: Expiries
) -> tuple[Sequence[Watch | LineageWatch], Mapping[Channel, Delivery]]:
    """Make the watches that find events, and the deliveries that send them, for the configured channels."""
    config, ledger, clock = pipeline.config, pipeline.ledger, pipeline.clock
    watches: list[Watch | LineageWatch] = []
    senders: dict[Channel, Send] = {}
    if config.alerts is not None:
        stuck_seconds = config.alerts.job_stuck_seconds
        watches.append(Watch(ledger, clock, pipeline.notices, expiries, pipeline.jobs.list_jobs, stuck_seconds))
        senders[Channel.ALERTS] = open_alert_sender(config.alerts)
    if config.lineage is not None:
        try:
            from pvdm.steward.delivery.openlineage import open_lineage_sender
        except ImportError as error:
            raise Code.DEPENDENCY_MISSING(reason="lineage_not_installed", got=str(error.name)) from None
        watches.append(LineageWatch(ledger, clock))
        names = {"steward": config.notary, "catalog": config.catalog.name}
        senders[Channel.LINEAGE] = open_lineage_sender(config.lineage, ledger, **names)
    return watches, {channel: Delivery(ledger, clock, channel, send) for channel, send in senders.items()}


def _open_catalog(config: StewardConfig, ledger: Ledger, clock: LedgerClock, stores: Stores) -> Catalog:
    catalog = config.catalog
    # No table may lie where the Steward keeps its other files.
    reserved: list[ConfiguredPath | None] = [config.outside_store_location or config.outside_path, ledger.file]
    reserved.append(config.archive_store_location or config.archive)
    reserved.append(config.keys.path if isinstance(config.keys, FileKeys) else None)
    other_places = tuple(each for each in reserved if each is not None)
    return open_catalog(
        ledger,
        clock,
        name=catalog.name,
        warehouse=catalog.warehouse,
        steward_places=StewardPlaces(catalog.metadata, catalog.vault, other_places),
        stores=stores,
        vending=config.vending,
        mounts=open_mounts(catalog.upstreams, config.s3),
        metadata_kept_seconds=config.retention.metadata_days * _DAY_SECONDS,
    )


def _bucket_health(config: StewardConfig) -> StoreHealth | None:
    """The health check of the buckets that the configuration names; None without an object store."""
    if config.s3 is None:
        return None
    catalog = config.catalog
    log_places = (config.outside_store_location, config.archive_store_location)
    places = (parse_location(catalog.warehouse), catalog.metadata, catalog.vault, *log_places)
    locations = [each for each in places if isinstance(each, Location)]
    return StoreHealth(config.s3, [each.authority for each in locations if each.scheme == "s3"])


def _folder_health(config: StewardConfig, ledger: Ledger) -> FolderHealth:
    """The check of the local folders of outside checkpoint, ledger, warehouse, metadata and vault."""

    def has_tables() -> bool:
        with ledger.read() as unit:
            return bool(tables.list_live(unit))

    def has_published() -> bool:
        with ledger.read() as unit:
            return receipts.any_exist(unit)

    # Each folder, and whether it must exist. Other checks find a missing outside checkpoint or ledger.
    folders: list[tuple[ConfiguredPath | None, Callable[[], bool]]] = [
        (None if config.outside_store_location is not None else config.outside_path.parent, lambda: False),
        (None if ledger.file is None else ledger.file.parent, lambda: False),
    ]
    only_read: set[Path] = set()
    warehouse = parse_location(config.catalog.warehouse)
    if warehouse.scheme == "file":
        folders.append((warehouse, has_published))  # engines create the warehouse with their first file
        only_read.add(warehouse.local)
    folders += [(config.catalog.metadata, has_tables), (config.catalog.vault, has_published)]
    places = [(location_of(place), must_exist) for place, must_exist in folders if place is not None]
    return FolderHealth({place.local: must_exist for place, must_exist in places if place.scheme == "file"}, only_read)


def _require_created(book: EpochBook) -> None:
    if not any(epoch.can_sign for epoch in book.epochs):
        raise Code.STEWARD_NOT_CREATED(got="none")
