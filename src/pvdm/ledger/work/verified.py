"""What verification found for each nonce, what became of the files of ended attempts, and what is in quarantine."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from sqlalchemy import Select, and_, or_, select, update

from pvdm.errors import Code
from pvdm.ledger import ids
from pvdm.ledger.connection import Row, read_record, read_row, record_from
from pvdm.ledger.record import events, proofs
from pvdm.ledger.schema.work import DisposalOutcome, disposals, quarantine_removals, verified, workloads
from pvdm.ledger.schema.work import attempts as attempts_table
from pvdm.ledger.unit import Unit, where_given
from pvdm.ledger.work import attempts
from pvdm.ledger.work.attempts import Attempt
from pvdm.model import canonical_json
from pvdm.model.located import WrongRows
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
    located: WrongRows | None = None


@dataclass(frozen=True, slots=True)
class DisposalRecord:
    """What became of an ended attempt's files. `kept` counts those that are still in use."""

    attempt_id: str
    outcome: DisposalOutcome
    removed: int
    kept: int
    note: str


def put(unit: Unit, record: VerifiedRecord) -> None:
    """Store what was found. Until a proof is signed for the nonce, a new result replaces the first."""
    attempts.lock(unit, record.attempt_id)
    kept = tuple(_shorten_finding(each) for each in record.findings[:FINDINGS_KEPT_MAX])
    left_out = record.findings_more + len(record.findings) - len(kept)
    record = replace(record, findings=kept, findings_more=left_out)
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
    unit.update(verified, {"nonce": record.nonce}, **values)


def find(unit: Unit, nonce: str) -> VerifiedRecord | None:
    """What was found for the nonce, or None."""
    return read_row(_record, unit.find(verified, nonce=nonce))


def get(unit: Unit, nonce: str) -> VerifiedRecord:
    """What was found for the nonce. Raises `verified_unknown`."""
    return _record(unit.get(verified, Code.VERIFIED_UNKNOWN, nonce=nonce))


def of_nonces(unit: Unit, nonces: Sequence[str]) -> dict[str, VerifiedRecord]:
    """What was found for each of the nonces that has a result."""
    rows = unit.rows_with(select(verified), verified.c.nonce, nonces)
    return {row["nonce"]: _record(row) for row in rows}


def manifest_locations(unit: Unit, nonces: Sequence[str]) -> set[str]:
    """The locations of the verified manifests of these nonces."""
    rows = unit.rows_with(select(verified.c.location), verified.c.nonce, nonces)
    return {row["location"] for row in rows if row["location"] is not None}


def put_disposal(unit: Unit, record: DisposalRecord) -> DisposalRecord:
    """Note that an ended attempt is cleaned up. The first note stays."""
    unit.insert_new(disposals, **asdict(replace(record, note=record.note[:_TEXT_CHARACTERS])))
    return record_from(DisposalRecord, unit.get(disposals, Code.ATTEMPT_UNKNOWN, attempt_id=record.attempt_id))


def find_disposal(unit: Unit, attempt_id: str) -> DisposalRecord | None:
    """What became of the attempt's files, or None."""
    return read_record(DisposalRecord, unit.find(disposals, attempt_id=attempt_id))


def list_undisposed(unit: Unit, *, since_micros: int = 0) -> list[Attempt]:
    """Attempts that have ended since then and are not cleaned up yet, oldest first."""
    done = select(disposals.c.attempt_id)
    c = attempts_table.c
    ended = (c.state.in_(ATTEMPT.terminal()), c.attempt_id.not_in(done), c.at_micros >= since_micros)
    wanted = select(attempts_table).where(*ended).order_by(c.at_micros).limit(PENDING_PAGE_MAX_ROWS)
    return unit.records(Attempt, wanted)


def _shorten_finding(found: StoredFinding) -> StoredFinding:
    """Texts from files are untrusted: their length is limited and unencodable characters are escaped."""
    texts: dict[str, str | None] = asdict(found)
    cut: dict[str, Any] = {name: text and _writable(text[:_TEXT_CHARACTERS]) for name, text in texts.items()}
    return StoredFinding(**cut)


def _writable(text: str) -> str:
    return text.encode("utf-8", errors="backslashreplace").decode().replace("\0", "\\x00")


def _record(row: Row) -> VerifiedRecord:
    return record_from(
        VerifiedRecord,
        row,
        findings=tuple(StoredFinding(**each) for each in json.loads(row["findings"])),
        located=None if row["located"] is None else WrongRows.from_json(json.loads(row["located"])),
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
    unit: Unit, *, domain: str | None, table_uuid: str | None, after: str | None, back: Collection[str]
) -> list[Attempt]:
    """Attempts whose files are in quarantine, oldest first, after the one of this id; all domains, or one.

    `back` are attempts whose files were removed, but of which some are there again.
    """
    wanted = _select_quarantined(back)
    wanted = where_given(wanted, (workloads.c.domain, domain), (workloads.c.table_uuid, table_uuid))
    if after is not None:
        last = attempts.get(unit, after)
        at, name = attempts_table.c.at_micros, attempts_table.c.attempt_id
        wanted = wanted.where(or_(at > last.at_micros, and_(at == last.at_micros, name > last.attempt_id)))
    wanted = wanted.order_by(attempts_table.c.at_micros, attempts_table.c.attempt_id)
    return unit.records(Attempt, wanted.limit(QUARANTINE_PAGE_MAX_ROWS))


def is_in_quarantine(unit: Unit, attempt_id: str) -> bool:
    """Whether the attempt's files are in quarantine, or some may be after an interrupted removal."""
    return unit.row(_select_quarantined().where(attempts_table.c.attempt_id == attempt_id)) is not None


def find_removal(unit: Unit, attempt_id: str) -> Removal | None:
    """Who removed the attempt's files, or None."""
    return read_row(_removal, unit.find(quarantine_removals, attempt_id=attempt_id))


def begin_removal(unit: Unit, removal: Removal) -> Removal:
    """Note who removes the attempt's files and why, before the first is deleted. The first note stays."""
    unit.insert_new(quarantine_removals, attempt_id=removal.attempt_id, **_removal_facts(removal), done=0)
    return _removal(unit.get(quarantine_removals, Code.ATTEMPT_UNKNOWN, attempt_id=removal.attempt_id))


def note_removal(unit: Unit, removal: Removal, *, known: bool) -> Removal:
    """Note who removes files that are there again after a removal, or of an attempt that the ledger does not know."""
    kind = "quarantine_removed_again" if known else "quarantine_removed_unknown"
    events.note(unit, kind, "quarantine_removals", removal.attempt_id, _removal_facts(removal))
    return replace(removal, done=True)


def _removal_facts(removal: Removal) -> dict[str, str | int]:
    return {
        "token_id": removal.token_id,
        "name": ids.require_name(removal.name, "name"),
        "reason": ids.require_reason(removal.reason),
        "files": removal.files,
        "bytes": removal.size_bytes,
    }


def removed_among(unit: Unit, attempt_ids: Sequence[str]) -> list[str]:
    """Those of the attempts whose files were all removed."""
    c = quarantine_removals.c
    rows = unit.rows_with(select(c.attempt_id).where(c.done == 1), c.attempt_id, attempt_ids)
    return [row["attempt_id"] for row in rows]


def unknown_among(unit: Unit, attempt_ids: Sequence[str]) -> list[str]:
    """Those ids that belong to no attempt of this ledger."""
    own = attempts_table.c.attempt_id
    known = {row["attempt_id"] for row in unit.rows_with(select(own), own, attempt_ids)}
    return [each for each in attempt_ids if each not in known]


def end_removal(unit: Unit, attempt_id: str) -> None:
    """Note that all files of the attempt are removed."""
    wanted = update(quarantine_removals).where(quarantine_removals.c.attempt_id == attempt_id)
    unit.execute(wanted.where(quarantine_removals.c.done == 0).values(done=1, at_micros=unit.at_micros))


def _select_quarantined(back: Collection[str] = ()) -> Select[Any]:
    """Failed attempts in quarantine whose files were not removed, or are there again."""
    both = workloads.c.workload_id == attempts_table.c.workload_id
    kept = disposals.c.attempt_id == attempts_table.c.attempt_id
    gone = quarantine_removals.c.attempt_id == attempts_table.c.attempt_id
    wanted = select(attempts_table).join(workloads, both).join(disposals, kept)
    wanted = wanted.outerjoin(quarantine_removals, gone)
    return wanted.where(
        attempts_table.c.state == AttemptState.VERIFICATION_FAILED,
        disposals.c.outcome == DisposalOutcome.QUARANTINED,
        or_(
            quarantine_removals.c.done.is_(None), quarantine_removals.c.done == 0, attempts_table.c.attempt_id.in_(back)
        ),
    )


def _removal(row: Row) -> Removal:
    return record_from(Removal, row, size_bytes=row["bytes"], done=bool(row["done"]))
