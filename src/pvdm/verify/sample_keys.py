"""Keys of wrong rows as text: only the sampled rows are looked at, and of them only the identity."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from pvdm.model.printable import quoted
from pvdm.model.schema import Field, Kind, PrimitiveType

SAMPLE_TEXT_MAX_CHARACTERS: Final = 200
_EPOCH: Final = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - a zone would be printed, and is the column's affair
_TIMES: Final = (PrimitiveType(Kind.TIMESTAMP), PrimitiveType(Kind.TIMESTAMPTZ))
Key = tuple[tuple[str, str | None], ...]


def keys_at(batches: Iterable[pa.RecordBatch], rows: Iterable[int], identity: Sequence[Field]) -> dict[int, Key]:
    """The keys of these rows, by their numbers, columns as they are given; what lies behind the last is not read."""
    wanted = sorted(set(rows))
    found: dict[int, Key] = {}
    for start, batch in _numbered(batches):
        here = [row for row in wanted if start <= row < start + batch.num_rows]
        for row in here:
            found[row] = tuple((field.name, _cell(batch, row - start, field)) for field in identity)
        if not wanted or start + batch.num_rows > wanted[-1]:
            break
    return found


def _numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    start = 0
    for batch in batches:
        yield start, batch
        start += batch.num_rows


def _cell(batch: pa.RecordBatch, row: int, field: Field) -> str | None:
    """A column that the file lacks is null in all its rows."""
    if field.name not in batch.schema.names:
        return None
    return text_of(batch.column(field.name)[row], field.type)


def text_of(scalar: Any, kind: object = None) -> str | None:
    """A value for people, cut; bytes in hex, everything else as Arrow writes it."""
    if not scalar.is_valid:
        return None
    try:
        value = scalar.as_py()
    except (ValueError, OverflowError, pa.ArrowException):
        # A day beyond the year 9999, say: Python has no word for it, Arrow may.
        return _cut(str(_as_text(scalar)))
    if isinstance(value, bytes):
        is_uuid = kind == PrimitiveType(Kind.UUID) and len(value) == 16
        return _cut(str(uuid.UUID(bytes=value)) if is_uuid else value.hex())
    return _cut(str(value))


def _as_text(scalar: Any) -> object:
    try:
        return scalar.cast(pa.string()).as_py()
    except pa.ArrowException:
        return "a value that has no text"


def _cut(text: str) -> str:
    return writable(text[:SAMPLE_TEXT_MAX_CHARACTERS])


def writable(text: str) -> str:
    """What a document takes, whatever the text is; it escapes control characters itself."""
    return text.encode("utf-8", "backslashreplace").decode()


def value_text(kind: object, value: object) -> str | None:
    """A partition's value for people: Iceberg has days and times as numbers since 1970."""
    if value is None or isinstance(value, bytes):
        return None if value is None else value.hex()
    try:
        if isinstance(value, int) and kind == PrimitiveType(Kind.DATE):
            return str(_EPOCH.date() + datetime.timedelta(days=value))
        if isinstance(value, int) and kind in _TIMES:
            return str(_EPOCH + datetime.timedelta(microseconds=value))
    except OverflowError:
        pass  # beyond the year 9999: the number says it as well as can be
    return _cut(str(value))


def joined(pairs: Sequence[tuple[str, str | None]]) -> str:
    """Names and values in one line, as partitions are written."""
    return "/".join(f"{quoted(name)}={quoted(value)}" for name, value in pairs)
