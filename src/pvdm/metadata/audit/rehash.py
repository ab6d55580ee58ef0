"""Bytes read again from where they lie: data files against their proofs, manifests against what was audited."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from pvdm.errors import PvdmError, VerificationError
from pvdm.metadata.audit.report import Notes, Rehashed
from pvdm.trust.refusal import refused
from pvdm.verify.fetch import Files, Seen

_THREADS: Final = 8

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Bound:
    """A file that must be there with exactly these bytes, and where it is noted if it is not."""

    location: str
    size_bytes: int
    sha256: str
    notes: Notes
    version: str | None = None


def rehash(data_files: Iterable[Bound], manifests: Iterable[Bound], files: Files, watch: Progress) -> Rehashed:
    """Hash every file; one that is gone or changed is noted, one that cannot be reached ends the audit."""
    data, lists = list(data_files), list(manifests)
    total = 0
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        wanted = [*data, *lists]
        for done, (each, seen) in enumerate(
            zip(wanted, pool.map(lambda one: _hashed(one, files), wanted), strict=True)
        ):
            with each.notes.held(changed=True):
                total += require_bytes(each, seen)
            watch("reading files again", done + 1, len(wanted))
    return Rehashed(len(data), len(lists), total)


def _hashed(wanted: Bound, files: Files) -> Seen | PvdmError:
    try:
        return files.hash(wanted.location, pinned=wanted.version is not None)
    except VerificationError as error:
        return error


def require_bytes(wanted: Bound, seen: Seen | PvdmError) -> int:
    """The file's size, once its bytes are those that were published."""
    if isinstance(seen, PvdmError):
        raise seen
    if (seen.size, seen.sha256) != (wanted.size_bytes, wanted.sha256):
        raise refused(
            "audit_bytes_changed",
            f"{wanted.location} is not what was published",
            f"{wanted.size_bytes} bytes, SHA-256 {wanted.sha256}",
            f"{seen.size} bytes, SHA-256 {seen.sha256}",
        )
    if wanted.version is not None and seen.version != wanted.version:
        raise refused(
            "audit_version_changed",
            f"{wanted.location} was sealed, and was written again since",
            f"version {wanted.version}",
            f"version {seen.version}",
        )
    return seen.size
