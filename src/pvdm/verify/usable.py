"""A source that cannot be read now, and one that cannot be read as the contract means it: two errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from pvdm.errors import Code, InputError, PvdmError, UnavailableError, VerificationError
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.observed import class_of

SOURCE_UNUSABLE: Final = Code.SOURCE_UNUSABLE
INT96_HINT: Final = (
    "Spark writes INT96 unless it is told otherwise: write the files again with "
    "spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS, or as an Iceberg table"
)
_MENDED: Final = (
    "mend the source, or migrate the contract or the target; a workload that is open keeps what it has pinned: "
    "an operator abandons it, and a new workload id pins the source as it is then"
)
# Facts about the pinned rows and snapshot that are not about columns, and that no time mends either.
_LASTING: Final = frozenset({Code.VALUE_OUT_OF_RANGE})
# What was pinned once and is no more; nothing else about a snapshot changes after it was pinned.
_GONE: Final = frozenset({Code.SNAPSHOT_SCHEMA_UNKNOWN, Code.SOURCE_GONE, Code.SOURCE_SNAPSHOT_UNKNOWN})
# What the Steward was not told where it runs, and no fact about any source.
_NOT_TOLD: Final = frozenset({Code.STORE_NOT_CONFIGURED})


@contextlib.contextmanager
def source_readable() -> Iterator[None]:
    """A source that cannot be read says nothing about what was staged: no verdict.

    What may be mended, such as a file that is not there, is unavailable, and tried again. Columns that are not what
    the contract means are the pinned source's own, and stay so: `source_unusable` ends the attempt.
    """
    try:
        yield
    except VerificationError as error:
        if class_of(error.code) is FailureClass.SCHEMA or error.code in _LASTING:
            raise unusable(error) from None
        raise _unreadable(error) from None
    except InputError as error:
        raise _unreadable(error) if error.code in _NOT_TOLD else unusable(error) from None


@contextlib.contextmanager
def source_found() -> Iterator[None]:
    """A source that was pinned once is found again as it was: a snapshot and its manifests never change.

    So what is wrong with them now is with a catalog that does not show the table, a store that gives other bytes, or a
    configuration, and may be mended; only a table or snapshot that is gone stays so.
    """
    try:
        yield
    except (InputError, VerificationError) as error:
        if error.code in _GONE:
            raise unusable(error) from None
        raise _unreadable(error) from None


def _unreadable(error: PvdmError) -> UnavailableError:
    return UnavailableError(
        Code.SOURCE_UNREADABLE,
        f"the pinned source cannot be read: {error.message}",
        expected=error.expected,
        got=error.got,
        hint="bring the source's files back; or abandon the workload",
        cause=error.reason,
    )


def unusable(error: PvdmError, hint: str | None = None) -> InputError:
    """The pinned source cannot be read as the contract means it, whenever it is tried, for this reason."""
    if error.code == SOURCE_UNUSABLE and isinstance(error, InputError):
        return error
    nanoseconds = error.code == Code.CAST_REFUSED and any(
        word in str(error.got) for word in ("[ns", "Nanosecond", "_ns")
    )
    return InputError(
        SOURCE_UNUSABLE,
        f"the source cannot be read as the contract means it: {error.message}",
        expected=error.expected,
        got=error.got,
        hint=hint or error.hint or (f"{INT96_HINT}; {_MENDED}" if nanoseconds else _MENDED),
        cause=error.reason,
        **{key: value for key, value in error.details.items() if key in ("file", "column")},
    )
