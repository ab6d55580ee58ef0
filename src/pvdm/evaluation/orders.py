"""The demo's data: seeded orders of two days from two shops, and what is true of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

DAYS: Final = ("2026-11-14", "2026-11-15")
SHOPS: Final = ("north", "south")
COLUMNS: Final = (
    "order_id bigint not null, day date not null, shop string not null, customer string not null, "
    "amount decimal(12, 2) not null, ordered_at timestamp not null, express boolean, note string"
)


@dataclass(frozen=True, slots=True)
class Sight:
    """What somebody sees who looks at orders: how many, and how much in all."""

    rows: int
    amount: Decimal

    def to_json(self) -> dict[str, object]:
        """For programs; the amount as text, so that no cent is lost."""
        return {"rows": self.rows, "amount": str(self.amount)}


class Orders:
    """All orders in one table, in the order of their ids."""

    def __init__(self, rows: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.table = _made(rows, self.random)

    def sight(self, day: str) -> Sight:
        """What is true of a day."""
        amounts = [row["amount"] for row in self._of(day)]
        return Sight(len(amounts), sum(amounts, Decimal("0.00")))

    def ids(self, day: str, shop: str) -> list[int]:
        """The ids of a shop's orders of a day."""
        return [row["order_id"] for row in self._of(day) if row["shop"] == shop]

    def _of(self, day: str) -> Iterator[dict[str, Any]]:
        wanted = date.fromisoformat(day)
        for row in self.table.select(["order_id", "day", "shop", "amount"]).to_pylist():
            if row["day"] == wanted:
                yield row


def _made(rows: int, rng: random.Random) -> pa.Table:
    """Half of them of each day, every other one of each shop; mixed types, some values null."""
    days = [date.fromisoformat(DAYS[2 * at // rows]) for at in range(rows)]
    times = [datetime.combine(day, time(), UTC) + timedelta(microseconds=rng.randrange(86_400_000_000)) for day in days]
    return pa.table(
        {
            "order_id": pa.array(range(1, rows + 1), pa.int64()),
            "day": pa.array(days, pa.date32()),
            "shop": pa.array([SHOPS[at % 2] for at in range(rows)], pa.string()),
            "customer": pa.array([f"c{rng.randrange(50_000):05}" for _ in range(rows)], pa.string()),
            "amount": pa.array([_cents(rng.randrange(100, 100_000)) for _ in range(rows)], pa.decimal128(12, 2)),
            "ordered_at": pa.array(times, pa.timestamp("us", "UTC")),
            "express": pa.array(rng.choices((True, False, None), k=rows), pa.bool_()),
            "note": pa.array(rng.choices((None, "", "leave at the door", "Grüße"), k=rows), pa.string()),
        }
    )


def _cents(cents: int) -> Decimal:
    return Decimal(cents).scaleb(-2)
