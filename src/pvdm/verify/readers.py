"""Readers of a job's files: what each file needs to be read, what comes of it, and the reader that uses threads.

Orders are free of keys, and the same for every reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from pvdm.digest import Digester, Keys, Plan, combine_each, kernel_engine
from pvdm.digest.parquet import splice
from pvdm.digest.sharing import share
from pvdm.errors import Code, InputError, VerificationError
from pvdm.lake.format.manifest.entry import DataFile, ManifestEntry
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.deletes import ScanFile
from pvdm.model.chunk import ChunkDefinition
from pvdm.model.contract import BoundContract
from pvdm.model.statements.core import AddedFile
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.fetch import Fetched, Files, HashedFile, fetch_source
from pvdm.verify.findings import Finding, Partials
from pvdm.verify.intent import Intent, IntentDigest
from pvdm.verify.observed import FileObservation, observe
from pvdm.verify.source import PinnedSource, source_readable


@dataclass(frozen=True, slots=True)
class StagedOrder:
    """One staged file: its position in the attempt, its manifest entry, and its frozen bytes."""

    position: int
    entry: ManifestEntry
    frozen: HashedFile

    @property
    def path(self) -> str:
        """The path that the producer gave it."""
        return self.entry.data_file.file_path

    @property
    def size(self) -> int:
        """Bytes to fetch."""
        return self.frozen.size


@dataclass(frozen=True, slots=True)
class SourceOrder:
    """One file of the source, and everything frozen that must be fetched for it: itself and its delete files."""

    file: ScanFile
    frozen: tuple[HashedFile, ...]

    @property
    def size(self) -> int:
        """Bytes to fetch."""
        return sum(each.size for each in self.frozen)


@dataclass(frozen=True, slots=True)
class JobInputs:
    """What all files of a job are verified with.

    `rewrites`: the Steward publishes its own files, which it makes of the staged ones.
    """

    plan: Plan
    metadata: TableMetadata
    bound: BoundContract
    chunk: ChunkDefinition
    source: PinnedSource
    rewrites: bool = False

    def intent(self) -> Intent:
        """The rows that the chunk should publish."""
        return Intent(self.bound, self.source, self.chunk, self.plan)

    def intent_digest(self, keys: Keys) -> IntentDigest:
        """The digests of the intended rows; raises where the source cannot be read as the contract means it."""
        with source_readable():
            return IntentDigest(self.intent(), self.plan, keys)


@dataclass(frozen=True, slots=True)
class Work:
    """All files that are read for one verdict; `keep` writes a file to the place that it is published from."""

    inputs: JobInputs
    staged: tuple[StagedOrder, ...]
    source: tuple[SourceOrder, ...]
    keep: Callable[[StagedOrder, bytes], HashedFile] | None = None
    """None where the staged files themselves are published."""

    @property
    def orders(self) -> list[StagedOrder | SourceOrder]:
        """The orders of both sides; delete files count with their data files."""
        return [*self.staged, *self.source]


@dataclass(frozen=True, slots=True)
class JobKeys:
    """The digest keys of one job, and the handle by which its workers get the same keys."""

    job_id: str
    handle: str = field(repr=False)
    keys: Keys = field(repr=False)


@dataclass(frozen=True, slots=True)
class ReadFile:
    """One staged file: its fetched bytes and where they are published, and what is in them."""

    added: AddedFile
    observed: FileObservation


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both sides under one key; the staged side has a digest only if every file could be read to its end.

    `read` is in the order of the orders, with a finding for each file whose bytes have changed.
    """

    read: tuple[ReadFile | Finding, ...]
    staged: Partials | None
    intent: Partials
    found: tuple[Finding, ...] = ()
    extractor: str | None = None
    """The reader whose rows were digested, with its version; None for the kernel's."""


class Reader(Protocol):
    """Reads all files of a job; digests do not depend on the choice of the reader."""

    def redemptions(self, work: Work) -> int:
        """How often others than the Steward itself may redeem the handle."""

    def read(self, work: Work, held: JobKeys) -> Outcome:
        """Read every file once, compare it with its freeze, and digest it."""


def added_file(work: Work, order: StagedOrder, observed: FileObservation, staged: Callable[[], bytes]) -> AddedFile:
    """What the proof says of a file. Where the Steward makes the published file, it is made and kept here.

    `staged` returns the bytes that were observed. A file that was refused has none to publish.
    """
    frozen = order.frozen
    if work.keep is None or observed.data_file is None:
        return AddedFile.in_place(order.path, frozen.size, frozen.sha256, frozen.version)
    made = splice(observed.recipe or b"", staged())
    if len(made) != observed.data_file.file_size_in_bytes:
        raise VerificationError(
            Code.RECIPE_INVALID,
            "a recipe does not make the file of its entry",
            expected=f"{observed.data_file.file_size_in_bytes} bytes",
            got=f"{len(made)} bytes",
        )
    kept = work.keep(order, made)
    return AddedFile(order.path, frozen.size, frozen.sha256, kept.location, kept.size, kept.sha256, frozen.version)


def published_files(read: Iterable[ReadFile | Finding]) -> tuple[DataFile, ...] | None:
    """The entries to publish, in the order of their published paths; None unless every file could be read."""
    found = []
    for each in read:
        if isinstance(each, Finding) or each.observed.data_file is None:
            return None
        found.append(replace(each.observed.data_file, file_path=each.added.published_path))
    return tuple(sorted(found, key=lambda file: file.file_path))


def combine_all(plan: Plan, keys: Keys, seen: Iterable[Partials | None]) -> Partials:
    """The digest of all rows of these partials, as far as there are any; without any, the digest of no rows."""
    found = [each for each in seen if each is not None]
    return combine_each([Digester(plan, keys, engine=kernel_engine()).partials(), *found])


def observe_staged(
    inputs: JobInputs, order: StagedOrder, fetched: Fetched, keys: Keys
) -> tuple[FileObservation, Partials | None]:
    """Read a staged file with its own digester; a file that could not be read to its end has no digest."""
    digester = Digester(inputs.plan, keys, engine=kernel_engine())
    rewrites = inputs.rewrites
    observed = observe(digester, fetched, inputs.metadata, order.entry, rewrite=rewrites, footer_published=not rewrites)
    try:
        return observed, digester.partials()
    except InputError as error:
        if error.code != Code.DIGESTER_VOID:
            raise
        return observed, None


@dataclass(frozen=True, slots=True)
class Threads:
    """The reader of small chunks: threads of the Steward's process, each with one file at a time."""

    files: Files
    count: int = 2

    def redemptions(self, work: Work) -> int:
        """None: threads share the Steward's keys."""
        del work
        return 0

    def read(self, work: Work, held: JobKeys) -> Outcome:
        """Read both sides side by side; a free thread takes the next largest file."""
        seen = dict[int, tuple[ReadFile, Partials | None] | Finding]()
        intent = work.inputs.intent_digest(held.keys)
        fetch = fetch_source(self.files, (each for order in work.source for each in order.frozen))

        def worker() -> Callable[[StagedOrder | SourceOrder], None]:
            add = intent.worker(fetch)

            def read_order(order: StagedOrder | SourceOrder) -> None:
                if isinstance(order, StagedOrder):
                    seen[order.position] = self._read_staged(work, order, held.keys)
                    return
                with source_readable():
                    add(order.file)

            return read_order

        orders = sorted(work.orders, key=lambda order: order.size, reverse=True)
        share(orders, [worker() for _ in range(max(1, min(self.count, len(orders))))])
        found = [seen[order.position] for order in work.staged]
        read = tuple(each if isinstance(each, Finding) else each[0] for each in found)
        whole = [each[1] for each in found if not isinstance(each, Finding) and each[1] is not None]
        staged = combine_all(work.inputs.plan, held.keys, whole) if len(whole) == len(found) else None
        return Outcome(read, staged, intent.partials())

    def _read_staged(self, work: Work, order: StagedOrder, keys: Keys) -> tuple[ReadFile, Partials | None] | Finding:
        """Fetch one file once: the hashed bytes are decoded, and the published file is made of them."""
        try:
            fetched = self.files.fetch_frozen(order.frozen)
        except VerificationError as error:
            return Finding.of(FailureClass.PHYSICAL, error, order.path)
        observed, partials = observe_staged(work.inputs, order, fetched, keys)
        added = added_file(work, order, observed, lambda: fetched.data)
        return ReadFile(added, observed), partials
