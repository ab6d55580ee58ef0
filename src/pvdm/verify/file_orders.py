"""What each file of a job needs to be judged, free of keys, and what comes of it: the same for every reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from pvdm.digest import Digester, Keys, Plan, combine_each, kernel_engine
from pvdm.digest.parquet import splice
from pvdm.errors import Code, VerificationError
from pvdm.lake.format.manifest.entry import DataFile, ManifestEntry
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.deletes import ScanFile
from pvdm.model.chunk import ChunkDefinition
from pvdm.model.contract import BoundContract
from pvdm.model.statements.files import AddedFile
from pvdm.verify.compare import Partials
from pvdm.verify.fetch import Seen
from pvdm.verify.findings import Finding
from pvdm.verify.observed import Observed
from pvdm.verify.source import PinnedSource


@dataclass(frozen=True, slots=True)
class StagedOrder:
    """One staged file: its place among the attempt's, its entry, and its bytes as they were frozen."""

    position: int
    entry: ManifestEntry
    frozen: Seen

    @property
    def path(self) -> str:
        """Where the producer put it."""
        return self.entry.data_file.file_path

    @property
    def size(self) -> int:
        """Bytes to fetch."""
        return self.frozen.size


@dataclass(frozen=True, slots=True)
class SourceOrder:
    """One file of the source, and everything that must be fetched for it as it was frozen: itself and its deletes."""

    file: ScanFile
    frozen: tuple[Seen, ...]

    @property
    def size(self) -> int:
        """Bytes to fetch."""
        return sum(each.size for each in self.frozen)


@dataclass(frozen=True, slots=True)
class Ground:
    """What all files of a job are judged on.

    `rewrites` says that the Steward publishes files of its own, which it makes of the staged ones.
    """

    plan: Plan
    metadata: TableMetadata
    bound: BoundContract
    chunk: ChunkDefinition
    source: PinnedSource
    rewrites: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """All that has to be read for one verdict; `keep` writes a file where it is published from."""

    ground: Ground
    staged: tuple[StagedOrder, ...]
    source: tuple[SourceOrder, ...]
    keep: Callable[[StagedOrder, bytes], Seen] | None = None
    """None where the staged files themselves are published."""

    @property
    def files(self) -> int:
        """How many are read, of both sides; delete files go with their data files."""
        return len(self.staged) + len(self.source)

    @property
    def size(self) -> int:
        """Bytes that are read, of both sides."""
        return sum(each.size for each in self.staged) + sum(each.size for each in self.source)


@dataclass(frozen=True, slots=True)
class Held:
    """What opens the digests of one job: its keys here, and the handle by which its workers get the same ones."""

    job_id: str
    handle: str
    keys: Keys

    def __repr__(self) -> str:
        return f"Held(job_id={self.job_id!r})"


@dataclass(frozen=True, slots=True)
class ReadFile:
    """One staged file: its bytes as they were fetched, where they are published, and what is in them.

    One that could not be read to its end is not digested.
    """

    added: AddedFile
    observed: Observed
    digested: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both sides under one key; the staged one has no digest unless every file could be read to its end.

    `read` has a finding for each file whose bytes are not what they were, in the order of the orders.
    """

    read: tuple[ReadFile | Finding, ...]
    staged: Partials | None
    intent: Partials
    found: tuple[Finding, ...] = ()
    extractor: str | None = None
    """Whose reader gave the rows that were digested, with its version; None where it was the kernel's."""


class Reader(Protocol):
    """Reads all files of a job; which one is taken changes no digest."""

    def redemptions(self, work: Work) -> int:
        """How often the handle may be redeemed by others than the Steward itself."""

    def read(self, work: Work, held: Held) -> Outcome:
        """Every file once, held to its freeze, and digested."""


def added_file(work: Work, order: StagedOrder, observed: Observed, staged: Callable[[], bytes]) -> AddedFile:
    """What the proof binds of a file. Where the Steward makes the published one, it is made and kept here.

    `staged` gives the bytes that were observed. A file that was refused has none to publish.
    """
    frozen = order.frozen
    if work.keep is None or observed.file is None:
        return AddedFile.in_place(order.path, frozen.size, frozen.sha256, frozen.version)
    made = splice(observed.recipe or b"", staged())
    if len(made) != observed.file.file_size_in_bytes:
        raise VerificationError(
            Code.RECIPE_INVALID,
            "a recipe does not make the file of its entry",
            expected=f"{observed.file.file_size_in_bytes} bytes",
            got=f"{len(made)} bytes",
        )
    kept = work.keep(order, made)
    return AddedFile(order.path, frozen.size, frozen.sha256, kept.location, kept.size, kept.sha256, frozen.version)


def published_files(read: Iterable[ReadFile | Finding]) -> tuple[DataFile, ...] | None:
    """The entries to publish, at their published paths and in their order; None unless every file could be read."""
    found = []
    for each in read:
        if isinstance(each, Finding) or each.observed.file is None:
            return None
        found.append(replace(each.observed.file, file_path=each.added.published_path))
    return tuple(sorted(found, key=lambda file: file.file_path))


def together(plan: Plan, keys: Keys, seen: Iterable[Partials]) -> Partials:
    """The digest of all rows that these saw; of none, where there are none."""
    return combine_each([Digester(plan, keys, engine=kernel_engine()).partials(), *seen])
