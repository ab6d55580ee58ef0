"""Reports of workers: read strictly and never unpickled, since the Steward holds roots, and sealed on their way.

The seal's key is known to the job alone: sums of row hashes must not lie on any disk. The credential by which workers
read a store goes the other way, under the same seal.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pvdm.digest import Keys, Partial
from pvdm.digest.plan import framed
from pvdm.errors import Code, ConflictError, InputError, NotAllowedError, PvdmError, UnavailableError, VerificationError
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.manifest import read_manifest
from pvdm.lake.format.manifest.write import write_manifest
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.entries import header_of
from pvdm.model.canonical_json import Value, dump, parse
from pvdm.model.projection import ProjectionName
from pvdm.model.secret import Secret
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.findings import Finding, Partials
from pvdm.verify.observed import Observed

_LABEL: Final = b"pvdm/worker-seal/v1\0"
_STORE_MAX_BYTES: Final = 65_536
_STORE: Final = b"pvdm/worker-store/v1\0"
_NONCE_BYTES: Final = 12


class JobSeal:
    """Closes and opens the reports of one job; its key is derived from the job's digest keys."""

    __slots__ = ("_key",)

    def __init__(self, keys: Keys, job_id: str) -> None:
        first = next(name for name in ProjectionName if name in keys)
        self._key = Secret(hmac.digest(keys[first].reveal(), _LABEL + framed(job_id.encode()), hashlib.sha256))

    def close(self, report: bytes, bound: bytes) -> bytes:
        """Nonce and ciphertext; `bound` is authenticated, and must be the same at opening."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self._key.reveal()).encrypt(nonce, report, bound)

    def close_store(self, config: Mapping[str, str]) -> bytes:
        """The access to a store, with its credential, for the workers of this job."""
        return self.close(dump(dict(config)), _STORE)

    def open_store(self, sealed: bytes) -> dict[str, str]:
        """The access to a store, on a worker that has the job's keys."""
        found = parse(self.open(sealed, _STORE), size_max_bytes=_STORE_MAX_BYTES)
        if not isinstance(found, dict):
            raise AssertionError("as `close_store` wrote it")
        return {str(name): str(found[name]) for name in found}

    def open(self, sealed: bytes, bound: bytes) -> bytes:
        """The report; raises `worker_report_forged` unless it was made under this job's keys and about `bound`."""
        try:
            return AESGCM(self._key.reveal()).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound)
        except (InvalidTag, ValueError):
            raise Code.WORKER_REPORT_FORGED(got="another") from None


def bound_to(common: bytes, task: bytes) -> bytes:
    """The hash of the orders that a report is about."""
    return hashlib.sha256(b"pvdm/worker-orders/v1\0" + framed(common) + framed(task)).digest()


REPORT_MAX_BYTES: Final = 268_435_456
RECIPES_MAX_BYTES: Final = 134_217_728
"""Compressed recipes of one report. A recipe grows with the number of pages, which the producer decides."""
_SYNC: Final = bytes(16)
_ERRORS: Final[Mapping[str, type[PvdmError]]] = {
    kind.__name__: kind
    for kind in (ConflictError, InputError, NotAllowedError, PvdmError, UnavailableError, VerificationError)
}


@dataclass(frozen=True, slots=True)
class FileReport:
    """One staged file: a finding about its bytes, or what is in them, and whether they were digested."""

    position: int
    seen: Observed | Finding
    digested: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one task; a side that was not read to its end has no digest."""

    files: tuple[FileReport, ...]
    staged: Partials | None
    intent: Partials | None
    error: PvdmError | None = None

    def to_bytes(self, metadata: TableMetadata) -> bytes:
        """Canonical JSON; rebuilt entries are sent as a manifest, whose reader is strict."""
        rebuilt = [each.seen.file for each in self.files if isinstance(each.seen, Observed) and each.seen.file]
        return dump(
            {
                "files": _files(self.files),
                "entries": None if not rebuilt else base64.b64encode(_manifest(metadata, rebuilt)).decode("ascii"),
                "staged": _sums(self.staged),
                "intent": _sums(self.intent),
                "error": None if self.error is None else _error(self.error),
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Report:
        """The report that `to_bytes` wrote; raises `worker_report_malformed` for anything else."""
        found = parse(data, size_max_bytes=REPORT_MAX_BYTES)
        try:
            return cls._read(found)
        except ValueError as error:
            raise _malformed("what a worker writes", type(error).__name__) from None

    @classmethod
    def _read(cls, value: Value) -> Report:
        match value:
            case {"files": list(files), "entries": entries, "staged": staged, "intent": intent, "error": error}:
                rebuilt = iter(_entries(entries))
                read = tuple(_file_of(each, rebuilt) for each in files)
                if next(rebuilt, None) is not None:
                    raise _malformed("an entry for each file", "more")
                return cls(read, _sums_of(staged), _sums_of(intent), None if error is None else _error_of(error))
            case _:
                raise _malformed("what a worker writes")


def _manifest(metadata: TableMetadata, files: Sequence[DataFile]) -> bytes:
    header = header_of(metadata, metadata.default_spec_id, ManifestContent.DATA)
    entries = [ManifestEntry(status=EntryStatus.ADDED, data_file=each) for each in files]
    return write_manifest(header, entries, sync=_SYNC).data


def _entries(text: Value) -> tuple[DataFile, ...]:
    if text is None:
        return ()
    if not isinstance(text, str):
        raise _malformed("entries as text")
    return tuple(each.data_file for each in read_manifest(base64.b64decode(text, validate=True)).entries)


def _files(reports: Sequence[FileReport]) -> list[Value]:
    """All files; recipes beyond the limit are left out, and the Steward makes them itself."""
    found: list[Value] = []
    left = RECIPES_MAX_BYTES
    for each in reports:
        recipe = each.seen.recipe if isinstance(each.seen, Observed) else None
        packed = None if recipe is None else base64.b64encode(zlib.compress(recipe, 1)).decode()
        if packed is not None:
            packed, left = (None, left) if len(packed) > left else (packed, left - len(packed))
        found.append(_file(each, packed))
    return found


def _file(report: FileReport, recipe: str | None) -> dict[str, Value]:
    seen = report.seen
    if isinstance(seen, Finding):
        return {"position": report.position, "changed": seen.to_json()}
    return {
        "position": report.position,
        "rows": str(seen.rows),
        "rebuilt": seen.file is not None,
        "digested": report.digested,
        "findings": [each.to_json() for each in seen.findings],
        "recipe": recipe,
    }


def _file_of(value: Value, rebuilt: Iterator[DataFile]) -> FileReport:
    match value:
        case {"position": int(position), "changed": changed, **rest} if not rest:
            return FileReport(position, _finding(changed), digested=False)
        case {
            "position": int(position),
            "rows": str(rows),
            "rebuilt": bool(is_rebuilt),
            "digested": bool(digested),
            "findings": list(findings),
            "recipe": None | str() as packed,
            **rest,
        } if not rest:
            file = next(rebuilt, None) if is_rebuilt else None
            if is_rebuilt and file is None:
                raise _malformed("an entry for each file", "fewer")
            seen = Observed(file, int(rows), tuple(map(_finding, findings)), _recipe(packed))
            return FileReport(position, seen, digested=digested)
        case _:
            raise _malformed("a file's report")


def _recipe(packed: str | None) -> bytes | None:
    """The recipe of a published file; `splice` checks it."""
    if packed is None:
        return None
    opened = zlib.decompressobj()
    try:
        found = opened.decompress(base64.b64decode(packed, validate=True), REPORT_MAX_BYTES)
    except zlib.error as error:
        raise _malformed("a recipe", str(error)) from None
    if not opened.eof:
        raise _malformed("a recipe within the limit", "another")
    return found


def _finding(value: Value) -> Finding:
    match value:
        case {
            "class": str(failure),
            "code": str(code),
            "message": str(message),
            "expected": str() | None as expected,
            "got": str() | None as got,
            "file": str() | None as file,
            **rest,
        } if not rest:
            return Finding(FailureClass(failure), code, message, expected, got, file)
        case _:
            raise _malformed("a finding")


def _sums(partials: Partials | None) -> Value:
    if partials is None:
        return None
    return {name.value: partials[name].to_bytes().hex() for name in partials}


def _sums_of(value: Value) -> Partials | None:
    match value:
        case None:
            return None
        case dict():
            return {ProjectionName(name): Partial.from_bytes(bytes.fromhex(str(value[name]))) for name in value}
        case _:
            raise _malformed("digests by projection")


def _error(error: PvdmError) -> dict[str, Value]:
    kind = next((each.__name__ for each in type(error).__mro__ if each.__name__ in _ERRORS), PvdmError.__name__)
    texts: dict[str, Value] = {"code": error.reason, "message": error.message, "kind": kind}
    details: dict[str, Value] = {key: str(value) for key, value in error.details.items()}
    return texts | {"expected": error.expected, "got": error.got, "hint": error.hint, "details": details}


def _error_of(value: Value) -> PvdmError:
    match value:
        case {
            "kind": str(kind),
            "code": str(code),
            "message": str(message),
            "expected": str() | None as expected,
            "got": str() | None as got,
            "hint": str() | None as hint,
            "details": dict(details),
            **rest,
        } if not rest and kind in _ERRORS:
            told = {str(key): str(text) for key, text in details.items()}
            return _ERRORS[kind](code, message, expected=expected, got=got, hint=hint, **told)
        case _:
            raise _malformed("an error")


def _malformed(expected: str, got: str = "something else") -> PvdmError:
    return Code.WORKER_REPORT_MALFORMED(expected=expected, got=got)
