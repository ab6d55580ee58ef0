"""The Steward in one process: ledger, clock, keys, log and outside checkpoint joined, with a desk for each task."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pvdm.catalog.catalog import Catalog, StewardPlaces, open_catalog
from pvdm.digest.digester import kernel_engine
from pvdm.errors import PvdmError, UnavailableError
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.health import Answering
from pvdm.lake.stores.stores import Place, Stores, place_of
from pvdm.lake.stores.writable import Writable
from pvdm.lake.vault import Vault
from pvdm.ledger import Ledger, open_ledger
from pvdm.ledger.catalog import tables
from pvdm.ledger.clock import LedgerClock, boot_id, database_micros, monotonic_micros, wall_micros
from pvdm.ledger.migrations import migrate
from pvdm.ledger.record import receipts, restores
from pvdm.model.statements.epoch import EpochStage
from pvdm.steward.access import Access
from pvdm.steward.approval.migrations import Migrations
from pvdm.steward.approval.protections import Protections
from pvdm.steward.cleanup.leftovers import Leftovers
from pvdm.steward.cleanup.quarantine import QuarantineDesk
from pvdm.steward.cleanup.vault_sweep import VaultSweep
from pvdm.steward.cleanup.vault_usage import VaultUsage
from pvdm.steward.config.common_settings import keep_common, require_common
from pvdm.steward.config.key_homes import open_keys
from pvdm.steward.config.log_locations import archive_folder, outside_file
from pvdm.steward.config.mounts import open_mounts
from pvdm.steward.config.placement import require_in_place
from pvdm.steward.config.steward import FileKeys, StewardConfig
from pvdm.steward.pipeline.assemble import Joined, open_path
from pvdm.steward.pipeline.break_glass import Waiving
from pvdm.steward.pipeline.jobs import Jobs
from pvdm.steward.pipeline.spark import SparkDesk
from pvdm.steward.record.archive import Archive, Archived, Mended
from pvdm.steward.record.attestations import Attestations
from pvdm.steward.record.audit import AuditDesk
from pvdm.steward.record.epochs import Epochs
from pvdm.steward.record.expiries import Expiries
from pvdm.steward.record.ledger_keys import LedgerEpochs, LedgerHandles
from pvdm.steward.record.log import LogDesk
from pvdm.steward.record.log_reader import LedgerLogReader
from pvdm.steward.record.overrides import Overrides
from pvdm.steward.record.proofs import Proofs
from pvdm.steward.record.recorder import Recorder
from pvdm.steward.record.roots import TrustRoots
from pvdm.steward.work.notify import Changes
from pvdm.steward.work.opening import Workloads
from pvdm.steward.work.requests import Work
from pvdm.trust.keys.epochs import EpochBook, KeyRole
from pvdm.trust.keys.handles import Handles
from pvdm.trust.keys.service import KeyService
from pvdm.trust.log.checkpoint import read_unverified
from pvdm.trust.log.note import NoteKey
from pvdm.trust.log.outside import FileOutsideCheckpoint, OutsideCheckpoint
from pvdm.trust.succession import require_root_current
from pvdm.verify.fetch import Files
from pvdm.verify.spark.access import StoreAccess

Clock = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Notary:
    """The desks of one Steward; each may be used from several threads."""

    config: StewardConfig
    ledger: Ledger
    clock: LedgerClock
    keys: KeyService
    outside: OutsideCheckpoint
    recorder: Recorder
    log: LogDesk
    trust: TrustRoots
    epochs: Epochs
    proofs: Proofs
    overrides: Overrides
    waiving: Waiving
    attestations: Attestations
    access: Access
    work: Work
    workloads: Workloads
    jobs: Jobs
    changes: Changes
    leftovers: Leftovers
    quarantine: QuarantineDesk
    handles: Handles
    protections: Protections
    migrations: Migrations
    audits: AuditDesk
    expiries: Expiries
    served: Catalog | None = None
    swept: VaultSweep | None = None
    spark: SparkDesk | None = None
    answering: Answering | None = None
    writable: Writable | None = None
    usage: VaultUsage | None = None

    @property
    def catalog(self) -> Catalog:
        """The catalog's desks; a Steward that was told of no warehouse has none."""
        return _served(self.served)

    def readiness(self) -> tuple[PvdmError, ...]:
        """Everything that keeps the Steward from its work now; nothing when it is ready."""
        found: dict[str, PvdmError] = {}
        for check in (
            self.clock.now_micros,
            self._root_is_current,
            self._epoch_is_active,
            self.recorder.require_consistent,
            self._store_answers,
            self._folders_take_files,
            self._kernel_is_there,
        ):
            try:
                check()
            except PvdmError as error:
                found.setdefault(error.code, error)
        return tuple(found.values())

    def _store_answers(self) -> None:
        if self.answering is not None:
            self.answering.require()

    def _folders_take_files(self) -> None:
        if self.writable is not None:
            self.writable.require()

    def _kernel_is_there(self) -> None:
        """Only the kernel reads staged files; without a catalog there are none."""
        if self.served is not None:
            kernel_engine()

    def archive(self, folder: Path) -> Archived:
        """Write tiles and envelopes to this folder, up to the newest checkpoint."""
        return Archive(self.ledger, folder).follow()

    def verify_archive(self, folder: Path) -> Mended:
        """Hold the whole folder against the ledger, and write again what is missing."""
        return Archive(self.ledger, folder).verify()

    def mark_time(self) -> None:
        """Put the time into the ledger: after a restart it never runs below the last mark."""
        self.ledger.transact(self.clock.mark, at_micros=self.clock.now_micros())

    def tidy(self) -> None:
        """Forget answers that nobody may ask for again, and sweep away what crashes left.

        Nothing is swept where the checkpoint outside is another log's: a Steward that was forgotten when its ledger
        was restored elsewhere would remove what it does not know.
        """
        self.recorder.require_consistent()
        if self.served is not None and self.clock.is_ready():
            self.served.requests.forget_old(self.clock.now_micros())
            self.served.orphans.sweep()
            self.served.retention.sweep()
        if self.swept is not None and self.clock.is_ready():
            self.swept.sweep()

    def close(self) -> None:
        """Let the work under way end, leave a mark of the time, then let go of keys and database."""
        self.jobs.stop()
        if self.spark is not None:
            self.spark.close()
        with contextlib.suppress(PvdmError):
            self.mark_time()
        if self.served is not None:
            self.served.upstreams.close()
        self.keys.close()
        self.ledger.close()

    def _root_is_current(self) -> None:
        require_root_current(self.trust.current(), self.clock.trusted_micros())

    def _epoch_is_active(self) -> None:
        self.trust.require_trusted(self.keys.book().epoch(self.keys.epoch_for(None)))


def open_notary(config: StewardConfig, *, wall: Clock = wall_micros, monotonic: Clock = monotonic_micros) -> Notary:
    """The Steward that was created before; its log must go on from the checkpoint kept outside."""
    with contextlib.ExitStack() as undo:
        notary = join_notary(config, undo, wall=wall, monotonic=monotonic)
        _require_restored(notary.ledger)
        if config.catalog is not None:
            require_in_place(notary.ledger, config.catalog)
        kept = require_common(notary.ledger, config)
        notary.recorder.begin()
        if not kept:
            keep_common(notary.ledger, config, at_micros=notary.clock.trusted_micros())
        # With a clock that jumped while nobody watched it starts too: an operator must get in to confirm the time.
        if notary.clock.is_ready():
            notary.epochs.log_missing("logged at start, after an interruption")
            notary.mark_time()
        undo.pop_all()
        return notary


def join_notary(config: StewardConfig, undo: contextlib.ExitStack, *, wall: Clock, monotonic: Clock) -> Notary:
    """The parts of a Steward that was created before, not yet held against the outside checkpoint."""
    ledger, clock = _open_ledger(config, undo, wall, monotonic)
    keys = open_keys(config.keys, LedgerEpochs(ledger, clock))
    undo.callback(keys.close)
    _require_created(keys.book())
    return _joined(config, ledger, clock, keys)


def create_notary(
    config: StewardConfig, *, reason: str, wall: Clock = wall_micros, monotonic: Clock = monotonic_micros
) -> Notary:
    """A new Steward: key home, first epoch, first entries of the log, checkpoint outside. What is there is kept."""
    with contextlib.ExitStack() as undo:
        lost = isinstance(config.keys, FileKeys) and not config.keys.path.exists()
        if lost and outside_file(config).exists():
            raise _keystore_lost(config, f"none, beside a checkpoint in {outside_file(config)}")
        ledger, clock = _open_ledger(config, undo, wall, monotonic)
        _require_restored(ledger)
        require_common(ledger, config, making=True)
        if lost and (size := LedgerLogReader(ledger).size()):
            raise _keystore_lost(config, f"none, beside a ledger whose log has {size} entries")
        keys = _open_or_create_keys(config, LedgerEpochs(ledger, clock))
        undo.callback(keys.close)
        if not keys.book().epochs:
            keys.create_epoch(reason)
        first, *others = keys.book().epochs
        if first.state is EpochStage.CREATED and not others:
            keys.activate_epoch(first.number, reason)
        _require_created(keys.book())
        notary = _joined(config, ledger, clock, keys)
        notary.recorder.begin()
        notary.epochs.log_missing(reason)
        # Last: what was wrong in the configuration until here can still be mended in it.
        keep_common(ledger, config, at_micros=clock.trusted_micros(), making=True)
        undo.pop_all()
        return notary


def log_keys(book: EpochBook, origin: str) -> Iterable[NoteKey]:
    """Every log key there ever was, in whatever state: old notes keep their signatures."""
    for epoch in book.epochs:
        public = epoch.key(KeyRole.LOG).public
        if public is not None:
            yield NoteKey(origin, public.der)


def known_log_keys(ledger: Ledger, book: EpochBook, origin: str) -> list[NoteKey]:
    """The book's log keys, and those that operators named for this log when it was restored."""
    with ledger.read() as unit:
        named = restores.log_keys(unit)
    lost = (NoteKey(origin, der) for der, note in named if read_unverified(note).checkpoint.origin == origin)
    return [*log_keys(book, origin), *lost]


def _require_restored(ledger: Ledger) -> None:
    with ledger.read() as unit:
        restores.require_none(unit)


def _open_ledger(
    config: StewardConfig, undo: contextlib.ExitStack, wall: Clock, monotonic: Clock
) -> tuple[Ledger, LedgerClock]:
    ledger = open_ledger(config.ledger_url)
    undo.callback(ledger.close)
    migrate(ledger, at_micros=wall())
    if wall is not wall_micros:  # evidence of this host does not apply to the caller's own clock
        return ledger, LedgerClock(ledger, wall=wall, monotonic=monotonic)
    second = database_micros(ledger)
    return ledger, LedgerClock(ledger, monotonic=monotonic, boot=boot_id(), second_micros=second)


def _open_or_create_keys(config: StewardConfig, book: LedgerEpochs) -> KeyService:
    try:
        return open_keys(config.keys, book)
    except UnavailableError as error:
        if error.code != "key_file_missing":
            raise
    return open_keys(config.keys, book, create=True)


def _keystore_lost(config: StewardConfig, got: str) -> UnavailableError:
    """New keys would make another notary under the old name, which nobody trusts and which can read no old attempt."""
    return UnavailableError(
        "keystore_lost",
        "this Steward was made before, and its keystore is not there",
        expected=f"the keystore {config.keys.path}" if isinstance(config.keys, FileKeys) else "the keystore",
        got=got,
        hint="nothing was written; bring the keystore file back from its backup, or name its place under [keys]",
    )


def _joined(config: StewardConfig, ledger: Ledger, clock: LedgerClock, keys: KeyService) -> Notary:
    outside = FileOutsideCheckpoint(
        outside_file(config), origin=config.origin, keys=lambda: known_log_keys(ledger, keys.book(), config.origin)
    )
    kept = archive_folder(config)
    archive = None if kept is None else Archive(ledger, kept)
    recorder = Recorder(ledger, clock, keys, outside, archive, origin=config.origin)
    log = LogDesk(ledger, recorder.require_covered)
    trust = TrustRoots(
        ledger,
        clock,
        keys,
        recorder,
        notary=config.notary,
        origin=config.origin,
        pin=config.trust_root_sha256,
    )
    stores = Stores(config.s3)
    served = _catalog(config, ledger, clock, stores)
    proofs = Proofs(ledger, clock, keys, recorder, log, notary=config.notary, isolation=config.isolation)
    handles = Handles(keys, LedgerHandles(ledger, clock))
    access = Access(ledger, clock)
    spark = None
    if config.spark is not None:
        spark = SparkDesk(config.spark, access, Files(stores), StoreAccess(config.s3, config.vending))
    extracts = None if spark is None else spark.extraction
    path = open_path(
        Joined(
            config, ledger, clock, keys, handles, recorder, log, trust, proofs, lambda: _served(served), stores, spark
        )
    )
    vault_at = None if config.catalog is None else config.catalog.vault
    vault = None if vault_at is None else Vault(vault_at, stores)
    expiries = Expiries(ledger, clock, trust, keys.book, config.service.tls_certificate)
    return Notary(
        config=config,
        ledger=ledger,
        clock=clock,
        keys=keys,
        outside=outside,
        recorder=recorder,
        log=log,
        trust=trust,
        epochs=Epochs(ledger, clock, keys, recorder, trust, notary=config.notary),
        proofs=proofs,
        overrides=Overrides(ledger, clock, recorder, trust, served),
        waiving=path.waiving,
        attestations=Attestations(ledger, clock, keys, recorder, trust),
        access=access,
        work=path.work,
        workloads=path.workloads,
        jobs=path.jobs,
        changes=path.changes,
        leftovers=path.leftovers,
        quarantine=QuarantineDesk(ledger, clock, lambda: _served(served), vault),
        handles=handles,
        protections=Protections(
            ledger, clock, recorder, trust, lambda: _served(served), Files(stores), path.sources, extracts=extracts
        ),
        migrations=Migrations(ledger, clock, recorder, trust, lambda: _served(served), path.sources, extracts=extracts),
        audits=AuditDesk(ledger, recorder.require_covered, lambda: _served(served), vault_at, stores),
        expiries=expiries,
        served=served,
        swept=path.sweep,
        spark=spark,
        answering=_answering(config),
        writable=_writable(config, ledger),
        usage=None if vault is None else VaultUsage(vault),
    )


def _served(catalog: Catalog | None) -> Catalog:
    if catalog is None:
        raise UnavailableError(
            "catalog_not_configured",
            "this Steward serves no catalog",
            expected="[catalog] with a warehouse in steward.toml",
            got="none",
        )
    return catalog


def _catalog(config: StewardConfig, ledger: Ledger, clock: LedgerClock, stores: Stores) -> Catalog | None:
    found = config.catalog
    if found is None:
        return None
    return open_catalog(
        ledger,
        clock,
        name=found.name,
        warehouse=found.warehouse,
        homes=StewardPlaces(found.metadata, found.vault, tuple(_reserved(config, ledger))),
        stores=stores,
        vending=config.vending,
        mounts=open_mounts(found.upstreams, config.s3),
    )


def _reserved(config: StewardConfig, ledger: Ledger) -> list[Place]:
    """Where the Steward keeps what no table may lie among, besides the catalog's own folders."""
    found: list[Place | None] = [config.outside_at or config.outside_path, config.archive_at or config.archive]
    found += [config.keys.path if isinstance(config.keys, FileKeys) else None, ledger.file]
    return [each for each in found if each is not None]


def _answering(config: StewardConfig) -> Answering | None:
    """The buckets that the configuration names, asked when somebody wants to know how the Steward stands."""
    if config.s3 is None:
        return None
    found = config.catalog
    places = [] if found is None else [parse_location(found.warehouse), found.metadata, found.vault]
    named = (each for each in (*places, config.outside_at, config.archive_at) if isinstance(each, Location))
    return Answering(config.s3, [each.authority for each in named if each.scheme == "s3"])


def _writable(config: StewardConfig, ledger: Ledger) -> Writable:
    """The folders on this machine that the Steward writes to."""

    def has_tables() -> bool:
        with ledger.read() as unit:
            return bool(tables.list_live(unit))

    def has_published() -> bool:
        with ledger.read() as unit:
            return receipts.any_exist(unit)

    def found_missing_elsewhere() -> bool:
        return False

    used: list[tuple[Place | None, Callable[[], bool]]] = [
        (None if config.outside_at is not None else config.outside_path.parent, found_missing_elsewhere),
        (None if ledger.file is None else ledger.file.parent, found_missing_elsewhere),
    ]
    only_read: set[Path] = set()
    if config.catalog is not None:
        warehouse = parse_location(config.catalog.warehouse)
        if warehouse.scheme == "file":
            used.append((warehouse, has_published))  # engines make it with their first file
            only_read.add(warehouse.local)
        used += [(config.catalog.metadata, has_tables), (config.catalog.vault, has_published)]
    places = [(place_of(place), in_use) for place, in_use in used if place is not None]
    return Writable({place.local: in_use for place, in_use in places if place.scheme == "file"}, only_read)


def _require_created(book: EpochBook) -> None:
    if not any(epoch.can_sign for epoch in book.epochs):
        raise UnavailableError(
            "steward_not_created",
            "this Steward has no epoch whose keys can sign",
            expected="an ACTIVE or RETIRED epoch",
            got="none",
            hint="`pvdm steward init` makes the first one",
        )
