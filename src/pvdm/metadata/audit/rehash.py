"""Reads files again, and compares data files with their proofs, and manifests with the audited bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from pvdm.errors import VerificationError
from pvdm.metadata.audit.report import Notes, RehashCounts
from pvdm.trust.refusal import refused
from pvdm.verify.fetch import Files, HashedFile, describe_bytes

_THREADS: Final = 8

Progress = Callable[[str, int, int], None]  # gets a step's name, the number of items done, the number of all items


@dataclass(frozen=True, slots=True)
class BoundFile:
    """A file that must exist with these bytes, at this `version` if it was sealed. `notes` takes a finding about it."""

    location: str
    size_bytes: int
    sha256: str
    notes: Notes
    version: str | None = None


def rehash(
    data_files: Iterable[BoundFile], manifests: Iterable[BoundFile], files: Files, watch: Progress
) -> RehashCounts:
    """Hash every file. A missing or changed file is noted. A store that cannot be reached ends the audit."""
    data, metadata = list(data_files), list(manifests)
    bound = [*data, *metadata]

    def hash_file(file: BoundFile) -> HashedFile | VerificationError:
        try:
            return files.hash(file.location, pinned=file.version is not None)
        except VerificationError as error:
            return error

    total_bytes = 0
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        for done, (file, hashed) in enumerate(zip(bound, pool.map(hash_file, bound), strict=True), start=1):
            with file.notes.collect(changed=True):
                total_bytes += require_bytes(file, hashed)
            watch("reading files again", done, len(bound))
    return RehashCounts(data_files=len(data), manifests=len(metadata), bytes=total_bytes)


def require_bytes(bound: BoundFile, hashed: HashedFile | VerificationError) -> int:
    """The size of the file. Raises unless its bytes, and a sealed version, are those that were published."""
    if isinstance(hashed, VerificationError):
        raise hashed
    if (hashed.size, hashed.sha256) != (bound.size_bytes, bound.sha256):
        message = f"{bound.location} is not what was published"
        expected, got = describe_bytes(bound.size_bytes, bound.sha256), describe_bytes(hashed.size, hashed.sha256)
        raise refused("audit_bytes_changed", expected, got, message=message)
    if bound.version is not None and hashed.version != bound.version:
        message = f"{bound.location} was sealed, and was written again since"
        raise refused("audit_version_changed", f"version {bound.version}", f"version {hashed.version}", message=message)
    return hashed.size
