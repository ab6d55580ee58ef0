"""Feeds the decoder random bytes and damaged encodings, and holds what it accepts against what the reference writes."""

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
    """Valid encodings of one schema, to be damaged."""

    plan: Plan
    schema: Schema
    rows: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Tally:
    """What a run met."""

    refused: int
    accepted: int


def corpus(engine: Engine, size: int) -> list[Entry]:
    """Encodings of random schemas and rows, the same in every run with one version of Hypothesis."""
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
    """Decode `inputs` hostile rows; anything but a value or an `encoding_malformed` is raised on."""
    accepted = refused = 0
    for entry in entries:
        share = inputs // len(entries) + (entry is entries[-1]) * (inputs % len(entries))
        taken: list[tuple[bytes, Row]] = []
        for row in hostile_rows(entry, share, rnd):
            try:
                taken.append((row, decode_row(entry.schema, entry.plan.mode, row)))
            except InputError as refusal:
                refused += 1
                require_offset(refusal, row)
            if len(taken) == _REENCODE_TOGETHER:
                require_canonical(engine, entry, taken)
                accepted += len(taken)
                taken = []
        require_canonical(engine, entry, taken)
        accepted += len(taken)
    return Tally(refused, accepted)


def require_offset(refusal: InputError, row: bytes) -> None:
    """A refusal says where in the row it came from."""
    offset = refusal.details["offset"]
    assert isinstance(offset, int)
    assert (refusal.reason, 0 <= offset <= len(row)) == ("encoding_malformed", True)


def require_canonical(engine: Engine, entry: Entry, taken: list[tuple[bytes, Row]]) -> None:
    """What the decoder accepts, an encoder writes: the values give back the very bytes."""
    batch = build_batch(entry.schema, entry.plan.mode, [row for _, row in taken], seed=None)
    assert engine.encode(entry.plan, ProjectionName.CONTENT, batch) == [encoded for encoded, _ in taken]


def hostile_rows(entry: Entry, count: int, rnd: Random) -> Iterator[bytes]:
    """One in eight is noise; the others are damaged once or a few times."""
    for _ in range(count):
        if rnd.randrange(8) == 0:
            yield rnd.randbytes(rnd.randrange(40))
            continue
        row = bytearray(rnd.choice(entry.rows))
        for _ in range(rnd.choice((1, 1, 1, 2, 3))):
            rnd.choice(_DAMAGES)(row, entry, rnd)
        yield bytes(row)


def _at(row: bytearray, rnd: Random) -> int:
    return rnd.randrange(len(row) + 1)


def _flip(row: bytearray, entry: Entry, rnd: Random) -> None:
    if row:
        row[rnd.randrange(len(row))] ^= 1 << rnd.randrange(8)


def _step(row: bytearray, entry: Entry, rnd: Random) -> None:
    if row:
        at = rnd.randrange(len(row))
        row[at] = (row[at] + rnd.choice((-1, 1))) % 256


def _replace(row: bytearray, entry: Entry, rnd: Random) -> None:
    if row:
        row[rnd.randrange(len(row))] = rnd.choice((0, 0x2D, 0x2E, 0x30, 0x31, 0x7F, 0x80, 0xFF, rnd.randrange(0x18)))


def _insert(row: bytearray, entry: Entry, rnd: Random) -> None:
    at = _at(row, rnd)
    row[at:at] = rnd.randbytes(rnd.randrange(1, 4))


def _delete(row: bytearray, entry: Entry, rnd: Random) -> None:
    at = _at(row, rnd)
    del row[at : at + rnd.randrange(1, 4)]


def _truncate(row: bytearray, entry: Entry, rnd: Random) -> None:
    del row[_at(row, rnd) :]


def _splice(row: bytearray, entry: Entry, rnd: Random) -> None:
    other = rnd.choice(entry.rows)
    at, start = _at(row, rnd), rnd.randrange(len(other) + 1)
    row[at : at + rnd.randrange(8)] = other[start : start + rnd.randrange(12)]


def _swap(row: bytearray, entry: Entry, rnd: Random) -> None:
    at, size = _at(row, rnd), rnd.randrange(1, 8)
    row[at : at + 2 * size] = row[at + size : at + 2 * size] + row[at : at + size]


_DAMAGES: Final[tuple[Callable[[bytearray, Entry, Random], None], ...]] = (
    _flip,
    _step,
    _replace,
    _insert,
    _delete,
    _truncate,
    _splice,
    _swap,
)
