"""What verification found for each nonce: the verified manifest, or why there is none; stored before the proof."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import select, update

from pvdm.errors import Code
from pvdm.ledger.connection import Row
from pvdm.ledger.record import proofs
from pvdm.ledger.schema.work import DisposalWord, disposals, verified
from pvdm.ledger.schema.work import attempts as attempts_table
from pvdm.ledger.unit import Unit, in_batches
from pvdm.ledger.work import attempts
from pvdm.ledger.work.attempts import Attempt
from pvdm.model import canonical_json
from pvdm.model.located import Located
from pvdm.model.states import ATTEMPT

FINDINGS_KEPT_MAX: Final = 100
PENDING_PAGE_MAX_ROWS: Final = 1_000
_TEXT_CHARACTERS: Final = 1_000


@dataclass(frozen=True, slots=True)
class StoredFinding:
    """One finding. `file` is the staged file that it is about, or None."""

    failure: str
    code: str
    message: str
    expected: str | None
    got: str | None
    file: str | None


@dataclass(frozen=True, slots=True)
class VerifiedRecord:
    """The verified manifest of a nonce (location, hash, number of files and rows) and the findings.

    Without a location no file list could be verified. `core_sha256` is the hash of the matching proof core.
    Only the first findings are kept; `findings_more` counts the others. `located` are the wrong rows.
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
    located: Located | None = None


@dataclass(frozen=True, slots=True)
class DisposalRecord:
    """What became of an ended attempt's files. `kept` counts those that are still in use."""

    attempt_id: str
    outcome: DisposalWord
    removed: int
    kept: int
    note: str


def put(unit: Unit, record: VerifiedRecord) -> None:
    """Store what was found. Until a proof is signed for the nonce, a new result replaces the first."""
    attempts.lock(unit, record.attempt_id)
    record = _shorten(record)
    values = {
        "core_sha256": record.core_sha256,
        "location": record.location,
        "sha256": record.sha256,
        "files": record.files,
        "rows": record.rows,
        "findings": _dump(record.findings),
        "findings_more": record.findings_more,
        "located": None if record.located is None else canonical_json.dump(record.located.to_json()).decode(),
    }
    if unit.insert_new(verified, nonce=record.nonce, attempt_id=record.attempt_id, **values):
        return
    if get(unit, record.nonce) == record:
        return
    if proofs.of_nonce(unit, record.nonce):
        raise Code.VERIFIED_DIFFERS(got=record.nonce)
    changed = {**values, "at_micros": unit.at_micros}
    unit.execute(update(verified).where(verified.c.nonce == record.nonce).values(**changed))


def find(unit: Unit, nonce: str) -> VerifiedRecord | None:
    """What was found for the nonce, or None."""
    row = unit.find(verified, nonce=nonce)
    return None if row is None else _record(row)


def get(unit: Unit, nonce: str) -> VerifiedRecord:
    """What was found for the nonce. Raises `verified_unknown`."""
    found = find(unit, nonce)
    if found is None:
        raise Code.VERIFIED_UNKNOWN(got=ascii(nonce[:80]))
    return found


def of_nonces(unit: Unit, nonces: Sequence[str]) -> dict[str, VerifiedRecord]:
    """What was found for each of the nonces that has a result."""
    found: dict[str, VerifiedRecord] = {}
    for some in in_batches(nonces):
        wanted = select(verified).where(verified.c.nonce.in_(some))
        found |= {row["nonce"]: _record(row) for row in unit.rows(wanted)}
    return found


def manifest_locations(unit: Unit, nonces: Sequence[str]) -> set[str]:
    """The locations of the verified manifests of these nonces."""
    found: set[str] = set()
    for some in in_batches(nonces):
        wanted = select(verified.c.location).where(verified.c.nonce.in_(some))
        found |= {row["location"] for row in unit.rows(wanted) if row["location"] is not None}
    return found


def put_disposal(unit: Unit, record: DisposalRecord) -> DisposalRecord:
    """Note that an ended attempt is cleaned up. The first note stays."""
    unit.insert_new(
        disposals,
        attempt_id=record.attempt_id,
        outcome=record.outcome,
        removed=record.removed,
        kept=record.kept,
        note=record.note[:_TEXT_CHARACTERS],
    )
    found = find_disposal(unit, record.attempt_id)
    if found is None:
        raise AssertionError("it was just put there")
    return found


def find_disposal(unit: Unit, attempt_id: str) -> DisposalRecord | None:
    """What became of the attempt's files, or None."""
    row = unit.find(disposals, attempt_id=attempt_id)
    if row is None:
        return None
    return DisposalRecord(row["attempt_id"], DisposalWord(row["outcome"]), row["removed"], row["kept"], row["note"])


def list_undisposed(unit: Unit, *, count: int = PENDING_PAGE_MAX_ROWS, since_micros: int = 0) -> list[Attempt]:
    """Attempts that have ended since then and are not cleaned up yet, oldest first."""
    done = select(disposals.c.attempt_id)
    wanted = select(attempts_table.c.attempt_id).where(
        attempts_table.c.state.in_(ATTEMPT.terminal()), attempts_table.c.attempt_id.not_in(done)
    )
    wanted = wanted.where(attempts_table.c.at_micros >= since_micros)
    rows = unit.rows(wanted.order_by(attempts_table.c.at_micros).limit(min(count, PENDING_PAGE_MAX_ROWS)))
    return [attempts.get(unit, row["attempt_id"]) for row in rows]


def _dump(findings: Sequence[StoredFinding]) -> str:
    return canonical_json.dump([asdict(each) for each in findings]).decode()


def _shorten(record: VerifiedRecord) -> VerifiedRecord:
    kept = tuple(_shorten_finding(each) for each in record.findings[:FINDINGS_KEPT_MAX])
    return VerifiedRecord(
        record.nonce,
        record.attempt_id,
        record.core_sha256,
        record.location,
        record.sha256,
        record.files,
        record.rows,
        kept,
        record.findings_more + max(0, len(record.findings) - FINDINGS_KEPT_MAX),
        record.located,
    )


def _shorten_finding(found: StoredFinding) -> StoredFinding:
    """Texts from files are untrusted: their length is limited and unencodable characters are escaped."""
    texts = (found.failure, found.code, found.message, found.expected, found.got, found.file)
    cut = [None if each is None else _writable(each[:_TEXT_CHARACTERS]) for each in texts]
    return StoredFinding(str(cut[0]), str(cut[1]), str(cut[2]), cut[3], cut[4], cut[5])


def _writable(text: str) -> str:
    return text.encode("utf-8", errors="backslashreplace").decode().replace("\0", "\\x00")


def _record(row: Row) -> VerifiedRecord:
    found = tuple(StoredFinding(**each) for each in json.loads(row["findings"]))
    return VerifiedRecord(
        row["nonce"],
        row["attempt_id"],
        row["core_sha256"],
        row["location"],
        row["sha256"],
        row["files"],
        row["rows"],
        found,
        row["findings_more"],
        None if row["located"] is None else Located.from_json(json.loads(row["located"])),
    )
