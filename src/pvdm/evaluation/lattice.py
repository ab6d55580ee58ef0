"""Lattice reduction against sums that are known: why an unkeyed digest is steered and a leaked one is dangerous."""

from __future__ import annotations

import importlib
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pvdm.digest import Engine, Keys, Plan, digest
from pvdm.errors import Code
from pvdm.evaluation import rows
from pvdm.evaluation.progress import Watch, unwatched
from pvdm.model.projection import ProjectionName, content

LEAKED_ROWS: Final = 64
_MODULUS_BITS: Final = 256
# The two conditions (sum 0, count 0) weigh so much that every short vector meets them exactly.
_WEIGHT: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class LeakStudy:
    """Two multisets made from leaked contributions, and what the digest says of them."""

    leaked: int
    rows_in_each: int
    distinct_rows: int
    same_digest_under_leaked_key: bool
    same_digest_under_fresh_key: bool
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether the attack works under the leaked key and is worthless under the next."""
        return self.same_digest_under_leaked_key and not self.same_digest_under_fresh_key

    def to_json(self) -> dict[str, object]:
        """The same facts as JSON."""
        return {
            "leaked_contributions": self.leaked,
            "rows_in_each_multiset": self.rows_in_each,
            "distinct_rows": self.distinct_rows,
            "same_digest_under_leaked_key": self.same_digest_under_leaked_key,
            "same_digest_under_fresh_key": self.same_digest_under_fresh_key,
            "seconds": round(self.seconds, 3),
        }


def require_lattice() -> Any:
    """The lattice library, or an error that names the extra."""
    try:
        return importlib.import_module("flint")
    except ImportError as error:
        raise Code.LATTICE_MISSING(got=str(error)) from None


def find_relation(values: Sequence[int]) -> tuple[int, ...]:
    """Small integers z, not all zero, with Σ z = 0 and Σ z·value = 0 mod 2^256."""
    flint = require_lattice()
    size = len(values)
    basis = [
        [int(row == column) for column in range(size)] + [_WEIGHT * value, _WEIGHT] for row, value in enumerate(values)
    ]
    basis.append([0] * size + [_WEIGHT << _MODULUS_BITS, 0])
    reduced = flint.fmpz_mat(basis).lll()
    short: list[tuple[int, ...]] = []
    for row in range(reduced.nrows()):
        vector = tuple(int(reduced[row, column]) for column in range(size + 2))
        if vector[size] == vector[size + 1] == 0 and any(vector):
            short.append(vector[:size])
    if not short:
        raise Code.RELATION_NOT_FOUND(got=f"none among {size} values")
    return min(short, key=lambda vector: sum(map(abs, vector)))


def split(relation: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The two multisets of a relation, as multiplicities: what stands left and what stands right of the equals sign."""
    return tuple(max(each, 0) for each in relation), tuple(max(-each, 0) for each in relation)


def repeated(batch: pa.RecordBatch, multiplicities: Sequence[int]) -> pa.RecordBatch:
    """Each row of the batch as often as its multiplicity says."""
    indices = [index for index, times in enumerate(multiplicities) for _ in range(times)]
    return batch.take(pa.array(indices, pa.int64()))


def leak_study(*, seed: int, engine: Engine, watch: Watch = unwatched) -> LeakStudy:
    """A producer who learned what 64 of its rows add to the digest makes two multisets that share one."""
    require_lattice()
    rng = random.Random(f"leak {seed}")
    plan = Plan(rows.SCHEMA, (content(rows.SCHEMA),))
    batch = rows.to_batch([rows.random_row(rng) for _ in range(LEAKED_ROWS)])
    leaked_key, fresh_key = rows.random_keys(rng, plan), rows.random_keys(rng, plan)
    leaked = rows.contributions(batch, plan, leaked_key, ProjectionName.CONTENT, engine)
    watch("lattice reduction", 0, 1)
    started = time.perf_counter()
    left, right = split(find_relation(leaked))
    seconds = time.perf_counter() - started
    watch("lattice reduction", 1, 1)
    pair = repeated(batch, left), repeated(batch, right)
    return LeakStudy(
        leaked=LEAKED_ROWS,
        rows_in_each=sum(left),
        distinct_rows=sum(1 for a, b in zip(left, right, strict=True) if a or b),
        same_digest_under_leaked_key=_same(pair, plan, leaked_key, engine),
        same_digest_under_fresh_key=_same(pair, plan, fresh_key, engine),
        seconds=seconds,
    )


def _same(pair: tuple[pa.RecordBatch, pa.RecordBatch], plan: Plan, keys: Keys, engine: Engine) -> bool:
    left, right = (digest(each, plan, keys, engine=engine)[ProjectionName.CONTENT] for each in pair)
    return left.matches(right)
