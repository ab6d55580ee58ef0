"""What all Stewards of one ledger share: settings, the epoch book (the list of key generations) and key handles."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import select, update

from pvdm.errors import Code
from pvdm.ledger.connection import Row, record_from, record_if_found
from pvdm.ledger.schema.record import epoch_books, shared_settings
from pvdm.ledger.schema.work import handle_workers, handles
from pvdm.ledger.unit import Unit
from pvdm.model.states import HandleState

_LOCK: Final = "common settings"


@dataclass(frozen=True, slots=True)
class SharedSettings:
    """The settings that all Stewards of a ledger share, as text. A setting that no Steward has set yet is None."""

    notary: str
    origin: str
    catalog: str | None = None
    warehouse: str | None = None
    metadata: str | None = None
    vault: str | None = None


def find_settings(unit: Unit) -> SharedSettings | None:
    """The stored settings, or None."""
    return record_if_found(SharedSettings, unit.row(select(shared_settings)))


def lock_settings(unit: Unit) -> None:
    """Lock the settings until the end of the unit."""
    unit.lock_name(_LOCK)


def put_settings(unit: Unit, settings: SharedSettings) -> None:
    """Store the settings. A trigger of the database refuses a change of the notary's name."""
    values = asdict(settings)
    if not unit.insert_new(shared_settings, settings_id=1, **values):
        unit.update(shared_settings, {}, **values)  # the table has one row


def set_log_origin(unit: Unit, origin: str) -> None:
    """Change the log's origin (its name). Without stored settings nothing changes."""
    wanted = update(shared_settings).where(shared_settings.c.origin != origin)
    unit.execute(wanted.values(origin=origin, at_micros=unit.at_micros))


def find_newest_epoch_book(unit: Unit) -> bytes | None:
    """The bytes of the newest epoch book, or None. A stored revision never changes."""
    row = unit.row(select(epoch_books).order_by(epoch_books.c.revision.desc()).limit(1))
    return None if row is None else bytes(row["book"])


def add_epoch_book(unit: Unit, revision: int, book: bytes) -> bool:
    """Store this revision if it is the next one. Returns whether it was stored."""
    unit.lock_name("epoch book")
    row = unit.row(select(epoch_books.c.revision).order_by(epoch_books.c.revision.desc()).limit(1))
    if revision != (0 if row is None else row["revision"]) + 1:
        return False
    unit.insert(epoch_books, revision=revision, book=book)
    return True


@dataclass(frozen=True, slots=True)
class StoredHandle:
    """A handle: at most `redemptions` workers exchange it for a verify job's digest keys. `workers` have done so."""

    handle_sha256: str
    job_id: str
    redemptions: int
    state: HandleState
    context: str | None  # canonical JSON of the facts from which the keys are derived; None before the freeze
    workers: frozenset[str]


def add_handle(unit: Unit, handle: StoredHandle) -> None:
    """Store a new handle. Raises `handle_job_taken` if the job has one."""
    unit.lock_name(f"handle {handle.job_id}")
    if find_handle_of_job(unit, handle.job_id) is not None:
        raise Code.HANDLE_REFUSED(reason="handle_job_taken", got=handle.job_id)
    unit.insert(handles, **{name: value for name, value in asdict(handle).items() if name != "workers"})


def find_handle(unit: Unit, handle_sha256: str) -> StoredHandle | None:
    """The handle of that hash, or None."""
    return _read_handle(unit, unit.find(handles, handle_sha256=handle_sha256))


def find_handle_of_job(unit: Unit, job_id: str) -> StoredHandle | None:
    """The handle of that job, or None."""
    return _read_handle(unit, unit.find(handles, job_id=job_id))


def lock_handle(unit: Unit, handle_sha256: str) -> StoredHandle | None:
    """The handle of that hash, locked until the end of the unit, or None."""
    return _read_handle(unit, unit.lock_row(handles, handle_sha256=handle_sha256))


def change_handle(unit: Unit, old: StoredHandle, new: StoredHandle) -> None:
    """Store the new state of a locked handle. Raises `handle_changed` if `new` lacks a worker of `old`."""
    if not old.workers <= new.workers:
        raise Code.RECORD_DIFFERS(reason="handle_changed", got=new.job_id)
    if (old.state, old.context) != (new.state, new.context):
        unit.update(handles, {"handle_sha256": old.handle_sha256}, state=new.state, context=new.context)
    added = sorted(new.workers - old.workers)
    unit.insert_many(handle_workers, [{"handle_sha256": old.handle_sha256, "worker": worker} for worker in added])


def _read_handle(unit: Unit, row: Row | None) -> StoredHandle | None:
    if row is None:
        return None
    wanted = select(handle_workers.c.worker).where(handle_workers.c.handle_sha256 == row["handle_sha256"])
    return record_from(StoredHandle, row, workers=frozenset(each["worker"] for each in unit.rows(wanted)))
