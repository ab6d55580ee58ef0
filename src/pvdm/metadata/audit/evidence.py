"""The input of an audit: metadata file, logged statements and manifests, and the bundle file for an offline audit."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Protocol

from pvdm.errors import Code, InputError
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.model.canonical_json import Value, dump
from pvdm.model.codec import DecimalText, Document, FieldType, JsonNumber, Sha256, Text, sorted_texts
from pvdm.model.fields import Fields, invalid, require_sha256, require_text
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.table import TableRef
from pvdm.trust.log.entry import LogEntry
from pvdm.trust.log.note import decode_base64, encode_base64
from pvdm.trust.refusal import refuse_input_errors, refused
from pvdm.trust.strict_json import parse_strict
from pvdm.verify.fetch import HashedFile

AUDIT_BUNDLE_MAX_BYTES: Final = 268_435_456
AUDIT_FILES_MAX: Final = 1_000_000
_PATH_HASHES: Final = 64  # the most hashes that an inclusion proof can have
_BEGINNING: Final = b'{"checkpoint":'  # of a bundle, because canonical JSON sorts its keys
AUDIT_SNAPSHOTS_MAX: Final = 100_000
AUDIT_STATEMENTS_MAX: Final = 1_000_000
_CACHED_FILES: Final = 4
KINDS: Final = (  # the kinds of statements in a bundle
    StatementKind.RECEIPT,
    StatementKind.PROOF,
    StatementKind.BREAK_GLASS,
    StatementKind.PROTECTION,
    StatementKind.MIGRATION,
    StatementKind.CLAIM_RELEASE,
)


# `_read_…` and `_write_…` read and write one field of a document (`FieldType`).
def _read_kind(fields: Fields, key: str) -> StatementKind:
    kind = fields.choice(key, StatementKind)
    if kind not in KINDS:
        raise invalid("the kind of a statement", ", ".join(KINDS), kind)
    return kind


def _read_envelope(fields: Fields, key: str) -> bytes:
    return dump(fields.value(key))


def _write_envelope(envelope: bytes) -> Value:
    return parse_strict(envelope, "the envelope", size_max_bytes=AUDIT_BUNDLE_MAX_BYTES)


def _read_hashes(fields: Fields, key: str) -> tuple[bytes, ...]:
    fields.items(key, most=_PATH_HASHES)
    return tuple(_decode(text, "a hash of a log proof") for text in fields.texts(key))


_HASHES: Final = FieldType(_read_hashes, lambda hashes: [encode_base64(each) for each in hashes])


@dataclass(frozen=True, slots=True)
class LoggedStatement(Document, title="a statement"):
    """A signed envelope and its log entry. `hashes` prove that the entry is in the tree of the checkpoint."""

    kind: Annotated[StatementKind, FieldType(_read_kind, str)]
    envelope: Annotated[bytes, FieldType(_read_envelope, _write_envelope)]
    logged_at: JsonNumber
    index: DecimalText
    hashes: Annotated[tuple[bytes, ...], _HASHES]

    @property
    def leaf(self) -> bytes:
        """The bytes of its log entry: kind, hash of the envelope, time."""
        return LogEntry(self.kind, hashlib.sha256(self.envelope).hexdigest(), self.logged_at).to_bytes()


def _read_document(fields: Fields, _key: str) -> bytes:
    data = fields.text("text").encode()
    _require_hash(data, fields.text("sha256"), fields.text("path"))
    return data


def _write_document(data: bytes) -> Value:
    return {"sha256": hashlib.sha256(data).hexdigest(), "text": data.decode()}


@dataclass(frozen=True, slots=True)
class MetadataFile(Document, title="the table's metadata file"):
    """The table's metadata file: its path and its bytes."""

    path: Text
    data: Annotated[bytes, FieldType(_read_document, _write_document, keys=("sha256", "text"))]

    @property
    def sha256(self) -> str:
        """The hash of the bytes."""
        return hashlib.sha256(self.data).hexdigest()


def _read_statements(fields: Fields, key: str) -> tuple[LoggedStatement, ...]:
    found = tuple(LoggedStatement.from_json(item) for item in fields.items(key, most=AUDIT_STATEMENTS_MAX))
    places = [each.index for each in found]
    if places != sorted(set(places)):
        raise invalid("the statements", "each log index once, in order", "another order, or one twice")
    return found


def _write_statements(statements: tuple[LoggedStatement, ...]) -> Value:
    return [each.to_json() for each in sorted(statements, key=lambda each: each.index)]


@dataclass(frozen=True, slots=True)
class Evidence(Document, title="the audit bundle"):
    """What an audit reads except manifests and their lists."""

    table: TableRef
    contract_sha256: Sha256 | None  # the table's current contract, as the Steward says; None: not protected
    metadata: MetadataFile
    checkpoint: Annotated[bytes, FieldType(lambda fields, key: fields.text(key).encode(), bytes.decode)]
    statements: Annotated[tuple[LoggedStatement, ...], FieldType(_read_statements, _write_statements)]
    # Receipts (or proofs) of the table whose lost claims are released, as the Steward says.
    released_claims: Annotated[tuple[str, ...], sorted_texts(0, AUDIT_STATEMENTS_MAX, each=require_sha256)]


class ManifestFiles(Protocol):
    """Reads manifest lists and manifests of the table's own snapshots."""

    def read(self, snapshot_id: int, location: str, /, *, max_bytes: int) -> bytes:
        """The bytes at a location that this snapshot names, at most `max_bytes` of them."""


class RecordingFiles:
    """Keeps all files that were read, for a bundle that repeats the same audit."""

    def __init__(self, inner: ManifestFiles) -> None:
        self._inner = inner
        self.read_files: dict[str, bytes] = {}  # by location

    def read(self, snapshot_id: int, location: str, /, *, max_bytes: int) -> bytes:
        """The bytes. Each location is read once."""
        found = self.read_files.get(location)
        if found is None:
            found = self.read_files[location] = self._inner.read(snapshot_id, location, max_bytes=max_bytes)
        return found


class HashedFiles:
    """Keeps size and hash of every file that was read, and caches the last few files."""

    def __init__(self, inner: ManifestFiles) -> None:
        self._inner = inner
        self._last: OrderedDict[str, bytes] = OrderedDict()
        self.seen: dict[str, HashedFile] = {}  # by location

    def read(self, snapshot_id: int, location: str, /, *, max_bytes: int) -> bytes:
        """The bytes, from the cache if the file was read recently."""
        found = self._last.get(location)
        if found is None:
            found = self._last[location] = self._inner.read(snapshot_id, location, max_bytes=max_bytes)
            self.seen[location] = HashedFile(location, len(found), hashlib.sha256(found).hexdigest())
            if len(self._last) > _CACHED_FILES:
                self._last.popitem(last=False)
        return found


def parse_table_metadata(evidence: Evidence) -> TableMetadata:
    """Parse the metadata file of the evidence. It must belong to the audited table."""
    try:
        metadata = TableMetadata.parse(evidence.metadata.data)
    except InputError as error:
        raise Code.AUDIT_FAILED(reason="audit_metadata_unreadable", got=str(error)) from None
    uuid = metadata.table_uuid
    if uuid is None or uuid.lower() != evidence.table.uuid:
        raise refused("audit_metadata_of_other_table", evidence.table.uuid, uuid)
    return metadata


def _read_evidence(fields: Fields, _key: str) -> Evidence:
    return Evidence.from_json({key: fields.value(key) for key in Evidence.__slots__})


def _read_files(fields: Fields, key: str) -> dict[str, bytes]:
    items, found = fields.items(key, most=AUDIT_FILES_MAX), dict[str, bytes]()
    for item in items:
        file = Fields(item, "a file", ("location", "sha256", "data"))
        location = file.text("location")
        require_text(location, "the location of a file")
        found[location] = _decode(file.text("data"), "a file")
        _require_hash(found[location], file.text("sha256"), location)
    if len(found) != len(items) or list(found) != sorted(found):
        raise invalid("the files", "each location once, in order", "another order, or one twice")
    return found


def _write_files(files: Mapping[str, bytes]) -> Value:
    return [
        {"location": location, "sha256": hashlib.sha256(data).hexdigest(), "data": encode_base64(data)}
        for location, data in sorted(files.items())
    ]


@dataclass(frozen=True, slots=True)
class AuditBundle(Document, title="the audit bundle", format="pvdm-audit/v1"):
    """A file for an offline audit: evidence, and by location the manifest lists and manifests that the audit reads."""

    evidence: Annotated[Evidence, FieldType(_read_evidence, Document.to_json, keys=Evidence.__slots__)]
    files: Annotated[Mapping[str, bytes], FieldType(_read_files, _write_files)]

    def read(self, _snapshot_id: int, location: str, /, *, max_bytes: int) -> bytes:
        """The bytes of a file of the bundle. The snapshot does not matter here."""
        found = self.files.get(location)
        if found is None:
            raise refused("audit_file_missing", location, "none")
        if len(found) > max_bytes:
            raise refused("audit_file_too_large", f"{max_bytes} bytes", location)
        return found

    def to_bytes(self) -> bytes:
        """The bytes of the bundle. Raises `audit_bundle_too_large` over the limit."""
        data, most = Document.to_bytes(self), f"at most {AUDIT_BUNDLE_MAX_BYTES} bytes"
        if len(data) > AUDIT_BUNDLE_MAX_BYTES:
            raise Code.AUDIT_REQUEST_INVALID(reason="audit_bundle_too_large", expected=most, got=str(len(data)))
        return data


def is_audit_bundle(data: bytes) -> bool:
    """Whether these bytes begin like an audit bundle."""
    return data.startswith(_BEGINNING)


def parse_audit_bundle(data: bytes) -> AuditBundle:
    """Parse a bundle. Raises if it is not canonical or not sorted, has an unknown key, or a wrong hash."""
    value = parse_strict(data, "the audit bundle", size_max_bytes=AUDIT_BUNDLE_MAX_BYTES)
    with refuse_input_errors():
        return AuditBundle.from_json(value)


def _require_hash(data: bytes, sha256: str, what: str) -> None:
    """Raise `audit_bundle_damaged` if the bundle's copy of this file is damaged. The table's own file may be intact."""
    got = hashlib.sha256(data).hexdigest()
    if got != sha256:
        raise Code.AUDIT_FAILED(
            f"the bundle's copy of {what} is damaged", reason="audit_bundle_damaged", expected=sha256[:80], got=got
        )


def _decode(text: str, what: str) -> bytes:
    data = decode_base64(text)
    if data is None:
        raise invalid(what, "canonical base64 with padding", "something else")
    return data
