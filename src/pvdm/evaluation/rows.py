"""Random typed rows for the experiments: a schema with nesting, rows that fit it, and one row changed in one column."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final, TypeAlias

import pyarrow as pa

from pvdm.digest import Engine, Keys, Plan
from pvdm.digest.plan import element_key
from pvdm.digest.probe import arrow_schema
from pvdm.model.projection import ProjectionName, content, identity
from pvdm.model.schema import DecimalType, Field, Inner, Kind, ListType, MapType, PrimitiveType, Schema, StructType
from pvdm.model.secret import DigestKey

Row: TypeAlias = Mapping[str, object]

KEY_COLUMNS: Final = ("shop", "order_id")
_STRING: Final = PrimitiveType(Kind.STRING)
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzäöüß 漢字"

SCHEMA: Final = Schema(
    (
        Field("order_id", PrimitiveType(Kind.LONG), required=True),
        Field("shop", _STRING, required=True),
        Field("amount", DecimalType(12, 2)),
        Field("placed_at", PrimitiveType(Kind.TIMESTAMPTZ)),
        Field("due", PrimitiveType(Kind.DATE)),
        Field("paid", PrimitiveType(Kind.BOOLEAN)),
        Field("weight", PrimitiveType(Kind.DOUBLE)),
        Field("note", _STRING),
        Field("tags", ListType(Inner(_STRING))),
        Field("address", StructType((Field("city", _STRING), Field("zip", PrimitiveType(Kind.INT))))),
        Field("extras", MapType(Inner(_STRING, required=True), Inner(PrimitiveType(Kind.LONG)))),
    )
)
_ARROW: Final = arrow_schema(SCHEMA)


def default_plan() -> Plan:
    """Both projections of the experiments' schema."""
    return Plan(SCHEMA, (identity(SCHEMA, KEY_COLUMNS), content(SCHEMA)))


def random_keys(rng: random.Random, plan: Plan) -> dict[ProjectionName, DigestKey]:
    """One key for each projection, from the seed, so that a run can be repeated."""
    return {projection.name: DigestKey(rng.randbytes(32), epoch=0) for projection in plan.projections}


def random_row(rng: random.Random) -> dict[str, object]:
    """A row with random values in every column."""
    return {name: _random_value(name, rng) for name in SCHEMA.names}


def mutate(row: Row, rng: random.Random) -> tuple[dict[str, object], str]:
    """The row with one column changed, and that column's name."""
    name = rng.choice(SCHEMA.names)
    value = row[name]
    while value == row[name]:
        value = _random_value(name, rng)
    return {**row, name: value}, name


def to_batch(rows: Sequence[Row]) -> pa.RecordBatch:
    """The rows as Arrow data."""
    return pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=_ARROW)


def contributions(batch: pa.RecordBatch, plan: Plan, keys: Keys, engine: Engine) -> list[int]:
    """What each row adds to the content digest: the engine's own sum after the row minus the sum before it."""
    accumulator = engine.start(plan, {each: element_key(key, plan, each) for each, key in keys.items()})
    added: list[int] = []
    before = 0
    for index in range(batch.num_rows):
        accumulator.update(batch.slice(index, 1))
        _, after = accumulator.totals()[ProjectionName.CONTENT]
        added.append((after - before) % (1 << 256))
        before = after
    return added


def _random_value(name: str, rng: random.Random) -> object:
    """A value of the column; columns that are not required are null in 15 % of the rows."""
    if name not in KEY_COLUMNS and rng.random() < 0.15:
        return None
    match name:
        case "order_id":
            return rng.getrandbits(62)
        case "shop" | "note":
            return _word(rng)
        case "amount":
            return Decimal(rng.randrange(-(10**9), 10**9)).scaleb(-2)
        case "placed_at":
            return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=rng.randrange(10**14))
        case "due":
            return date(2026, 1, 1) + timedelta(days=rng.randrange(3_000))
        case "paid":
            return rng.random() < 0.5
        case "weight":
            return rng.gauss(0.0, 50.0)
        case "tags":
            return [_word(rng) for _ in range(rng.randrange(4))]
        case "address":
            return {"city": _word(rng), "zip": rng.randrange(100_000)}
        case _:
            return [(f"k{index}", rng.getrandbits(40)) for index in range(rng.randrange(4))]


def _word(rng: random.Random) -> str:
    return "".join(rng.choices(_LETTERS, k=rng.randrange(1, 13)))
