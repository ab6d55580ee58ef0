"""Gives random and damaged encodings to the tests' decoder of canonical rows (`oracles/canonical_decoder.py`).

An encoding that the decoder accepts must be canonical: an engine encodes the decoded values to the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from hypothesis import HealthCheck, Phase, given, seed, settings

from pvdm.digest import Engine, Plan
from pvdm.errors import InputError
from pvdm.model.projection import ProjectionName
from pvdm.model.schema import Schema
from tests.support.oracles.canonical_decoder import decode_row
from tests.support.rows.arrow_layouts import build_batch
from tests.support.rows.strategies import Case, Row, cases

CORPUS_SEED: Final = 20_240_229
_REENCODE_TOGETHER: Final = 500


@dataclass(frozen=True, slots=True)
class Entry:
    """Valid encodings of rows of one schema; fuzzing changes their bytes."""

    plan: Plan
    schema: Schema
    rows: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Tally:
    """How many inputs the decoder refused and accepted."""

    refused: int
    accepted: int


def corpus(engine: Engine, size: int) -> list[Entry]:
    """Encodings of random rows of random schemas. Every run with the same version of Hypothesis gets the same ones."""
    found: list[Entry] = []

    @seed(CORPUS_SEED)
    @settings(
        max_examples=size,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def collect(case: Case) -> None:
        rows = engine.encode(case.plan, ProjectionName.CONTENT, case.batch)
        found.append(Entry(case.plan, case.plan.projected_schema(ProjectionName.CONTENT), tuple(dict.fromkeys(rows))))

    collect()
    return [entry for entry in found if entry.rows]


def fuzz(engine: Engine, entries: list[Entry], inputs: int, rnd: Random) -> Tally:
    """Decode `inputs` hostile rows, an equal part from each entry. Raises unless each is canonical or refused.

    A row may only be refused as `encoding_malformed`.
    """
    accepted = refused = 0
    for entry in entries:
        remainder = inputs % len(entries) if entry is entries[-1] else 0
        share = inputs // len(entries) + remainder
        decoded: list[tuple[bytes, Row]] = []
        for row in hostile_rows(entry, share, rnd):
            try:
                decoded.append((row, decode_row(entry.schema, entry.plan.mode, row)))
            except InputError as refusal:
                refused += 1
                require_offset(refusal, row)
            if len(decoded) == _REENCODE_TOGETHER:
                require_canonical(engine, entry, decoded)
                accepted += len(decoded)
                decoded = []
        require_canonical(engine, entry, decoded)
        accepted += len(decoded)
    return Tally(refused, accepted)


def require_offset(refusal: InputError, row: bytes) -> None:
    """Require that the error is `encoding_malformed` and gives an offset in the row."""
    offset = refusal.details["offset"]
    assert isinstance(offset, int)
    assert (refusal.reason, 0 <= offset <= len(row)) == ("encoding_malformed", True)


def require_canonical(engine: Engine, entry: Entry, decoded: list[tuple[bytes, Row]]) -> None:
    """Require that the engine encodes each decoded row to the bytes that it was decoded from."""
    batch = build_batch(entry.schema, entry.plan.mode, [row for _, row in decoded], seed=None)
    assert engine.encode(entry.plan, ProjectionName.CONTENT, batch) == [encoded for encoded, _ in decoded]


def hostile_rows(entry: Entry, count: int, rnd: Random) -> Iterator[bytes]:
    """One row in eight has random bytes. The others are valid rows with one to three damages."""
    for _ in range(count):
        if rnd.randrange(8) == 0:
            yield rnd.randbytes(rnd.randrange(40))
            continue
        row = bytearray(rnd.choice(entry.rows))
        for _ in range(rnd.choice((1, 1, 1, 2, 3))):
            rnd.choice(_DAMAGES)(row, entry, rnd)
        yield bytes(row)


def _position(row: bytearray, rnd: Random) -> int:
    """A random position in the row, or its end."""
    return rnd.randrange(len(row) + 1)


def _flip_bit(row: bytearray, entry: Entry, rnd: Random) -> None:
    if row:
        row[rnd.randrange(len(row))] ^= 1 << rnd.randrange(8)


def _add_or_subtract_one(row: bytearray, entry: Entry, rnd: Random) -> None:
    if row:
        at = rnd.randrange(len(row))
        row[at] = (row[at] + rnd.choice((-1, 1))) % 256


def _replace_byte(row: bytearray, entry: Entry, rnd: Random) -> None:
    if row:
        row[rnd.randrange(len(row))] = rnd.choice((0, 0x2D, 0x2E, 0x30, 0x31, 0x7F, 0x80, 0xFF, rnd.randrange(0x18)))


def _insert(row: bytearray, entry: Entry, rnd: Random) -> None:
    at = _position(row, rnd)
    row[at:at] = rnd.randbytes(rnd.randrange(1, 4))


def _delete(row: bytearray, entry: Entry, rnd: Random) -> None:
    at = _position(row, rnd)
    del row[at : at + rnd.randrange(1, 4)]


def _truncate(row: bytearray, entry: Entry, rnd: Random) -> None:
    del row[_position(row, rnd) :]


def _splice(row: bytearray, entry: Entry, rnd: Random) -> None:
    """Replace some bytes with bytes of another row."""
    other = rnd.choice(entry.rows)
    at, start = _position(row, rnd), rnd.randrange(len(other) + 1)
    row[at : at + rnd.randrange(8)] = other[start : start + rnd.randrange(12)]


def _swap_neighbours(row: bytearray, entry: Entry, rnd: Random) -> None:
    """Swap two parts of the same length that follow each other."""
    at, size = _position(row, rnd), rnd.randrange(1, 8)
    row[at : at + 2 * size] = row[at + size : at + 2 * size] + row[at : at + size]


_DAMAGES: Final[tuple[Callable[[bytearray, Entry, Random], None], ...]] = (
    _flip_bit,
    _add_or_subtract_one,
    _replace_byte,
    _insert,
    _delete,
    _truncate,
    _splice,
    _swap_neighbours,
)
