"""Reports of workers. They are parsed strictly and never unpickled, since the Steward's process has the root keys.

A report is encrypted under a key of its job, because sums of row hashes must not be stored on any disk. The credential
with which workers read a store is encrypted under the same key.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pvdm.api.errors import kind_of
from pvdm.digest import Keys, Partial
from pvdm.digest.plan import framed
from pvdm.errors import Code, InputError, PvdmError
from pvdm.errors.kinds import KINDS
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.manifest import read_manifest
from pvdm.lake.format.manifest.write import write_manifest
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.entries import header_of
from pvdm.model.canonical_json import Value, dump, parse
from pvdm.model.codec import Count, Document, FieldType, one_of
from pvdm.model.fields import Fields, invalid
from pvdm.model.projection import ProjectionName
from pvdm.model.secret import Secret
from pvdm.verify.findings import Finding, Partials
from pvdm.verify.observed import FileObservation

_KEY_LABEL: Final = b"pvdm/worker-seal/v1\0"
_STORE_MAX_BYTES: Final = 65_536
_STORE_LABEL: Final = b"pvdm/worker-store/v1\0"
_NONCE_BYTES: Final = 12


class JobCipher:
    """Encrypts and decrypts the reports of one job; its key is derived from the job's digest keys."""

    __slots__ = ("_key",)

    def __init__(self, keys: Keys, job_id: str) -> None:
        first = next(name for name in ProjectionName if name in keys)
        self._key = Secret(hmac.digest(keys[first].reveal(), _KEY_LABEL + framed(job_id.encode()), hashlib.sha256))

    def encrypt(self, report: bytes, bound: bytes) -> bytes:
        """Nonce and ciphertext. `bound` is authenticated but not contained: `decrypt` needs the same value."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self._key.reveal()).encrypt(nonce, report, bound)

    def encrypt_store(self, config: Mapping[str, str]) -> bytes:
        """The access to a store, with its credential, for the workers of this job."""
        return self.encrypt(dump(dict(config)), _STORE_LABEL)

    def decrypt_store(self, encrypted: bytes) -> dict[str, str]:
        """The access to a store, on a worker that has the job's keys."""
        config = parse(self.decrypt(encrypted, _STORE_LABEL), size_max_bytes=_STORE_MAX_BYTES)
        if not isinstance(config, dict):
            raise AssertionError("`encrypt_store` has not written an object")
        return {str(name): str(config[name]) for name in config}

    def decrypt(self, encrypted: bytes, bound: bytes) -> bytes:
        """The report. Raises `worker_report_forged` unless it was encrypted under this job's keys with this `bound`."""
        try:
            return AESGCM(self._key.reveal()).decrypt(encrypted[:_NONCE_BYTES], encrypted[_NONCE_BYTES:], bound)
        except (InvalidTag, ValueError):
            raise Code.SPARK_EXTRACTION_FAILED(reason="worker_report_forged", got="another") from None


def hash_task(common: bytes, task: bytes) -> bytes:
    """The hash that binds a report to its task (or `RowSelection`) and to `common`, which all tasks of a job share."""
    return hashlib.sha256(b"pvdm/worker-orders/v1\0" + framed(common) + framed(task)).digest()


REPORT_MAX_BYTES: Final = 268_435_456
RECIPES_MAX_BYTES: Final = 134_217_728
"""The limit for all compressed recipes of a report. A recipe makes the published file, and grows with its pages."""
_SYNC: Final = bytes(16)  # the marker between blocks of the Avro file


@dataclass(frozen=True, slots=True)
class FileReport:
    """One staged file: what was observed in it, or a finding if its bytes have changed; and whether it was digested."""

    position: int
    seen: FileObservation | Finding
    digested: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one task. The digests of a side are None if the task read none of its files to the end."""

    files: tuple[FileReport, ...]
    staged: Partials | None
    intent: Partials | None
    error: PvdmError | None = None

    def to_bytes(self, metadata: TableMetadata) -> bytes:
        """Canonical JSON; rebuilt entries are sent as a manifest, whose reader is strict."""
        observed = [each.seen for each in self.files if isinstance(each.seen, FileObservation)]
        rebuilt = [each.data_file for each in observed if each.data_file]
        return dump(
            {
                "files": _write_files(self.files),
                "entries": base64.b64encode(_write_manifest(metadata, rebuilt)).decode("ascii") if rebuilt else None,
                "staged": _write_sums(self.staged),
                "intent": _write_sums(self.intent),
                "error": None if self.error is None else _ErrorDocument.from_error(self.error).to_json(),
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Report:
        """The report that `to_bytes` wrote; raises `worker_report_malformed` for anything else."""
        document = parse(data, size_max_bytes=REPORT_MAX_BYTES)
        try:
            return cls._read(Fields(document, "a worker's report", ("files", "entries", "staged", "intent", "error")))
        except InputError as error:
            raise Code.WORKER_REPORT_MALFORMED(expected=error.expected, got=error.got) from None
        except (ValueError, zlib.error) as error:
            raise Code.WORKER_REPORT_MALFORMED(expected="what a worker writes", got=type(error).__name__) from None

    @classmethod
    def _read(cls, fields: Fields) -> Report:
        packed, error = fields.optional_text("entries"), fields.value("error")
        entries = () if packed is None else read_manifest(base64.b64decode(packed, validate=True)).entries
        rebuilt = iter([each.data_file for each in entries])
        read = tuple(_FileDocument.from_json(each).report(rebuilt) for each in fields.items("files"))
        if next(rebuilt, None) is not None:
            raise invalid("the entries", "an entry for each file", "more")
        worker_error = None if error is None else _ErrorDocument.from_json(error).to_error()
        return cls(read, _read_sums(fields, "staged"), _read_sums(fields, "intent"), worker_error)


@dataclass(frozen=True, slots=True)
class _FileDocument(Document, title="a file's report"):
    """One staged file in JSON. If its entry was `rebuilt`, the entry is the next one in the report's manifest."""

    position: Count
    changed: Finding | None = None
    rebuilt: bool = False
    digested: bool = False
    findings: tuple[Finding, ...] = ()
    recipe: str | None = None

    def report(self, rebuilt: Iterator[DataFile]) -> FileReport:
        """The file's report. Takes the file's entry from the iterator if the entry was rebuilt."""
        if self.changed is not None:
            return FileReport(self.position, self.changed, digested=False)
        file = next(rebuilt, None) if self.rebuilt else None
        if self.rebuilt and file is None:
            raise invalid("the entries", "an entry for each file", "fewer")
        seen = FileObservation(file, self.findings, None if self.recipe is None else _unpack(self.recipe))
        return FileReport(self.position, seen, self.digested)


@dataclass(frozen=True, slots=True)
class _ErrorDocument(Document, title="an error"):
    """An error in JSON, with the name of its class."""

    kind: Annotated[str, one_of(*KINDS)]
    reason: str
    message: str
    expected: str | None
    got: str | None
    hint: str | None
    details: Annotated[tuple[tuple[str, str | None], ...], FieldType(Fields.pairs, dict)]

    @classmethod
    def from_error(cls, error: PvdmError) -> _ErrorDocument:
        """The document of an error."""
        details = tuple((name, str(value)) for name, value in error.details.items())
        return cls(kind_of(error), error.reason, error.message, error.expected, error.got, error.hint, details)

    def to_error(self) -> PvdmError:
        """The error; its details are texts."""
        details = {name: str(value) for name, value in self.details}
        make = KINDS[self.kind]
        return make(self.reason, self.message, expected=self.expected, got=self.got, hint=self.hint, **details)


def _write_manifest(metadata: TableMetadata, files: Sequence[DataFile]) -> bytes:
    header = header_of(metadata, metadata.default_spec_id, ManifestContent.DATA)
    entries = [ManifestEntry(status=EntryStatus.ADDED, data_file=each) for each in files]
    return write_manifest(header, entries, sync=_SYNC).data


def _write_files(reports: Sequence[FileReport]) -> list[Value]:
    """All files. Recipes beyond the size limit are left out, and the Steward computes them itself."""
    documents: list[Value] = []
    left = RECIPES_MAX_BYTES
    for each in reports:
        seen = each.seen
        if isinstance(seen, Finding):
            documents.append(_FileDocument(each.position, seen).to_json())
            continue
        packed = None if seen.recipe is None else base64.b64encode(zlib.compress(seen.recipe, 1)).decode()
        if packed is not None and len(packed) > left:
            packed = None
        left -= len(packed or "")
        is_rebuilt = seen.data_file is not None
        document = _FileDocument(each.position, None, is_rebuilt, each.digested, seen.findings, packed)
        documents.append(document.to_json())
    return documents


def _unpack(packed: str) -> bytes:
    """The recipe of a published file; `splice` checks it."""
    decompressor = zlib.decompressobj()
    recipe = decompressor.decompress(base64.b64decode(packed, validate=True), REPORT_MAX_BYTES)
    if not decompressor.eof:
        raise invalid("the recipe", "a recipe within the limit", "another")
    return recipe


def _write_sums(partials: Partials | None) -> Value:
    return None if partials is None else {name.value: partials[name].to_bytes().hex() for name in partials}


def _read_sums(fields: Fields, side: str) -> Partials | None:
    if fields.value(side) is None:
        return None
    return {ProjectionName(name): Partial.from_bytes(bytes.fromhex(str(text))) for name, text in fields.pairs(side)}
