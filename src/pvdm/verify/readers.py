"""The readers of a verify job: its work items (files, without keys), the results, and the reader that uses threads."""

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
from pvdm.verify.fetch import Fetched, Files, HashedFile, source_fetcher
from pvdm.verify.findings import Finding, Partials
from pvdm.verify.intent import Intent, IntentDigest
from pvdm.verify.observed import FileObservation, observe
from pvdm.verify.source import PinnedSource, translate_read_errors


@dataclass(frozen=True, slots=True)
class StagedItem:
    """One staged file: its position in the attempt, its manifest entry, and the hash of its frozen bytes."""

    position: int
    entry: ManifestEntry
    frozen: HashedFile

    @property
    def path(self) -> str:
        """The staged path."""
        return self.entry.data_file.file_path

    @property
    def size(self) -> int:
        """The number of bytes to fetch."""
        return self.frozen.size


@dataclass(frozen=True, slots=True)
class SourceItem:
    """One data file of the source, and the frozen files to fetch for it: itself and its delete files."""

    file: ScanFile
    frozen_files: tuple[HashedFile, ...]

    @property
    def size(self) -> int:
        """The number of bytes to fetch."""
        return sum(each.size for each in self.frozen_files)


@dataclass(frozen=True, slots=True)
class JobInputs:
    """The inputs that all files of a job share. With `rewrites` the Steward publishes copies of the staged files."""

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
        """The digests of the intended rows. Raises if the source cannot be read as the contract describes it."""
        with translate_read_errors():
            return IntentDigest(self.intent(), self.plan, keys)


@dataclass(frozen=True, slots=True)
class Work:
    """All files that are read for one verdict. `store_copy` is None if no copies are published."""

    inputs: JobInputs
    staged: tuple[StagedItem, ...]
    source: tuple[SourceItem, ...]
    store_copy: Callable[[StagedItem, bytes], HashedFile] | None = None

    @property
    def items(self) -> list[StagedItem | SourceItem]:
        """The work items of both sides."""
        return [*self.staged, *self.source]


@dataclass(frozen=True, slots=True)
class JobKeys:
    """The digest keys of one job, and the handle (a random id) that its workers exchange for the same keys."""

    job_id: str
    handle: str = field(repr=False)
    keys: Keys = field(repr=False)


@dataclass(frozen=True, slots=True)
class ReadFile:
    """One staged file as the proof lists it, and what was observed in its bytes."""

    added: AddedFile
    observed: FileObservation


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The digests of intended and staged rows under one key. `staged` is None unless each file was read to its end.

    `read` has an item for each staged file: a finding if its bytes have changed. `findings` has further findings.
    `extractor` is Spark's reader with its version, or None if the kernel read the digested rows.
    """

    read: tuple[ReadFile | Finding, ...]
    staged: Partials | None
    intent: Partials
    findings: tuple[Finding, ...] = ()
    extractor: str | None = None


class Reader(Protocol):
    """Reads all files of a job. The digests do not depend on the reader."""

    def redemptions(self, work: Work) -> int:
        """How many workers may redeem the handle (exchange it for the digest keys), the Steward not counted."""

    def read(self, work: Work, job_keys: JobKeys) -> ReadResult:
        """Read every file once, compare it with its freeze, and digest it."""


def write_added_file(work: Work, item: StagedItem, observed: FileObservation, staged: Callable[[], bytes]) -> AddedFile:
    """The file as the proof lists it. If the Steward publishes a copy, the copy is made and written here.

    The observed recipe makes the copy from the observed bytes, which `staged` returns. A refused file gets no copy.
    """
    frozen = item.frozen
    if work.store_copy is None or observed.data_file is None:
        return AddedFile.in_place(item.path, frozen.size, frozen.sha256, frozen.version)
    data = splice(observed.recipe or b"", staged())
    if len(data) != observed.data_file.file_size_in_bytes:
        message = "a recipe makes a file of another size than its entry says"
        expected, got = f"{observed.data_file.file_size_in_bytes} bytes", f"{len(data)} bytes"
        raise VerificationError(Code.RECIPE_INVALID, message, expected=expected, got=got)
    copy = work.store_copy(item, data)
    return AddedFile(item.path, frozen.size, frozen.sha256, copy.location, copy.size, copy.sha256, frozen.version)


def published_files(read: Iterable[ReadFile | Finding]) -> tuple[DataFile, ...] | None:
    """The entries to publish, in the order of their published paths; None unless every file could be read."""
    files = []
    for each in read:
        if isinstance(each, Finding) or each.observed.data_file is None:
            return None
        files.append(replace(each.observed.data_file, file_path=each.added.published_path))
    return tuple(sorted(files, key=lambda file: file.file_path))


def combine_all(plan: Plan, keys: Keys, partials: Iterable[Partials | None]) -> Partials:
    """The sum of these partial digests. None counts as no rows."""
    present = [each for each in partials if each is not None]
    return combine_each([Digester(plan, keys, engine=kernel_engine()).partials(), *present])


def observe_staged(
    inputs: JobInputs, item: StagedItem, fetched: Fetched, keys: Keys
) -> tuple[FileObservation, Partials | None]:
    """Read a staged file with its own digester. The digest is None if the file could not be read to its end."""
    digester = Digester(inputs.plan, keys, engine=kernel_engine())
    rewrites = inputs.rewrites
    observed = observe(digester, fetched, inputs.metadata, item.entry, rewrite=rewrites, footer_published=not rewrites)
    try:
        return observed, digester.partials()
    except InputError as error:
        if error.reason != "digester_void":
            raise
        return observed, None


@dataclass(frozen=True, slots=True)
class ThreadReader:
    """The reader of small chunks: threads of the Steward's process, each with one file at a time."""

    files: Files
    threads: int = 2

    def redemptions(self, work: Work) -> int:
        """Zero: threads share the Steward's keys."""
        del work
        return 0

    def read(self, work: Work, job_keys: JobKeys) -> ReadResult:
        """Read both sides at once; a free thread takes the largest file that is left."""
        read: dict[int, ReadFile | Finding] = {}  # by the position of the staged file
        partials: list[Partials] = []
        intent = work.inputs.intent_digest(job_keys.keys)
        fetch = source_fetcher(self.files, (each for item in work.source for each in item.frozen_files))

        def make_item_reader() -> Callable[[StagedItem | SourceItem], None]:
            """The function that reads items in one thread."""
            add = intent.file_adder(fetch)

            def read_item(item: StagedItem | SourceItem) -> None:
                if isinstance(item, StagedItem):
                    read[item.position], digests = self._read_staged(work, item, job_keys.keys)
                    if digests is not None:
                        partials.append(digests)
                    return
                with translate_read_errors():
                    add(item.file)

            return read_item

        items = sorted(work.items, key=lambda item: item.size, reverse=True)
        share(items, [make_item_reader() for _ in range(max(1, min(self.threads, len(items))))])
        all_digested = len(partials) == len(work.staged)
        staged = combine_all(work.inputs.plan, job_keys.keys, partials) if all_digested else None
        return ReadResult(tuple(read[item.position] for item in work.staged), staged, intent.partials())

    def _read_staged(self, work: Work, item: StagedItem, keys: Keys) -> tuple[ReadFile | Finding, Partials | None]:
        """Fetch one file once. The same bytes are hashed, decoded and, if needed, rewritten. Also returns digests."""
        try:
            fetched = self.files.fetch_frozen(item.frozen)
        except VerificationError as error:
            return Finding.of(FailureClass.PHYSICAL, error, item.path), None
        observed, partials = observe_staged(work.inputs, item, fetched, keys)
        added = write_added_file(work, item, observed, lambda: fetched.data)
        return ReadFile(added, observed), partials
