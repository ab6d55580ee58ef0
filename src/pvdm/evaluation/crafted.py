"""The crafted collision: two multisets that an unkeyed sum of SHA-256 cannot tell apart, checked at every run."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from pvdm.digest import Engine, Plan, digest
from pvdm.digest.probe import arrow_schema
from pvdm.errors import Code
from pvdm.evaluation.lattice import find_relation, repeated, split
from pvdm.evaluation.progress import Watch, unwatched
from pvdm.evaluation.record import write_json
from pvdm.evaluation.rows import random_keys
from pvdm.model.projection import ProjectionName, content
from pvdm.model.schema import DecimalType, Field, Kind, PrimitiveType, Schema

KEYS: Final = 1_000
_CANDIDATES: Final = 112
_SCHEMA: Final = Schema(
    (
        Field("payment_id", PrimitiveType(Kind.LONG), required=True),
        Field("payee", PrimitiveType(Kind.STRING), required=True),
        Field("amount", DecimalType(12, 2), required=True),
    )
)
_ARROW: Final = arrow_schema(_SCHEMA)
_COMMENT: Final = (
    "Two different multisets of payments (left and right: how often each row occurs) with the same number of rows and "
    "the same sum of unkeyed SHA-256 over their canonical rows (spec/canonical.md, stored, every column) mod 2^256. "
    "Made by LLL reduction of the lattice of integer relations among the rows' hashes; made again by "
    "`pvdm eval collision --lattice --write-collision FILE`, checked by every `pvdm eval collision`."
)


@dataclass(frozen=True, slots=True)
class Collision:
    """Payments and how often each occurs left and right."""

    payments: pa.RecordBatch
    left: tuple[int, ...]
    right: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CraftedStudy:
    """What the unkeyed sum and the keyed digest say of the two multisets."""

    rows_in_each: int
    multisets_differ: bool
    unkeyed_sums_equal: bool
    keys: int
    keyed_rejected: int

    @property
    def holds(self) -> bool:
        """Whether the unkeyed sum is fooled and the keyed digest is not, under any key tried."""
        return self.multisets_differ and self.unkeyed_sums_equal and self.keyed_rejected == self.keys

    def to_json(self) -> dict[str, object]:
        """The same facts as JSON."""
        return {
            "rows_in_each_multiset": self.rows_in_each,
            "multisets_differ": self.multisets_differ,
            "unkeyed_sums_equal": self.unkeyed_sums_equal,
            "keys": self.keys,
            "keyed_rejected": self.keyed_rejected,
        }


def crafted_study(
    *, seed: int, engine: Engine, keys: int = KEYS, path: Path | None = None, watch: Watch = unwatched
) -> CraftedStudy:
    """Sum the stored pair without a key, then digest it under so many keys."""
    rng = random.Random(f"crafted {seed}")
    collision = load(path)
    plan = _plan()
    hashes = _unkeyed(collision.payments, plan, engine)
    left, right = repeated(collision.payments, collision.left), repeated(collision.payments, collision.right)
    rejected = 0
    for done in range(keys):
        watch("crafted collision", done, keys)
        key = random_keys(rng, plan)
        ours, theirs = (digest(each, plan, key, engine=engine)[ProjectionName.CONTENT] for each in (left, right))
        # The row counts are equal, so only the sums can tell the two apart.
        rejected += not ours.matches(theirs)
    watch("crafted collision", keys, keys)
    sums_equal = _sum(hashes, collision.left) == _sum(hashes, collision.right)
    return CraftedStudy(
        rows_in_each=left.num_rows,
        multisets_differ=len(set(hashes)) == len(hashes) and collision.left != collision.right,
        unkeyed_sums_equal=sums_equal and left.num_rows == right.num_rows,
        keys=keys,
        keyed_rejected=rejected,
    )


def craft(path: Path, *, seed: int, engine: Engine) -> None:
    """Find such a pair anew by lattice reduction and write it."""
    rng = random.Random(f"craft {seed}")
    payments = [
        {
            "payment_id": 88_000 + number,
            "payee": f"account {rng.randrange(10**6):06}",
            "amount": Decimal(rng.randrange(100, 10**6)).scaleb(-2),
        }
        for number in range(_CANDIDATES)
    ]
    relation = find_relation(_unkeyed(pa.RecordBatch.from_pylist(payments, schema=_ARROW), _plan(), engine))
    used = [(payment, each) for payment, each in zip(payments, relation, strict=True) if each]
    left, right = split([each for _, each in used])
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


def load(path: Path | None = None) -> Collision:
    """The pair in that file, or the one that comes with the package."""
    source = resources.files("pvdm.evaluation.data").joinpath("unkeyed_collision.json") if path is None else path
    try:
        return _parse(json.loads(source.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError, pa.ArrowInvalid) as error:
        raise Code.COLLISION_FILE_INVALID(
            f"{source} is not a crafted collision", got=f"{type(error).__name__}: {error}"
        ) from error


def _parse(value: dict[str, Any]) -> Collision:
    if Schema.from_json(value["schema"]).to_json() != _SCHEMA.to_json():
        raise ValueError("another schema")
    payments = [
        {"payment_id": number, "payee": payee, "amount": Decimal(amount)} for number, payee, amount in value["rows"]
    ]
    left, right = (tuple(int(each) for each in value[side]) for side in ("left", "right"))
    if not len(left) == len(right) == len(payments) or min(*left, *right) < 0:
        raise ValueError("multiplicities that do not fit the rows")
    return Collision(pa.RecordBatch.from_pylist(payments, schema=_ARROW), left, right)


def _plan() -> Plan:
    return Plan(_SCHEMA, (content(_SCHEMA),))


def _unkeyed(batch: pa.RecordBatch, plan: Plan, engine: Engine) -> list[int]:
    encoded = engine.encode(plan, ProjectionName.CONTENT, batch)
    return [int.from_bytes(hashlib.sha256(row).digest(), "big") for row in encoded]


def _sum(hashes: Sequence[int], multiplicities: Sequence[int]) -> int:
    return sum(each * times for each, times in zip(hashes, multiplicities, strict=True)) % (1 << 256)
