"""Restores as the ledger remembers them: one that is under way keeps everything else out until it has finished."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import func, select, update

from pvdm.errors import NotAllowedError, UnavailableError
from pvdm.ledger import ids
from pvdm.ledger.connection import Row
from pvdm.ledger.schema.work import StatementKind, restores, statements
from pvdm.ledger.unit import Unit

_LOCK: Final = "restores"


@dataclass(frozen=True, slots=True)
class Marker:
    """A restore: who and why, the log's size in the backup, the checkpoint outside, the epochs and keys of before.

    `outcome` is what it has done to the ledger, as its own words say it; `finished_micros` None is under way.
    """

    restore_id: int
    operator: str
    reason: str
    backup_size: int
    outside_note: bytes
    epoch_before: int
    log_keys: tuple[bytes, ...]
    outcome: dict[str, Any]
    finished_micros: int | None = None


def unfinished(unit: Unit) -> Marker | None:
    """The restore that is under way, if there is one."""
    row = unit.row(select(restores).where(restores.c.finished_micros.is_(None)))
    return None if row is None else _marker(row)


def newest(unit: Unit) -> Marker | None:
    """The last restore that has begun, if there ever was one."""
    row = unit.row(select(restores).order_by(restores.c.restore_id.desc()).limit(1))
    return None if row is None else _marker(row)


def next_id(unit: Unit) -> int:
    """The number of the next restore."""
    row = unit.row(select(func.coalesce(func.max(restores.c.restore_id), 0).label("newest")))
    return 1 if row is None else int(row["newest"]) + 1


def begin(unit: Unit, marker: Marker) -> None:
    """Keep everything else out, from the end of this transaction on."""
    unit.lock_name(_LOCK)
    require_none(unit)
    unit.insert(
        restores,
        restore_id=marker.restore_id,
        operator=ids.name(marker.operator, "operator"),
        reason=ids.reason(marker.reason),
        backup_size=marker.backup_size,
        outside_note=marker.outside_note,
        epoch_before=marker.epoch_before,
        log_keys=json.dumps([der.hex() for der in marker.log_keys]),
        outcome=json.dumps(marker.outcome, sort_keys=True),
        finished_micros=None,
    )


def finish(unit: Unit, restore_id: int) -> None:
    """The restore is done; once more is no change."""
    wanted = update(restores).where(restores.c.restore_id == restore_id, restores.c.finished_micros.is_(None))
    unit.execute(wanted.values(finished_micros=unit.at_micros, at_micros=unit.at_micros))


def require_none(unit: Unit) -> None:
    """Nothing runs on a ledger whose restore was interrupted: it would be a rollback that nobody sees."""
    found = unfinished(unit)
    if found is not None:
        raise UnavailableError(
            "restore_unfinished",
            "a restore of this ledger was interrupted",
            expected="a restore that has finished",
            got=f"restore {found.restore_id} by {found.operator}",
            hint="run `pvdm steward restore` again; it goes on where it stopped",
        )


def newest_micros(unit: Unit) -> int | None:
    """When the ledger was last restored; None if it never was."""
    row = unit.row(select(func.max(restores.c.at_micros).label("newest")))
    return None if row is None else row["newest"]


def require_issued_after(unit: Unit, issued_at: int, *, what: str = "override") -> None:
    """What was signed before the last restore may have been used in the time that the ledger forgot."""
    newest = newest_micros(unit)
    if newest is not None and issued_at <= newest:
        raise NotAllowedError(
            f"{what}_before_restore",
            f"the {what} is older than the last restore of the ledger, which may have forgotten its use",
            expected=f"issued after {newest}",
            got=str(issued_at),
            hint=f"nothing was changed; sign a new {what}",
        )


def log_keys(unit: Unit) -> list[tuple[bytes, bytes]]:
    """Log keys that no epoch book has any more, each with the checkpoint note of the log that it belongs to."""
    return [
        (bytes.fromhex(der), bytes(row["outside_note"]))
        for row in unit.rows(select(restores).order_by(restores.c.restore_id))
        for der in json.loads(row["log_keys"])
    ]


def refill(
    unit: Unit, kind: StatementKind, statement_id: str, envelope: bytes, *, log_index: int, at_micros: int
) -> None:
    """Store an envelope that the log had before, under the time at which the log took it in."""
    values = {
        "statement_id": ids.sha256(statement_id, "statement id"),
        "kind": kind,
        "envelope": envelope,
        "log_index": log_index,
        "at_micros": at_micros,
    }
    unit.execute(statements.insert(), values)


def _marker(row: Row) -> Marker:
    return Marker(
        row["restore_id"],
        row["operator"],
        row["reason"],
        row["backup_size"],
        bytes(row["outside_note"]),
        row["epoch_before"],
        tuple(bytes.fromhex(der) for der in json.loads(row["log_keys"])),
        json.loads(row["outcome"]),
        row["finished_micros"],
    )
