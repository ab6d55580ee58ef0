"""The audit bundle: one file with everything for an offline audit except the trust root and the data files."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pvdm.errors import Code
from pvdm.metadata.audit.evidence import AUDIT_STATEMENTS_MAX, KINDS, Evidence, LoggedStatement, MetadataFile
from pvdm.model.canonical_json import Value, dump
from pvdm.model.fields import Fields, invalid, require_long, require_number, require_sha256, require_text
from pvdm.model.statements.table import TableRef
from pvdm.trust.log.entry import EntryKind
from pvdm.trust.refusal import refused, refusing
from pvdm.trust.strict_json import read

AUDIT_BUNDLE_MAX_BYTES: Final = 268_435_456
AUDIT_FILES_MAX: Final = 1_000_000
_FORMAT: Final = "pvdm-audit/v1"
_HASHES: Final = 64
_BEGINNING: Final = b'{"checkpoint":'


@dataclass(frozen=True, slots=True)
class AuditBundle:
    """Evidence, and the manifest lists and manifests that an audit of it reads, by location."""

    evidence: Evidence
    files: Mapping[str, bytes]

    def read(self, _snapshot_id: int, location: str, /, *, most: int) -> bytes:
        """A file of the bundle, whichever snapshot names it."""
        found = self.files.get(location)
        if found is None:
            raise refused("audit_file_missing", "the bundle lacks a file that the snapshot names", location, "none")
        if len(found) > most:
            raise refused("audit_file_too_large", "a file is larger than it may be", f"{most} bytes", location)
        return found

    def to_bytes(self) -> bytes:
        """The bytes of the bundle. Raises `audit_bundle_too_large` over the limit."""
        evidence = self.evidence
        data = dump(
            {
                "format": _FORMAT,
                "table": evidence.table.to_json(),
                "contract_sha256": evidence.contract_sha256,
                "metadata": {
                    "path": evidence.metadata.path,
                    "sha256": evidence.metadata.sha256,
                    "text": evidence.metadata.data.decode(),
                },
                "checkpoint": evidence.checkpoint.decode(),
                "statements": [_statement(each) for each in sorted(evidence.statements, key=_place)],
                "files": [_file(location, self.files[location]) for location in sorted(self.files)],
            }
        )
        if len(data) > AUDIT_BUNDLE_MAX_BYTES:
            raise Code.AUDIT_REQUEST_INVALID(
                reason="audit_bundle_too_large", expected=f"at most {AUDIT_BUNDLE_MAX_BYTES} bytes", got=str(len(data))
            )
        return data


def is_audit_bundle(data: bytes) -> bool:
    """Whether these bytes begin like an audit bundle."""
    return data.startswith(_BEGINNING)


def parse_audit_bundle(data: bytes) -> AuditBundle:
    """Parse a bundle. Any other spelling, key, order or hash is refused."""
    value = read(data, "the audit bundle", size_max_bytes=AUDIT_BUNDLE_MAX_BYTES)
    keys = ("format", "table", "contract_sha256", "metadata", "checkpoint", "statements", "files")
    with refusing():
        fields = Fields(value, "the audit bundle", keys)
        if fields.text("format") != _FORMAT:
            raise invalid("the format of the audit bundle", _FORMAT, repr(fields.text("format")[:64]))
        contract = fields.optional_text("contract_sha256")
        if contract is not None:
            require_sha256(contract, "the contract hash")
        evidence = Evidence(
            TableRef.from_json(fields.value("table")),
            contract,
            _metadata(fields.value("metadata")),
            fields.text("checkpoint").encode(),
            _statements(fields),
        )
        return AuditBundle(evidence, _files(fields))


def _place(logged: LoggedStatement) -> int:
    return logged.index


def _statement(logged: LoggedStatement) -> dict[str, Value]:
    return {
        "kind": logged.kind.value,
        "envelope": read(logged.envelope, "the envelope", size_max_bytes=AUDIT_BUNDLE_MAX_BYTES),
        "logged_at": logged.logged_at,
        "index": str(logged.index),
        "hashes": [base64.b64encode(each).decode() for each in logged.hashes],
    }


def read_logged(value: Value) -> LoggedStatement:
    """A logged statement as bundles and the Steward's answers have it."""
    fields = Fields(value, "a statement", ("kind", "envelope", "logged_at", "index", "hashes"))
    kind = fields.choice("kind", EntryKind)
    if kind not in KINDS:
        raise invalid("the kind of a statement", ", ".join(KINDS), kind)
    require_number(fields.number("logged_at"), "the time of a log entry")
    require_long(fields.decimal("index"), "the place of a log entry")
    hashes = fields.texts("hashes")
    if len(hashes) > _HASHES:
        raise invalid("the hashes of a log proof", f"at most {_HASHES}", str(len(hashes)))
    return LoggedStatement(
        kind,
        dump(fields.value("envelope")),
        fields.number("logged_at"),
        fields.decimal("index"),
        tuple(_decoded(each, "a hash of a log proof") for each in hashes),
    )


def _file(location: str, data: bytes) -> dict[str, Value]:
    return {
        "location": location,
        "sha256": hashlib.sha256(data).hexdigest(),
        "data": base64.b64encode(data).decode(),
    }


def _metadata(value: Value) -> MetadataFile:
    fields = Fields(value, "the table's document", ("path", "sha256", "text"))
    require_text(fields.text("path"), "the path of the table's document")
    found = MetadataFile(fields.text("path"), fields.text("text").encode())
    _require_hash(found.data, fields.text("sha256"), found.path)
    return found


def _statements(fields: Fields) -> tuple[LoggedStatement, ...]:
    items = fields.items("statements")
    if len(items) > AUDIT_STATEMENTS_MAX:
        raise invalid("the statements", f"at most {AUDIT_STATEMENTS_MAX}", str(len(items)))
    found = tuple(read_logged(item) for item in items)
    places = [each.index for each in found]
    if places != sorted(set(places)):
        raise invalid("the statements", "each place of the log once, in order", "another order, or one twice")
    return found


def _files(fields: Fields) -> dict[str, bytes]:
    items = fields.items("files")
    if len(items) > AUDIT_FILES_MAX:
        raise invalid("the files", f"at most {AUDIT_FILES_MAX}", str(len(items)))
    found: dict[str, bytes] = {}
    for item in items:
        file = Fields(item, "a file", ("location", "sha256", "data"))
        location = file.text("location")
        require_text(location, "the location of a file")
        found[location] = _decoded(file.text("data"), "a file")
        _require_hash(found[location], file.text("sha256"), location)
    if len(found) != len(items) or list(found) != sorted(found):
        raise invalid("the files", "each location once, in order", "another order, or one twice")
    return found


def _require_hash(data: bytes, sha256: str, what: str) -> None:
    """Raise `audit_bundle_damaged` for a damaged copy, which is not a file that was changed in the table."""
    got = hashlib.sha256(data).hexdigest()
    if got != sha256:
        raise Code.AUDIT_FAILED(
            f"the bundle's copy of {what} is damaged", reason="audit_bundle_damaged", expected=sha256[:80], got=got
        )


def _decoded(text: str, what: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise invalid(what, "standard base64 with padding", "something else") from None
    if base64.b64encode(data).decode() != text:
        raise invalid(what, "canonical base64", "another spelling")
    return data
