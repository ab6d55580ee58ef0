"""What an attempt staged, read from the catalog's metadata and the branch's manifests, held to the attempt's rules."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pvdm.errors import Code, InputError, VerificationError
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.manifest import ManifestHeader
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import Snapshot
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.read.entries import Changes, FileReader, boundary_files, branch_changes, header_of, inside
from pvdm.model.contract.types import Limits
from pvdm.model.statements.core import Operation
from pvdm.model.statements.files import FILES_MAX
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.findings import Finding

# Hadoop opens no name with a colon; stars, brackets and braces are patterns; spaces at the ends are cut off by some.
# DataFusion and Polars decode percent signs in a URL, so that they open another file than is listed.
_UNSAFE: Final = re.compile(r"""[:*\[\]{}<>|^`"'\\%]|^\s|\s$|[^\S ]""")

__all__ = ["Rules", "StagedFiles", "boundary_files", "read_staged"]


@dataclass(frozen=True, slots=True)
class Rules:
    """What an attempt may do: on which table and base, inside which folders, how, where, and how much of it."""

    metadata: TableMetadata
    base_id: int | None
    places: tuple[Location, ...]
    operation: Operation
    partition: tuple[tuple[str, str | None], ...]
    limits: Limits
    published_in_place: bool = True
    """Whether the staged files themselves are published, under the names that the producer gave them."""


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """What a branch changes from its base to its head.

    `added` holds only entries whose files may be opened; others are named in the findings alone. With findings the
    verdict is FAIL.
    """

    snapshot_id: int | None
    snapshots: tuple[int, ...]
    added: tuple[ManifestEntry, ...]
    removed: tuple[str, ...]
    findings: tuple[Finding, ...]
    metadata_files: tuple[str, ...] = ()
    """The branch's own lists and manifests: the gate reads them again."""


def read_staged(rules: Rules, head: Snapshot | None, reader: FileReader) -> StagedFiles:
    """The branch's own snapshots and what they changed, judged; `head` is None where nothing was staged."""
    if head is None:
        return _judged(rules, (), Changes((), (), ()), reader)
    inside = _Inside(reader, rules.places)
    try:
        own, changes = branch_changes(rules.metadata, head, rules.base_id, inside)
    except (InputError, VerificationError) as error:
        # Lists and manifests of the branch are its producer's.
        return StagedFiles(head.snapshot_id, (), (), (), (Finding.of(FailureClass.METADATA, error),))
    return replace(_judged(rules, own, changes, reader), metadata_files=tuple(inside.read_files))


def _judged(rules: Rules, own: Sequence[Snapshot], changes: Changes, reader: FileReader) -> StagedFiles:
    findings = [*_schemas(rules.metadata, own, changes.headers), *_specs(rules.metadata, changes.headers)]
    findings += _deletes(changes.deletes)
    findings += _removals(rules, changes, reader)
    findings += _limits(rules.limits, changes.added)
    within = not any(each.code.endswith("_exceed") for each in findings)
    openable: list[ManifestEntry] = []
    places: set[Location] = set()
    columns = frozenset(each.name.casefold() for each in to_model(rules.metadata.current_schema).fields)
    for entry in changes.added if within else ():
        wrong = list(_entry(rules, columns, entry, places))
        findings += wrong
        openable += [] if wrong else [entry]
    return StagedFiles(
        own[0].snapshot_id if own else None,
        tuple(each.snapshot_id for each in own),
        tuple(openable),
        tuple(sorted(entry.data_file.file_path for entry in changes.removed)),
        tuple(findings),
    )


def _wrong(code: str, message: str, expected: str, got: str, file: str | None = None) -> Finding:
    return Finding(FailureClass.METADATA, code, message, expected, got, file)


def _schemas(metadata: TableMetadata, own: Iterable[Snapshot], headers: Iterable[ManifestHeader]) -> Iterator[Finding]:
    current = metadata.current_schema_id
    named = {each.schema_id for each in own} | {each.schema_id for each in headers}
    for schema_id in sorted(named - {None, current}, key=str):
        yield Finding(
            FailureClass.SCHEMA,
            "schema_id_other",
            "the data was staged under another schema than the table's",
            str(current),
            str(schema_id),
        )


def _specs(metadata: TableMetadata, headers: Iterable[ManifestHeader]) -> Iterator[Finding]:
    wanted = header_of(metadata, metadata.default_spec_id, ManifestContent.DATA).spec
    for spec in {each.spec for each in headers} - {wanted}:
        yield _wrong(
            "spec_other",
            "files were staged under another partition spec than the table's",
            f"{wanted.spec_id}: {wanted.to_text()}",
            f"{spec.spec_id}: {spec.to_text()}",
        )


def _deletes(deletes: Iterable[ManifestEntry]) -> Iterator[Finding]:
    for entry in deletes:
        if entry.status is EntryStatus.ADDED:
            yield _wrong(
                "delete_file_staged",
                "a delete file was staged",
                "data files alone, written copy-on-write",
                entry.data_file.content.name.lower(),
                entry.data_file.file_path,
            )


def _removals(rules: Rules, changes: Changes, reader: FileReader) -> Iterator[Finding]:
    removed = {entry.data_file.file_path for entry in changes.removed}
    if rules.operation is Operation.APPEND:
        gone = removed | {each.data_file.file_path for each in changes.deletes if not each.is_live}
        for path in sorted(gone)[:1]:
            yield _wrong("removal_under_append", "an append removes files", "no removal", f"{len(gone)} files", path)
        return
    added = [entry.data_file for entry in changes.added]
    wanted = boundary_files(rules.metadata, rules.base_id, rules.operation, rules.partition, added, reader)
    to_replace = f"removal of exactly the {len(wanted)} live files that the workload replaces"
    for code, message, what, paths in (
        (
            "removal_outside_boundary",
            "the branch removes files that the workload does not replace",
            "others removed too",
            removed - wanted,
        ),
        (
            "removal_incomplete",
            "the branch keeps files that the workload has to replace; the job must overwrite, not append",
            "of them kept",
            wanted - removed,
        ),
    ):
        for path in sorted(paths)[:1]:
            yield _wrong(code, message, to_replace, f"{len(paths)} {what}", path)


def _limits(limits: Limits, added: Sequence[ManifestEntry]) -> Iterator[Finding]:
    files = [entry.data_file for entry in added]
    for what, most, got in (
        ("files", min(limits.files, FILES_MAX), len(files)),
        ("bytes", limits.bytes, sum(file.file_size_in_bytes for file in files)),
        ("rows", limits.rows, sum(file.record_count for file in files)),
    ):
        if got > most:
            yield _wrong(f"staged_{what}_exceed", f"too many {what} were staged", f"at most {most}", str(got))


def _entry(rules: Rules, columns: frozenset[str], entry: ManifestEntry, seen: set[Location]) -> Iterator[Finding]:
    file = entry.data_file
    path = file.file_path
    try:
        place = _place(path, rules.places)
    except (InputError, VerificationError) as error:
        yield Finding.of(FailureClass.METADATA, error, path)
        return
    if place in seen:
        yield _wrong("file_listed_twice", "a file is listed twice", "each file once", path, path)
    seen.add(place)
    if rules.published_in_place:
        yield from _names(rules.places, place, path)
        yield from _folders(rules.metadata, columns, place, file)
    if file.file_format.lower() != "parquet":
        yield _wrong("file_format_other", "a file is of another format", "Parquet", file.file_format, path)
    if file.key_metadata is not None:
        yield _wrong("file_encrypted", "a file is encrypted", "a file without encryption", "key metadata", path)
    if not inside(rules.metadata, rules.partition, file):
        yield _wrong(
            "file_outside_partition",
            "a file lies outside the partition that the workload stays in",
            ", ".join(f"{name}={value}" for name, value in rules.partition),
            repr(dict(file.partition)),
            path,
        )


def _names(places: Iterable[Location], place: Location, path: str) -> Iterator[Finding]:
    """Refuses a name below the attempt's folder that an engine cannot open, or takes for a pattern.

    Percent signs are refused everywhere: the file that they stand for may lie in another table's place.
    """
    folder = next(each for each in places if place.is_under(each))
    unsafe = [each for each in place.parts[len(folder.parts) :] if _UNSAFE.search(each)]
    unsafe += [each for each in folder.parts if "%" in each]
    if unsafe:
        yield _wrong(
            "file_name_unsafe",
            "a file has a name that not every engine can open",
            "names without colons, quotes, patterns, percent signs and spaces at the ends",
            ascii(unsafe[0][:120]),
            path,
        )


def _folders(metadata: TableMetadata, columns: frozenset[str], place: Location, file: DataFile) -> Iterator[Finding]:
    """Refuses a folder `column=value` whose value is not the file's: DuckDB shows it in place of the column."""
    for folder in place.parts[:-1]:
        name, equals, text = folder.partition("=")
        if equals and name.casefold() in columns and not _says_partition(metadata, file, name, text):
            yield _wrong(
                "file_folder_lies",
                "a folder is named after a column, with a value that is not the file's partition",
                "column=value for partitions by the column itself, and only with their values",
                ascii(folder[:120]),
                file.file_path,
            )
            return


def _says_partition(metadata: TableMetadata, file: DataFile, name: str, text: str) -> bool:
    """Whether the text is the value of the partition that copies this column, as Iceberg names folders."""
    spellings = [None, text] if text == "null" else [text, text.replace("+", " ")]
    for spelling in spellings:
        with contextlib.suppress(InputError, KeyError):  # a file of another spec need not have the partition
            if inside(metadata, ((name, spelling),), file):
                return True
    return False


def _place(text: str, places: Iterable[Location]) -> Location:
    """The one place that the text means, inside one of these folders; other spellings and links are refused."""
    place = parse_location(text)
    plain = str(place)
    if text not in {plain, plain.replace("file:///", "file:/", 1), plain.replace("file:///", "/", 1)}:
        raise Code.FILE_MISMATCH(reason="file_path_alias", expected=plain, got=ascii(text))
    folder = next((each for each in places if place != each and place.is_under(each)), None)
    if folder is None:
        raise Code.FILE_OUTSIDE_PREFIX(expected=" or ".join(map(str, places)) or "nothing", got=plain)
    link = place.link_below(folder)
    if link is not None:
        raise Code.FILE_MISMATCH(reason="file_behind_link", got=str(link))
    return place


class _Inside:
    """Reads what lies inside these folders only: the branch's own lists and manifests name their files themselves."""

    def __init__(self, reader: FileReader, places: tuple[Location, ...]) -> None:
        self._reader = reader
        self._places = places
        self.read_files: list[str] = []

    def read(self, location: str, *, most: int) -> bytes:
        """The bytes at that location; more than `most` are refused."""
        _place(location, self._places)
        self.read_files.append(location)
        return self._reader.read(location, most=most)
