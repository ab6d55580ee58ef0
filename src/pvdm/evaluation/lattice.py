"""Finds, by lattice reduction, two multisets with equal sums of row hashes (unkeyed hashes, or leaked keyed ones)."""

from __future__ import annotations

import hashlib
import importlib
import json
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from pvdm.digest import Engine, Keys, Plan, digest
from pvdm.digest.probe import arrow_schema
from pvdm.errors import Code
from pvdm.evaluation import rows
from pvdm.evaluation.record import OnProgress, ignore_progress, write_json
from pvdm.model.projection import ProjectionName, content
from pvdm.model.schema import DecimalType, Field, Kind, PrimitiveType, Schema

LEAKED_ROWS: Final = 64
_MODULUS_BITS: Final = 256
# The conditions on z in `find_relation` (two sums are 0) have this weight, so that short vectors meet them exactly.
_WEIGHT: Final = 1 << 64
KEY_COUNT: Final = 1_000
_CANDIDATES: Final = 112  # payments among which a relation is searched
_SCHEMA: Final = Schema(
    (
        Field("payment_id", PrimitiveType(Kind.LONG), required=True),
        Field("payee", PrimitiveType(Kind.STRING), required=True),
        Field("amount", DecimalType(12, 2), required=True),
    )
)
_PLAN: Final = Plan(_SCHEMA, (content(_SCHEMA),))
_ARROW: Final = arrow_schema(_SCHEMA)
_COMMENT: Final = (
    "Two different multisets of payments (left and right: how often each row occurs) with the same number of rows and "
    "the same sum of unkeyed SHA-256 over their canonical rows (spec/canonical.md, mode stored, every column) mod "
    "2^256. Made by LLL reduction of the lattice of integer relations among the rows' hashes; made again by "
    "`pvdm eval collision --lattice --write-collision FILE`, checked by every `pvdm eval collision`."
)


@dataclass(frozen=True, slots=True)
class LeakStudy:
    """Two multisets made from leaked contributions (what rows add to a sum) under a key that itself has not leaked."""

    leaked_contributions: int
    rows_in_each_multiset: int
    distinct_rows: int
    same_digest_under_leaked_key: bool
    same_digest_under_fresh_key: bool
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether the attack works under the key of the contributions and fails under a fresh key."""
        return self.same_digest_under_leaked_key and not self.same_digest_under_fresh_key

    def to_json(self) -> dict[str, object]:
        """The figures, with rounded seconds."""
        return {**asdict(self), "seconds": round(self.seconds, 3)}


def require_lattice() -> Any:
    """The lattice library, or an error that names the extra."""
    try:
        return importlib.import_module("flint")
    except ImportError as error:
        raise Code.DEPENDENCY_MISSING(reason="lattice_missing", got=str(error)) from None


def find_relation(values: Sequence[int]) -> tuple[int, ...]:
    """Small integers z, not all zero, with Σ z = 0 and Σ z·value = 0 mod 2^256."""
    flint = require_lattice()
    size = len(values)
    # An identity matrix, whose rows become the coefficients z; the last two columns are the weighted sums to be 0.
    basis = [
        [int(row == column) for column in range(size)] + [_WEIGHT * value, _WEIGHT] for row, value in enumerate(values)
    ]
    basis.append([0] * size + [_WEIGHT << _MODULUS_BITS, 0])  # the sum of the values counts mod 2^256 only
    reduced = flint.fmpz_mat(basis).lll()
    short: list[tuple[int, ...]] = []
    for row in range(reduced.nrows()):
        vector = tuple(int(reduced[row, column]) for column in range(size + 2))
        if vector[size] == vector[size + 1] == 0 and any(vector):
            short.append(vector[:size])
    if not short:
        raise Code.RELATION_NOT_FOUND(got=f"none among {size} values")
    return min(short, key=lambda vector: sum(map(abs, vector)))


def split_relation(relation: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The two multisets of a relation, as multiplicities: the positive and the negative coefficients."""
    return tuple(max(each, 0) for each in relation), tuple(max(-each, 0) for each in relation)


def repeat_rows(batch: pa.RecordBatch, multiplicities: Sequence[int]) -> pa.RecordBatch:
    """Each row of the batch, repeated by its multiplicity."""
    indices = [index for index, times in enumerate(multiplicities) for _ in range(times)]
    return batch.take(pa.array(indices, pa.int64()))


def leak_study(*, seed: int, engine: Engine, report: OnProgress = ignore_progress) -> LeakStudy:
    """Make two multisets with one digest from 64 leaked row contributions."""
    require_lattice()
    rng = random.Random(f"leak {seed}")
    plan = Plan(rows.SCHEMA, (content(rows.SCHEMA),))
    batch = rows.to_batch([rows.random_row(rng) for _ in range(LEAKED_ROWS)])
    leaked_key, fresh_key = rows.random_keys(rng, plan), rows.random_keys(rng, plan)
    leaked = rows.contributions(batch, plan, leaked_key, engine)
    report("lattice reduction", 0, 1)
    started = time.perf_counter()
    left, right = split_relation(find_relation(leaked))
    seconds = time.perf_counter() - started
    report("lattice reduction", 1, 1)
    pair = repeat_rows(batch, left), repeat_rows(batch, right)
    return LeakStudy(
        leaked_contributions=LEAKED_ROWS,
        rows_in_each_multiset=sum(left),
        distinct_rows=sum(1 for a, b in zip(left, right, strict=True) if a or b),
        same_digest_under_leaked_key=_have_same_digest(pair, plan, leaked_key, engine),
        same_digest_under_fresh_key=_have_same_digest(pair, plan, fresh_key, engine),
        seconds=seconds,
    )


def _have_same_digest(pair: tuple[pa.RecordBatch, pa.RecordBatch], plan: Plan, keys: Keys, engine: Engine) -> bool:
    left, right = (digest(each, plan, keys, engine=engine)[ProjectionName.CONTENT] for each in pair)
    return left.matches(right)


@dataclass(frozen=True, slots=True)
class Collision:
    """Payments, and how often each occurs in the left and in the right multiset."""

    payments: pa.RecordBatch
    left: tuple[int, ...]
    right: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CraftedStudy:
    """Whether the unkeyed sums and the keyed digests of a crafted collision's two multisets differ."""

    rows_in_each_multiset: int
    multisets_differ: bool
    unkeyed_sums_equal: bool
    keys: int
    keyed_rejected: int  # the number of keys under which the digests differ

    @property
    def holds(self) -> bool:
        """Whether the unkeyed sums are equal, and the keyed digests differ under every key."""
        return self.multisets_differ and self.unkeyed_sums_equal and self.keyed_rejected == self.keys

    def to_json(self) -> dict[str, object]:
        """The figures."""
        return asdict(self)


def crafted_study(
    *, seed: int, engine: Engine, keys: int = KEY_COUNT, path: Path | None = None, report: OnProgress = ignore_progress
) -> CraftedStudy:
    """Sum the stored collision's two multisets without a key, then digest them under `keys` random keys."""
    rng = random.Random(f"crafted {seed}")
    collision = load_collision(path)
    hashes = _unkeyed_hashes(collision.payments, engine)
    left, right = repeat_rows(collision.payments, collision.left), repeat_rows(collision.payments, collision.right)
    rejected = 0
    for done in range(keys):
        report("crafted collision", done, keys)
        # The row counts are equal, so only the sums can tell the two apart.
        rejected += not _have_same_digest((left, right), _PLAN, rows.random_keys(rng, _PLAN), engine)
    report("crafted collision", keys, keys)
    sums_equal = _sum(hashes, collision.left) == _sum(hashes, collision.right)
    return CraftedStudy(
        rows_in_each_multiset=left.num_rows,
        multisets_differ=len(set(hashes)) == len(hashes) and collision.left != collision.right,
        unkeyed_sums_equal=sums_equal and left.num_rows == right.num_rows,
        keys=keys,
        keyed_rejected=rejected,
    )


def write_new_collision(path: Path, *, seed: int, engine: Engine) -> None:
    """Find a new collision by lattice reduction, and write it to a file."""
    rng = random.Random(f"craft {seed}")
    payments = [
        {
            "payment_id": 88_000 + number,
            "payee": f"account {rng.randrange(10**6):06}",
            "amount": Decimal(rng.randrange(100, 10**6)).scaleb(-2),
        }
        for number in range(_CANDIDATES)
    ]
    relation = find_relation(_unkeyed_hashes(pa.RecordBatch.from_pylist(payments, schema=_ARROW), engine))
    used = [(payment, each) for payment, each in zip(payments, relation, strict=True) if each]
    left, right = split_relation([each for _, each in used])
    write_json(
        path,
        {
            "comment": _COMMENT,
            "seed": seed,
            "schema": _SCHEMA.to_json(),
            "rows": [[payment["payment_id"], payment["payee"], str(payment["amount"])] for payment, _ in used],
            "left": list(left),
            "right": list(right),
        },
    )


def load_collision(path: Path | None = None) -> Collision:
    """The collision in the file `path`, or the collision that comes with the package."""
    file = resources.files("pvdm.evaluation").joinpath("unkeyed_collision.json") if path is None else path
    try:
        return _parse_collision(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError, pa.ArrowInvalid) as error:
        message, got = f"{file} is not a crafted collision", f"{type(error).__name__}: {error}"
        raise Code.INPUT_FILE_INVALID(message, reason="collision_file_invalid", got=got) from error


def _parse_collision(value: dict[str, Any]) -> Collision:
    if Schema.from_json(value["schema"]).to_json() != _SCHEMA.to_json():
        raise ValueError("another schema")
    payments = [
        {"payment_id": number, "payee": payee, "amount": Decimal(amount)} for number, payee, amount in value["rows"]
    ]
    left, right = (tuple(int(each) for each in value[side]) for side in ("left", "right"))
    if {len(left), len(right)} != {len(payments)} or min(*left, *right) < 0:
        raise ValueError("multiplicities that do not fit the rows")
    return Collision(pa.RecordBatch.from_pylist(payments, schema=_ARROW), left, right)


def _unkeyed_hashes(batch: pa.RecordBatch, engine: Engine) -> list[int]:
    encoded = engine.encode(_PLAN, ProjectionName.CONTENT, batch)
    return [int.from_bytes(hashlib.sha256(row).digest(), "big") for row in encoded]


def _sum(hashes: Sequence[int], multiplicities: Sequence[int]) -> int:
    return sum(each * times for each, times in zip(hashes, multiplicities, strict=True)) % (1 << 256)
