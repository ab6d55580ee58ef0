"""What verification found for each nonce, what became of the files of ended attempts, and what is in quarantine."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from sqlalchemy import and_, or_, select, update

from pvdm.errors import Code
from pvdm.ledger import ids
from pvdm.ledger.connection import Row, read_row, record_from
from pvdm.ledger.record import events, proofs
from pvdm.ledger.schema.work import DisposalWord, disposals, quarantine_removals, verified, workloads
from pvdm.ledger.schema.work import attempts as attempts_table
from pvdm.ledger.unit import Unit, in_batches
from pvdm.ledger.work import attempts
from pvdm.ledger.work.attempts import Attempt
from pvdm.model import canonical_json
from pvdm.model.located import Located
from pvdm.model.states import ATTEMPT, AttemptState

FINDINGS_KEPT_MAX: Final = 100
PENDING_PAGE_MAX_ROWS: Final = 1_000
_TEXT_CHARACTERS: Final = 1_000

QUARANTINE_PAGE_MAX_ROWS: Final = 100


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
        "findings": canonical_json.dump([asdict(each) for each in record.findings]).decode(),
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
    return read_row(_record, unit.find(verified, nonce=nonce))


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
    unit.insert_new(disposals, **asdict(replace(record, note=record.note[:_TEXT_CHARACTERS])))
    found = find_disposal(unit, record.attempt_id)
    if found is None:
        raise AssertionError("it was just put there")
    return found


def find_disposal(unit: Unit, attempt_id: str) -> DisposalRecord | None:
    """What became of the attempt's files, or None."""
    row = unit.find(disposals, attempt_id=attempt_id)
    return None if row is None else record_from(DisposalRecord, row, outcome=DisposalWord(row["outcome"]))


def list_undisposed(unit: Unit, *, count: int = PENDING_PAGE_MAX_ROWS, since_micros: int = 0) -> list[Attempt]:
    """Attempts that have ended since then and are not cleaned up yet, oldest first."""
    done = select(disposals.c.attempt_id)
    wanted = select(attempts_table.c.attempt_id).where(
        attempts_table.c.state.in_(ATTEMPT.terminal()), attempts_table.c.attempt_id.not_in(done)
    )
    wanted = wanted.where(attempts_table.c.at_micros >= since_micros)
    rows = unit.rows(wanted.order_by(attempts_table.c.at_micros).limit(min(count, PENDING_PAGE_MAX_ROWS)))
    return [attempts.get(unit, row["attempt_id"]) for row in rows]


def _shorten(record: VerifiedRecord) -> VerifiedRecord:
    kept = tuple(_shorten_finding(each) for each in record.findings[:FINDINGS_KEPT_MAX])
    return replace(record, findings=kept, findings_more=record.findings_more + len(record.findings) - len(kept))


def _shorten_finding(found: StoredFinding) -> StoredFinding:
    """Texts from files are untrusted: their length is limited and unencodable characters are escaped."""
    texts = (found.failure, found.code, found.message, found.expected, found.got, found.file)
    cut = [None if each is None else _writable(each[:_TEXT_CHARACTERS]) for each in texts]
    return StoredFinding(str(cut[0]), str(cut[1]), str(cut[2]), cut[3], cut[4], cut[5])


def _writable(text: str) -> str:
    return text.encode("utf-8", errors="backslashreplace").decode().replace("\0", "\\x00")


def _record(row: Row) -> VerifiedRecord:
    return record_from(
        VerifiedRecord,
        row,
        findings=tuple(StoredFinding(**each) for each in json.loads(row["findings"])),
        located=None if row["located"] is None else Located.from_json(json.loads(row["located"])),
    )


@dataclass(frozen=True, slots=True)
class Removal:
    """Who removed an attempt's files, and why. `done` once all of them are removed."""

    attempt_id: str
    token_id: str
    name: str
    reason: str
    files: int
    size_bytes: int
    done: bool


def page_quarantined(
    unit: Unit,
    *,
    domain: str | None,
    table_uuid: str | None = None,
    after: str | None = None,
    count: int = QUARANTINE_PAGE_MAX_ROWS,
    back: Collection[str] = (),
) -> list[Attempt]:
    """Attempts whose files are in quarantine, oldest first, after the one of this id; all domains, or one.

    `back` are attempts whose files were removed, but of which some are there again.
    """
    wanted = _select_quarantined(back)
    if domain is not None:
        wanted = wanted.where(workloads.c.domain == domain)
    if table_uuid is not None:
        wanted = wanted.where(workloads.c.table_uuid == table_uuid)
    if after is not None:
        last = attempts.get(unit, after)
        at, name = attempts_table.c.at_micros, attempts_table.c.attempt_id
        wanted = wanted.where(or_(at > last.at_micros, and_(at == last.at_micros, name > last.attempt_id)))
    wanted = wanted.order_by(attempts_table.c.at_micros, attempts_table.c.attempt_id)
    rows = unit.rows(wanted.limit(min(count, QUARANTINE_PAGE_MAX_ROWS)))
    return [attempts.get(unit, row["attempt_id"]) for row in rows]


def is_in_quarantine(unit: Unit, attempt_id: str) -> bool:
    """Whether the attempt's files are in quarantine, or some may be after an interrupted removal."""
    return unit.row(_select_quarantined().where(attempts_table.c.attempt_id == attempt_id)) is not None


def find_removal(unit: Unit, attempt_id: str) -> Removal | None:
    """Who removed the attempt's files, or None."""
    return read_row(_removal, unit.find(quarantine_removals, attempt_id=attempt_id))


def begin_removal(unit: Unit, removal: Removal) -> Removal:
    """Note who removes the attempt's files and why, before the first is deleted. The first note stays."""
    unit.insert_new(
        quarantine_removals,
        attempt_id=removal.attempt_id,
        token_id=removal.token_id,
        name=ids.require_name(removal.name, "name"),
        reason=ids.require_reason(removal.reason),
        files=removal.files,
        bytes=removal.size_bytes,
        done=0,
    )
    found = find_removal(unit, removal.attempt_id)
    if found is None:
        raise AssertionError("it was just put there")
    return found


def note_again(unit: Unit, removal: Removal) -> Removal:
    """Note who removes files that are there again after a removal, and why. The first record stays."""
    return _note(unit, "quarantine_removed_again", removal)


def note_unknown(unit: Unit, removal: Removal) -> Removal:
    """Note who removes files of an attempt that the ledger does not know, and why."""
    return _note(unit, "quarantine_removed_unknown", removal)


def _note(unit: Unit, kind: str, removal: Removal) -> Removal:
    facts: dict[str, str | int] = {
        "token_id": removal.token_id,
        "name": ids.require_name(removal.name, "name"),
        "reason": ids.require_reason(removal.reason),
        "files": removal.files,
        "bytes": removal.size_bytes,
    }
    events.note(unit, kind, "quarantine_removals", removal.attempt_id, facts)
    return replace(removal, done=True)


def removed_among(unit: Unit, attempt_ids: Sequence[str]) -> list[str]:
    """Those of the attempts whose files were all removed."""
    found: list[str] = []
    c = quarantine_removals.c
    for some in in_batches(attempt_ids):
        wanted = select(c.attempt_id).where(c.attempt_id.in_(some), c.done == 1)
        found += [row["attempt_id"] for row in unit.rows(wanted)]
    return found


def unknown_among(unit: Unit, attempt_ids: Sequence[str]) -> list[str]:
    """Those ids that belong to no attempt of this ledger."""
    known: set[str] = set()
    c = attempts_table.c
    for some in in_batches(attempt_ids):
        known.update(row["attempt_id"] for row in unit.rows(select(c.attempt_id).where(c.attempt_id.in_(some))))
    return [each for each in attempt_ids if each not in known]


def end_removal(unit: Unit, attempt_id: str) -> None:
    """Note that all files of the attempt are removed."""
    wanted = update(quarantine_removals).where(quarantine_removals.c.attempt_id == attempt_id)
    unit.execute(wanted.where(quarantine_removals.c.done == 0).values(done=1, at_micros=unit.at_micros))


def _select_quarantined(back: Collection[str] = ()) -> Any:
    """Failed attempts in quarantine whose files were not removed, or are there again."""
    both = workloads.c.workload_id == attempts_table.c.workload_id
    kept = disposals.c.attempt_id == attempts_table.c.attempt_id
    gone = quarantine_removals.c.attempt_id == attempts_table.c.attempt_id
    wanted = select(attempts_table.c.attempt_id).join(workloads, both).join(disposals, kept)
    wanted = wanted.outerjoin(quarantine_removals, gone)
    return wanted.where(
        attempts_table.c.state == AttemptState.VERIFICATION_FAILED,
        disposals.c.outcome == DisposalWord.QUARANTINED,
        or_(
            quarantine_removals.c.done.is_(None), quarantine_removals.c.done == 0, attempts_table.c.attempt_id.in_(back)
        ),
    )


def _removal(row: Row) -> Removal:
    return record_from(Removal, row, size_bytes=row["bytes"], done=bool(row["done"]))
