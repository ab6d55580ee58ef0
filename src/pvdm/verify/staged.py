"""Reads what an attempt staged from the branch's metadata and manifests, and checks it against the attempt's rules."""

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
from pvdm.lake.read.entries import (
    Changes,
    FileReader,
    branch_changes,
    has_partition_values,
    header_of,
    listed_manifests,
    replaced_files,
)
from pvdm.model.contract.types import Limits
from pvdm.model.statements.core import FILES_MAX, Operation
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.findings import Finding

# Hadoop cannot open a name with a colon. Stars, brackets and braces are patterns. Some engines cut spaces at the ends.
# DataFusion and Polars decode percent signs as in URLs, so they open another file than the listed one.
_UNSAFE_NAME: Final = re.compile(r"""[:*\[\]{}<>|^`"'\\%]|^\s|\s$|[^\S ]""")


@dataclass(frozen=True, slots=True)
class Rules:
    """What an attempt may do: its table and base (snapshot), its folders, operation, partition and limits."""

    metadata: TableMetadata
    base_id: int | None
    folders: tuple[Location, ...]
    operation: Operation
    partition: tuple[tuple[str, str | None], ...]
    limits: Limits
    published_in_place: bool = True
    """Whether the staged files themselves are published, under the producer's names."""


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """What a branch changes from its base to its head. `added` has only entries whose files are safe to open."""

    snapshot_id: int | None
    added: tuple[ManifestEntry, ...]
    removed: tuple[str, ...]
    findings: tuple[Finding, ...]
    metadata_files: tuple[str, ...] = ()
    """The branch's own manifest lists and manifests, which the gate reads again."""


def read_staged(rules: Rules, head: Snapshot | None, reader: FileReader) -> StagedFiles:
    """Read and check the branch's own snapshots: those after the base, up to `head` (None if nothing was staged)."""
    if head is None:
        return _check(rules, (), Changes((), (), ()), reader)
    guarded = _FolderReader(reader, rules.folders)
    try:
        own, changes = branch_changes(rules.metadata, head, rules.base_id, guarded)
    except (InputError, VerificationError) as error:
        # The producer wrote the lists and manifests of the branch.
        return StagedFiles(head.snapshot_id, (), (), (Finding.of(FailureClass.METADATA, error),))
    return replace(_check(rules, own, changes, reader), metadata_files=tuple(guarded.read_files))


def _check(rules: Rules, own: Sequence[Snapshot], changes: Changes, reader: FileReader) -> StagedFiles:
    findings = [*_check_schemas(rules.metadata, own, changes.headers), *_check_specs(rules.metadata, changes.headers)]
    findings += _check_deletes(changes.deletes)
    findings += _check_removals(rules, changes, reader)
    findings += _check_limits(rules.limits, changes.added)
    is_within_limits = not any(each.code.endswith("_exceed") for each in findings)  # else entries are not checked
    openable: list[ManifestEntry] = []
    seen: set[Location] = set()
    columns = frozenset(each.name.casefold() for each in to_model(rules.metadata.current_schema).fields)
    for entry in changes.added if is_within_limits else ():
        of_entry = list(_check_entry(rules, columns, entry, seen))
        findings += of_entry
        if not of_entry:
            openable.append(entry)
    return StagedFiles(
        own[0].snapshot_id if own else None,
        tuple(openable),
        tuple(sorted(entry.data_file.file_path for entry in changes.removed)),
        tuple(findings),
    )


def _finding(code: str, message: str, expected: str, got: str, file: str | None = None) -> Finding:
    return Finding(FailureClass.METADATA, code, message, expected, got, file)


def _check_schemas(
    metadata: TableMetadata, own: Iterable[Snapshot], headers: Iterable[ManifestHeader]
) -> Iterator[Finding]:
    current = metadata.current_schema_id
    used = {each.schema_id for each in own} | {each.schema_id for each in headers}
    for schema_id in sorted(used - {None, current}, key=str):
        message = "the data was staged under another schema than the table's"
        yield Finding(FailureClass.SCHEMA, "schema_id_other", message, str(current), str(schema_id))


def _check_specs(metadata: TableMetadata, headers: Iterable[ManifestHeader]) -> Iterator[Finding]:
    current = header_of(metadata, metadata.default_spec_id, ManifestContent.DATA).spec
    for spec in {each.spec for each in headers} - {current}:
        message = "files were staged under another partition spec than the table's"
        expected, got = (f"{each.spec_id}: {each.to_text()}" for each in (current, spec))
        yield _finding("spec_other", message, expected, got)


def _check_deletes(deletes: Iterable[ManifestEntry]) -> Iterator[Finding]:
    for entry in deletes:
        if entry.status is EntryStatus.ADDED:
            expected, file = "data files only, written copy-on-write", entry.data_file
            got = file.content.name.lower()
            yield _finding("delete_file_staged", "a delete file was staged", expected, got, file.file_path)


def _check_removals(rules: Rules, changes: Changes, reader: FileReader) -> Iterator[Finding]:
    removed = {entry.data_file.file_path for entry in changes.removed}
    if rules.operation is Operation.APPEND:
        gone = sorted(removed | {each.data_file.file_path for each in changes.deletes if not each.is_live})
        if gone:
            message, got = "an append removes files", f"{len(gone)} files"
            yield _finding("removal_under_append", message, "no removal", got, gone[0])
        return
    added = [entry.data_file for entry in changes.added]
    to_remove = replaced_files(rules.metadata, rules.base_id, rules.operation, rules.partition, added, reader)
    expected = f"removal of exactly the {len(to_remove)} live files that the workload replaces"
    if extra := sorted(removed - to_remove):
        message = "the branch removes files that the workload does not replace"
        yield _finding("removal_outside_boundary", message, expected, f"{len(extra)} others removed too", extra[0])
    if not_removed := sorted(to_remove - removed):
        message = "the branch keeps files that the workload has to replace; the job must overwrite, not append"
        yield _finding("removal_incomplete", message, expected, f"{len(not_removed)} of them kept", not_removed[0])


def _check_limits(limits: Limits, added: Sequence[ManifestEntry]) -> Iterator[Finding]:
    files = [entry.data_file for entry in added]
    for what, limit, got in (
        ("files", min(limits.files, FILES_MAX), len(files)),
        ("bytes", limits.bytes, sum(file.file_size_in_bytes for file in files)),
        ("rows", limits.rows, sum(file.record_count for file in files)),
    ):
        if got > limit:
            yield _finding(f"staged_{what}_exceed", f"too many {what} were staged", f"at most {limit}", str(got))


def _check_entry(rules: Rules, columns: frozenset[str], entry: ManifestEntry, seen: set[Location]) -> Iterator[Finding]:
    file, path = entry.data_file, entry.data_file.file_path
    try:
        place = _require_inside(path, rules.folders)
    except (InputError, VerificationError) as error:
        yield Finding.of(FailureClass.METADATA, error, path)
        return
    if place in seen:
        yield _finding("file_listed_twice", "a file is listed twice", "each file once", path, path)
    seen.add(place)
    if rules.published_in_place:
        yield from _check_names(rules.folders, place, path)
        yield from _check_folders(rules.metadata, columns, place, file)
    if file.file_format.lower() != "parquet":
        yield _finding("file_format_other", "a file is of another format", "Parquet", file.file_format, path)
    if file.key_metadata is not None:
        yield _finding("file_encrypted", "a file is encrypted", "a file without encryption", "key metadata", path)
    if not has_partition_values(rules.metadata, rules.partition, file):
        message = "a file lies outside the partition that the workload stays in"
        expected = ", ".join(f"{name}={value}" for name, value in rules.partition)
        yield _finding("file_outside_partition", message, expected, repr(dict(file.partition)), path)


def _check_names(folders: Iterable[Location], place: Location, path: str) -> Iterator[Finding]:
    """Refuse a name below the attempt's folder that an engine cannot open, or takes for a pattern.

    Percent signs are refused in the folder's own path too: the decoded path may be that of another table's file.
    """
    folder = next(each for each in folders if place.is_under(each))
    unsafe = [each for each in place.parts[len(folder.parts) :] if _UNSAFE_NAME.search(each)]
    unsafe += [each for each in folder.parts if "%" in each]
    if unsafe:
        message = "a file has a name that not every engine can open"
        expected = "names without colons, quotes, patterns, percent signs and spaces at the ends"
        yield _finding("file_name_unsafe", message, expected, ascii(unsafe[0][:120]), path)


def _check_folders(
    metadata: TableMetadata, columns: frozenset[str], place: Location, file: DataFile
) -> Iterator[Finding]:
    """Refuse a folder `column=value` with another value than the file's: DuckDB shows the folder's value instead."""
    for folder in place.parts[:-1]:
        name, equals, text = folder.partition("=")
        if equals and name.casefold() in columns and not _is_partition(metadata, file, name, text):
            message = "a folder is named after a column, with a value that is not the file's partition"
            expected = "column=value for partitions by the column itself, and only with their values"
            yield _finding("file_folder_lies", message, expected, ascii(folder[:120]), file.file_path)
            return


def _is_partition(metadata: TableMetadata, file: DataFile, name: str, text: str) -> bool:
    """Whether `text`, from a folder's name, is the file's value in the column's identity partition."""
    spellings = [None, text] if text == "null" else [text, text.replace("+", " ")]  # Iceberg writes a space as `+`
    for spelling in spellings:
        with contextlib.suppress(InputError):  # the column may have no partition
            if has_partition_values(metadata, ((name, spelling),), file):
                return True
    return False


def _require_inside(text: str, folders: Iterable[Location]) -> Location:
    """The location, if it is inside one of these folders. Other spellings of a path, and links, are refused."""
    place = parse_location(text)
    plain = str(place)
    if text not in {plain, plain.replace("file:///", "file:/", 1), plain.replace("file:///", "/", 1)}:
        raise Code.FILE_MISMATCH(reason="file_path_alias", expected=plain, got=ascii(text))
    folder = next((each for each in folders if place != each and place.is_under(each)), None)
    if folder is None:
        expected = " or ".join(map(str, folders)) or "nothing"
        raise Code.FILE_MISMATCH(reason="file_outside_prefix", expected=expected, got=plain)
    link = place.link_below(folder)
    if link is not None:
        raise Code.FILE_MISMATCH(reason="file_behind_link", got=str(link))
    return place


class _FolderReader:
    """Reads only files inside these folders. The producer wrote the lists and manifests that name the files."""

    def __init__(self, reader: FileReader, folders: tuple[Location, ...]) -> None:
        self._reader = reader
        self._folders = folders
        self.read_files: list[str] = []

    def read(self, location: str, *, max_bytes: int) -> bytes:
        """The bytes of the file. Raises if it is outside of the folders, or has more than `max_bytes` bytes."""
        _require_inside(location, self._folders)
        self.read_files.append(location)
        return self._reader.read(location, max_bytes=max_bytes)


def find_base_id(metadata: TableMetadata, head: Snapshot | None) -> int | None:
    """The newest snapshot that the branch shares with `main`. If nothing was staged, it is the head of `main`."""
    if head is None:
        return metadata.current_snapshot_id
    main = ancestor_ids(metadata, metadata.current_snapshot_id)
    return next((each.snapshot_id for each in metadata.ancestry(head.snapshot_id) if each.snapshot_id in main), None)


def find_changed_base(
    metadata: TableMetadata,
    operation: Operation,
    partition: Sequence[tuple[str, str | None]],
    head: Snapshot | None,
    reader: FileReader,
) -> tuple[Finding, ...]:
    """Findings for an overwrite, if the part of `main` that it replaces has changed since the overwrite was staged.

    Such an overwrite needs a new attempt. An append, or any other overwrite, can be published on a later `main`.
    """
    base_id, current = find_base_id(metadata, head), metadata.current_snapshot
    if operation is Operation.APPEND or current is None or current.snapshot_id == base_id:
        return ()
    newer = ancestor_ids(metadata, metadata.current_snapshot_id) - ancestor_ids(metadata, base_id)
    if any(
        listed.added_snapshot_id in newer and listed.content is ManifestContent.DELETES
        for listed in listed_manifests(metadata, current, reader)
    ):
        code, message = "deletes_newer", "rows were deleted from main since it was staged"
    else:
        added: tuple[DataFile, ...] = ()
        if head is not None:
            with contextlib.suppress(VerificationError, InputError):  # `read_staged` reports the error
                added = tuple(each.data_file for each in branch_changes(metadata, head, base_id, reader)[1].added)
        before = replaced_files(metadata, base_id, operation, partition, added, reader)
        if before == replaced_files(metadata, current.snapshot_id, operation, partition, added, reader):
            return ()
        code, message = "boundary_moved", "what it replaces was changed in main since it was staged"
    base = "an empty main" if base_id is None else f"main at {base_id}"
    return (_finding(code, message, base, f"main at {current.snapshot_id}"),)


def ancestor_ids(metadata: TableMetadata, snapshot_id: int | None) -> set[int]:
    """The ids of the snapshot and its ancestors; empty for None."""
    return set() if snapshot_id is None else {each.snapshot_id for each in metadata.ancestry(snapshot_id)}
