"""Feeds the kernel batches whose buffers were damaged in memory, and holds what it accepts against the reference."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, seed, settings

from pvdm.digest import Engine
from pvdm.digest.arrow import nodes
from pvdm.errors import InputError
from pvdm.model.projection import ProjectionName
from tests.support.rows.strategies import Case, cases

CORPUS_SEED: Final = 20_250_101
# What an implementation may or may not look at: spec/canonical.md section 7.1, last sentence.
_MAY_DIFFER: Final = "arrow_invalid"


@dataclass(slots=True)
class Tally:
    """What a run met."""

    refused: int = 0
    accepted: int = 0


def corpus(size: int) -> list[Case]:
    """Random batches with rows in them, the same in every run with one version of Hypothesis."""
    found: list[Case] = []

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
        found.append(case)

    collect()
    return [case for case in found if case.batch.num_rows]


def fuzz(kernel: Engine, reference: Engine, entries: list[Case], inputs: int, rnd: Random) -> Tally:
    """Encode `inputs` damaged batches; anything but rows or an `InputError` is raised on."""
    tally = Tally()
    for number in range(inputs):
        case = entries[number % len(entries)]
        with damaged(case.batch, rnd):
            outcome = _outcome(kernel, case)
            if isinstance(outcome, InputError):
                tally.refused += 1
                continue
            tally.accepted += 1
            expected = _outcome(reference, case)
        if isinstance(expected, InputError):
            assert expected.reason == _MAY_DIFFER, (case, expected)
        else:
            assert outcome == expected, case
    return tally


def _outcome(engine: Engine, case: Case) -> list[bytes] | InputError:
    try:
        return engine.encode(case.plan, ProjectionName.CONTENT, case.batch)
    except InputError as refusal:
        return refusal


@contextmanager
def damaged(batch: pa.RecordBatch, rnd: Random) -> Iterator[None]:
    """The batch with one to four bytes of data changed where they lie, put back afterwards."""
    places = [buffer for column in batch.columns for buffer in _data_buffers(column) if buffer.size > 1]
    undo: list[tuple[int, bytes]] = []
    for _ in range(rnd.randint(1, 4) if places else 0):
        buffer = rnd.choice(places)
        address = buffer.address + rnd.randrange(buffer.size)
        undo.append((address, ctypes.string_at(address, 1)))
        ctypes.memmove(address, bytes([rnd.choice((0, 1, 0x7F, 0x80, 0xFF, rnd.randrange(256)))]), 1)
    try:
        yield
    finally:
        for address, old in reversed(undo):
            ctypes.memmove(address, old, 1)


def _data_buffers(array: Any) -> list[Any]:
    """Every buffer but the validity bitmaps.

    Arrays remember how many nulls these hold, so changing one makes a batch that no reader could have made.
    """
    bitmaps = {buffer.address for buffer in _bitmaps(array)}
    held = [node for node in nodes(array) if not isinstance(node, pa.ExtensionArray)]
    found = {buffer.address: buffer for node in held for buffer in node.buffers() if buffer is not None}
    return [buffer for address, buffer in sorted(found.items()) if address not in bitmaps]


def _bitmaps(array: Any) -> Iterator[Any]:
    for node in nodes(array):
        if not isinstance(node, pa.ExtensionArray | pa.RunEndEncodedArray | pa.NullArray) and node.buffers()[0]:
            yield node.buffers()[0]
