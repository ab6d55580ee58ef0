"""Reads files again: data files against their proofs, manifests against the audited bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from pvdm.errors import PvdmError, VerificationError
from pvdm.metadata.audit.report import Notes, RehashCounts
from pvdm.trust.refusal import refused
from pvdm.verify.fetch import Files, HashedFile

_THREADS: Final = 8

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class BoundFile:
    """A file that must exist with exactly these bytes, and the notes for a finding about it."""

    location: str
    size_bytes: int
    sha256: str
    notes: Notes
    version: str | None = None


def rehash(
    data_files: Iterable[BoundFile], manifests: Iterable[BoundFile], files: Files, watch: Progress
) -> RehashCounts:
    """Hash every file. A missing or changed file is noted. An unreachable one ends the audit."""
    data, lists = list(data_files), list(manifests)
    total = 0
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        wanted = [*data, *lists]
        for done, (each, seen) in enumerate(zip(wanted, pool.map(lambda one: _hash(one, files), wanted), strict=True)):
            with each.notes.collect(changed=True):
                total += require_bytes(each, seen)
            watch("reading files again", done + 1, len(wanted))
    return RehashCounts(len(data), len(lists), total)


def _hash(wanted: BoundFile, files: Files) -> HashedFile | PvdmError:
    try:
        return files.hash(wanted.location, pinned=wanted.version is not None)
    except VerificationError as error:
        return error


def _describe(size_bytes: int, sha256: str) -> str:
    return f"{size_bytes} bytes, SHA-256 {sha256}"


def require_bytes(wanted: BoundFile, seen: HashedFile | PvdmError) -> int:
    """The size of the file, if its bytes are those that were published."""
    if isinstance(seen, PvdmError):
        raise seen
    if (seen.size, seen.sha256) != (wanted.size_bytes, wanted.sha256):
        message, expected = f"{wanted.location} is not what was published", _describe(wanted.size_bytes, wanted.sha256)
        raise refused("audit_bytes_changed", expected, _describe(seen.size, seen.sha256), message=message)
    if wanted.version is not None and seen.version != wanted.version:
        message = f"{wanted.location} was sealed, and was written again since"
        raise refused("audit_version_changed", f"version {wanted.version}", f"version {seen.version}", message=message)
    return seen.size
