"""What a database error means for the caller: conflict, unavailable or unknown. Values of rows are never shown."""

from __future__ import annotations

import sqlite3
from enum import Enum, auto
from typing import Final

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from pvdm.errors import Code, ConflictError, NotAllowedError, PvdmError, StateUnknownError, UnavailableError
from pvdm.ledger.schema.sql import REFUSED_PREFIX, REFUSED_SQLSTATE

SERIALIZATION: Final = Code.LEDGER_SERIALIZATION


class Phase(Enum):
    """When the error came. Before COMMIT was sent nothing has happened; after it anything may have."""

    CONNECT = auto()
    WORK = auto()
    COMMIT = auto()


_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_HINT_BUSY: Final = "nothing was changed; try again later"
_HINT_UNKNOWN: Final = "do not repeat it; read the ledger to see whether it was committed"


def translate(error: SQLAlchemyError, phase: Phase) -> PvdmError:
    """The pvdm error for a database error. It shows a state or result code and no value of any row."""
    if isinstance(error, PoolTimeoutError):
        return UnavailableError(Code.LEDGER_BUSY, "no connection to the ledger came free in time", hint=_HINT_BUSY)
    if not isinstance(error, DBAPIError):
        return PvdmError(Code.LEDGER_MISUSED, f"the ledger was used wrongly: {type(error).__name__}")
    if isinstance(error.orig, sqlite3.Error):
        return _sqlite(error.orig, phase)
    return _postgresql(error, phase)


def _sqlite(error: sqlite3.Error, phase: Phase) -> PvdmError:
    extended: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    name: str = getattr(error, "sqlite_errorname", "SQLITE_ERROR")
    primary = extended & 0xFF
    if primary in _BUSY:
        # A COMMIT that found readers has not begun to write: the transaction is still open and is rolled back.
        return UnavailableError(Code.LEDGER_BUSY, "the ledger is locked by other work", hint=_HINT_BUSY, result=name)
    if primary == sqlite3.SQLITE_CONSTRAINT:
        return _constraint_error(str(error), name)
    if phase is Phase.COMMIT:
        return _unknown_error(name)
    if primary in _DAMAGED:
        return UnavailableError(Code.LEDGER_DAMAGED, "the ledger's file is damaged", got=name)
    if primary in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISUSE):
        return PvdmError(Code.LEDGER_MISUSED, "the ledger was used wrongly", got=f"{name}: {_first_line(error)}")
    return UnavailableError(Code.LEDGER_UNREACHABLE, "the ledger cannot be read or written", got=name)


def _postgresql(error: DBAPIError, phase: Phase) -> PvdmError:
    state = str(getattr(error.orig, "sqlstate", None) or "")
    # Without a state there is no answer from the server: the connection is lost, or the driver refused a value.
    silent = not state and (phase is not Phase.WORK or isinstance(error, OperationalError | InterfaceError))
    lost = silent or state.startswith(("08", "57P")) or state == "40003" or error.connection_invalidated
    if lost and phase is Phase.COMMIT:
        return _unknown_error(state or "connection lost")
    if lost:
        return UnavailableError(
            Code.LEDGER_UNREACHABLE, "the connection to the ledger is lost", got=state or "no answer"
        )
    if state in ("40001", "40P01"):
        return ConflictError(SERIALIZATION, "another transaction was first", got=state)
    if state in ("55P03", "57014"):
        return UnavailableError(Code.LEDGER_BUSY, "the ledger is locked by other work", hint=_HINT_BUSY, result=state)
    if state == REFUSED_SQLSTATE or state.startswith("23"):
        return _constraint_error(_first_line(error.orig), state)
    if state.startswith(("53", "58", "28", "3D", "25")):
        return UnavailableError(Code.LEDGER_UNREACHABLE, "the ledger cannot be read or written", got=state)
    return PvdmError(Code.LEDGER_MISUSED, "the ledger was used wrongly", got=f"{state}: {_first_line(error.orig)}")


def _constraint_error(message: str, code: str) -> PvdmError:
    if REFUSED_PREFIX in message:
        return NotAllowedError(
            Code.LEDGER_RULE, f"a rule of the ledger refuses it: {message.rpartition(REFUSED_PREFIX)[2]}", result=code
        )
    return ConflictError(
        Code.LEDGER_CONSTRAINT, "the change conflicts with a row of the ledger", got=message, result=code
    )


def _unknown_error(got: str) -> StateUnknownError:
    return StateUnknownError(Code.COMMIT_UNKNOWN, "the ledger did not answer the commit", got=got, hint=_HINT_UNKNOWN)


def _first_line(error: BaseException | None) -> str:
    """The first line of the message. The DETAIL lines after it quote values of rows."""
    return (str(error).splitlines() or [""])[0]
