"""The result of verification for each nonce: the verified manifest and the findings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from sqlalchemy import select

from pvdm.errors import Code
from pvdm.ledger.connection import Row, record_from
from pvdm.ledger.record import proofs
from pvdm.ledger.schema.work import verified
from pvdm.ledger.unit import Unit
from pvdm.ledger.work import attempts
from pvdm.model import canonical_json
from pvdm.model.located import WrongRows

FINDINGS_KEPT_MAX: Final = 100
_TEXT_CHARACTERS: Final = 1_000


@dataclass(frozen=True, slots=True)
class StoredFinding:
    """A fault that verification found (`failure` is its class). `file` is the staged file that it is about, or None."""

    failure: str
    code: str
    message: str
    expected: str | None
    got: str | None
    file: str | None


@dataclass(frozen=True, slots=True)
class VerifiedRecord:
    """The verified manifest of a nonce (location, hash, number of files and rows) and the findings.

    `location` is None if no file list could be verified. `core_sha256` is the hash of the core of the proof, which is
    the part that all notaries must agree on. `findings` are the first ones; `findings_more` counts the others.
    `located` are the wrong rows.
    """

    nonce: str
    attempt_id: str
    core_sha256: str
    location: str | None
    sha256: str | None
    files: int
    rows: int | None
    findings: tuple[StoredFinding, ...] = ()
    findings_more: int = 0
    located: WrongRows | None = None


def put(unit: Unit, record: VerifiedRecord) -> None:
    """Store the result. Raises `verified_differs` if another result is stored and a proof of it is signed."""
    attempts.lock(unit, record.attempt_id)
    stored = tuple(_shorten_finding(each) for each in record.findings[:FINDINGS_KEPT_MAX])
    left_out = record.findings_more + len(record.findings) - len(stored)
    record = replace(record, findings=stored, findings_more=left_out)
    values = {
        "core_sha256": record.core_sha256,
        "location": record.location,
        "sha256": record.sha256,
        "files": record.files,
        "rows": record.rows,
        "findings": canonical_json.dump([asdict(each) for each in record.findings]).decode(),
        "findings_more": record.findings_more,
        "located": None if record.located is None else canonical_json.dump(record.located.to_json()).decode(),
    }
    is_new = unit.insert_new(verified, nonce=record.nonce, attempt_id=record.attempt_id, **values)
    if is_new or get(unit, record.nonce) == record:
        return
    if proofs.list_by_nonce(unit, record.nonce):
        raise Code.RECORD_DIFFERS(reason="verified_differs", got=record.nonce)
    unit.update(verified, {"nonce": record.nonce}, **values)


def get(unit: Unit, nonce: str) -> VerifiedRecord:
    """The result for the nonce. Raises `verified_unknown`."""
    return _to_record(unit.get(verified, "verified_unknown", nonce=nonce))


def find_by_nonces(unit: Unit, nonces: Sequence[str]) -> dict[str, VerifiedRecord]:
    """The results for those of the nonces that have one, by nonce."""
    return {row["nonce"]: _to_record(row) for row in unit.rows_with(select(verified), verified.c.nonce, nonces)}


def list_manifest_locations(unit: Unit, nonces: Sequence[str]) -> set[str]:
    """The locations of the verified manifests of these nonces."""
    rows = unit.rows_with(select(verified.c.location), verified.c.nonce, nonces)
    return {row["location"] for row in rows if row["location"] is not None}


def _shorten_finding(found: StoredFinding) -> StoredFinding:
    """Limit the texts, which come from untrusted files, and escape characters that cannot be stored."""
    texts: dict[str, str | None] = asdict(found)
    shortened: dict[str, Any] = {name: _shorten(text) for name, text in texts.items()}
    return StoredFinding(**shortened)


def _shorten(text: str | None) -> str | None:
    if text is None:
        return None
    return text[:_TEXT_CHARACTERS].encode("utf-8", errors="backslashreplace").decode().replace("\0", "\\x00")


def _to_record(row: Row) -> VerifiedRecord:
    return record_from(
        VerifiedRecord,
        row,
        findings=tuple(StoredFinding(**each) for each in json.loads(row["findings"])),
        located=None if row["located"] is None else WrongRows.from_json(json.loads(row["located"])),
    )
