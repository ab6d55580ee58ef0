"""Gives the kernel batches with damaged buffers, and compares the rows it encodes with those of the reference."""

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
# The kernel may accept what the reference refuses with this reason: spec/canonical.md, section 7.1, last sentence.
_MAY_DIFFER: Final = "arrow_invalid"


@dataclass(slots=True)
class Tally:
    """How many batches the kernel refused and accepted."""

    refused: int = 0
    accepted: int = 0


def corpus(size: int) -> list[Case]:
    """Random batches that have rows. Every run with the same version of Hypothesis gets the same ones."""
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


def fuzz(kernel: Engine, reference: Engine, batches: list[Case], inputs: int, rnd: Random) -> Tally:
    """Encode `inputs` damaged batches. Raises for an error other than `InputError`, and for rows that differ."""
    tally = Tally()
    for number in range(inputs):
        case = batches[number % len(batches)]
        with damage(case.batch, rnd):
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
def damage(batch: pa.RecordBatch, rnd: Random) -> Iterator[None]:
    """Change one to four bytes of the batch's buffers in place; they are restored afterwards."""
    buffers = [buffer for column in batch.columns for buffer in _data_buffers(column) if buffer.size > 1]
    undo: list[tuple[int, bytes]] = []
    for _ in range(rnd.randint(1, 4) if buffers else 0):
        buffer = rnd.choice(buffers)
        address = buffer.address + rnd.randrange(buffer.size)
        undo.append((address, ctypes.string_at(address, 1)))
        ctypes.memmove(address, bytes([rnd.choice((0, 1, 0x7F, 0x80, 0xFF, rnd.randrange(256)))]), 1)
    try:
        yield
    finally:
        for address, old in reversed(undo):
            ctypes.memmove(address, old, 1)


def _data_buffers(array: Any) -> list[Any]:
    """Every buffer except the validity bitmaps.

    An array stores its number of nulls. With a changed bitmap the number is wrong, which no reader's batch has.
    """
    bitmaps = {buffer.address for buffer in _bitmaps(array)}
    with_buffers = [node for node in nodes(array) if not isinstance(node, pa.ExtensionArray)]
    found = {buffer.address: buffer for node in with_buffers for buffer in node.buffers() if buffer is not None}
    return [buffer for address, buffer in sorted(found.items()) if address not in bitmaps]


def _bitmaps(array: Any) -> Iterator[Any]:
    for node in nodes(array):
        if not isinstance(node, pa.ExtensionArray | pa.RunEndEncodedArray | pa.NullArray) and node.buffers()[0]:
            yield node.buffers()[0]
