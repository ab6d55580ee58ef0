"""The demo's facts: orders written well once and wrongly three times, and what the digests say of each."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from pvdm.digest import Digester, Engine, Keys, Partial, Plan
from pvdm.model.projection import ProjectionName, content, identity
from pvdm.model.schema import DecimalType, Field, Kind, PrimitiveType, Schema
from pvdm.model.secret import DigestKey

DROPPED_ROWS: Final = 6
_ROW_GROUP: Final = 65_536
_FILES: Final = 4

SCHEMA: Final = Schema(
    (
        Field("order_id", PrimitiveType(Kind.LONG), required=True),
        Field("customer", PrimitiveType(Kind.STRING), required=True),
        Field("status", PrimitiveType(Kind.STRING), required=True),
        Field("amount", DecimalType(12, 2), required=True),
        Field("ordered_at", PrimitiveType(Kind.TIMESTAMPTZ), required=True),
        Field("express", PrimitiveType(Kind.BOOLEAN)),
        Field("note", PrimitiveType(Kind.STRING)),
    )
)


@dataclass(frozen=True, slots=True)
class Scene:
    """One write and how its digests compare with what was intended. Digests themselves are secrets and stay out."""

    name: str
    title: str
    rows_intended: int
    rows_written: int
    identity_equal: bool
    content_equal: bool

    @property
    def failure(self) -> str | None:
        """The class of the FAIL verdict, as far as counts and digests alone can tell; none for PASS."""
        if self.content_equal:
            return None
        if self.rows_written != self.rows_intended:
            return "missing" if self.rows_written < self.rows_intended else "added"
        return "modified"

    def to_json(self) -> dict[str, object]:
        """The same facts as JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "rows_intended": self.rows_intended,
            "rows_written": self.rows_written,
            "identity": "equal" if self.identity_equal else "differs",
            "content": "equal" if self.content_equal else "differs",
            "verdict": "PASS" if self.failure is None else "FAIL",
            "class": self.failure,
        }


def play(folder: Path, *, rows: int, seed: int, engine: Engine) -> list[Scene]:
    """Write every scene's files into the folder, read them back, digest them and compare."""
    rng = random.Random(seed)
    orders = make_orders(rows, rng)
    plan = Plan(SCHEMA, (identity(SCHEMA, ["order_id"]), content(SCHEMA)))
    keys = {name: DigestKey(secrets.token_bytes(32), epoch=0) for name in ProjectionName}
    intended = _digest([_write(folder / "intended.parquet", orders)], plan, keys, engine)
    scenes: list[Scene] = []
    for name, title, write in _writers(rng):
        written = _digest(write(folder / name, orders), plan, keys, engine)
        scenes.append(
            Scene(
                name,
                title,
                intended[ProjectionName.CONTENT].rows,
                written[ProjectionName.CONTENT].rows,
                intended[ProjectionName.IDENTITY].matches(written[ProjectionName.IDENTITY]),
                intended[ProjectionName.CONTENT].matches(written[ProjectionName.CONTENT]),
            )
        )
    return scenes


def make_orders(rows: int, rng: random.Random) -> pa.Table:
    """Seeded orders of mixed types, some of them null."""
    start = datetime(2026, 11, 14, tzinfo=UTC)
    return pa.table(
        {
            "order_id": pa.array(range(1, rows + 1), pa.int64()),
            "customer": pa.array([f"c{rng.randrange(50_000):05}" for _ in range(rows)], pa.string()),
            "status": pa.array(rng.choices(("open", "paid", "shipped"), k=rows), pa.string()),
            "amount": pa.array([_cents(rng.randrange(100, 100_000)) for _ in range(rows)], pa.decimal128(12, 2)),
            "ordered_at": pa.array(
                [start + timedelta(microseconds=rng.randrange(86_400_000_000)) for _ in range(rows)],
                pa.timestamp("us", "UTC"),
            ),
            "express": pa.array(rng.choices((True, False, None), k=rows), pa.bool_()),
            "note": pa.array(rng.choices((None, "", "leave at the door", "Grüße"), k=rows), pa.string()),
        }
    )


def _cents(cents: int) -> Decimal:
    return Decimal(cents).scaleb(-2)


_Writer = Callable[[Path, pa.Table], Sequence[Path]]


def _writers(rng: random.Random) -> Iterator[tuple[str, str, _Writer]]:
    same = f"the same rows in another order, in {_FILES} files"
    yield "relaid", same, lambda path, orders: _relaid(path, orders, rng)
    yield "dropped", f"{DROPPED_ROWS} rows dropped", lambda path, orders: _dropped(path, orders, rng)
    yield "doubled", "one chunk written twice", _doubled
    yield "changed", "one amount changed by a cent", lambda path, orders: _changed(path, orders, rng)


def _relaid(path: Path, orders: pa.Table, rng: random.Random) -> Sequence[Path]:
    """Other order, several files, other row groups, compression and encodings."""
    order = list(range(orders.num_rows))
    rng.shuffle(order)
    shuffled = orders.take(pa.array(order, pa.int64()))
    size = -(-orders.num_rows // _FILES)
    return [
        _write(_named(path, f"-{number}"), shuffled.slice(number * size, size), row_group=1_000, plain=True)
        for number in range(_FILES)
    ]


def _dropped(path: Path, orders: pa.Table, rng: random.Random) -> Sequence[Path]:
    gone = set(rng.sample(range(orders.num_rows), DROPPED_ROWS))
    kept = [index for index in range(orders.num_rows) if index not in gone]
    return [_write(_named(path), orders.take(pa.array(kept, pa.int64())))]


def _doubled(path: Path, orders: pa.Table) -> Sequence[Path]:
    """A retry that wrote one chunk a second time, as a file of its own."""
    chunk = orders.slice(0, doubled_rows(orders.num_rows))
    return [_write(_named(path, "-0"), orders), _write(_named(path, "-1"), chunk)]


def _changed(path: Path, orders: pa.Table, rng: random.Random) -> Sequence[Path]:
    amounts: list[Any] = orders["amount"].to_pylist()
    at = rng.randrange(len(amounts))
    amounts[at] += _cents(1)
    column = orders.schema.get_field_index("amount")
    return [_write(_named(path), orders.set_column(column, "amount", pa.array(amounts, pa.decimal128(12, 2))))]


def doubled_rows(rows: int) -> int:
    """How many rows the doubled chunk has: a tenth."""
    return max(rows // 10, 1)


def _named(path: Path, suffix: str = "") -> Path:
    return path.with_name(f"{path.name}{suffix}.parquet")


def _write(path: Path, table: pa.Table, *, row_group: int = _ROW_GROUP, plain: bool = False) -> Path:
    """Write with dictionaries, or plainly and compressed in another way."""
    compression: Literal["zstd", "snappy"] = "zstd" if plain else "snappy"
    pq.write_table(table, path, row_group_size=row_group, compression=compression, use_dictionary=not plain)
    return path


def _digest(paths: Sequence[Path], plan: Plan, keys: Keys, engine: Engine) -> dict[ProjectionName, Partial]:
    """Both digests of what the files really hold."""
    digester = Digester(plan, keys, engine=engine)
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches():
                digester.update(batch)
    return digester.partials()
