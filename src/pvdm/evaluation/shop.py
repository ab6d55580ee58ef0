"""The demo's shop: a Steward in this process, seeded orders in Iceberg, and protected tables, on real Spark."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

import pvdm
from pvdm.digest import kernel_engine
from pvdm.errors import Code, PvdmError, UnavailableError
from pvdm.lake.spark import ICEBERG_RUNTIME, SparkCatalog, add_catalog, remove_catalog, running_session, spark_session
from pvdm.metadata.gate.state import table_metadata, table_ref, target_of
from pvdm.model.role import Role
from pvdm.model.statements.migration import Protection, ProtectionAction, contract_sha256
from pvdm.steward.embedded.embedded import EmbeddedSteward, Person
from pvdm.steward.work.contracts import contract_text
from pvdm.trust.approval import signer_fields
from pvdm.trust.keys.pem import PemKeyPair, create_key_pair, open_key_pair
from pvdm.trust.root import RootRole
from pvdm.trust.verify import sign_statement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAYS: Final = ("2026-11-14", "2026-11-15")
SHOPS: Final = ("north", "south")
COLUMNS: Final = (
    "order_id bigint not null, day date not null, shop string not null, customer string not null, "
    "amount decimal(12, 2) not null, ordered_at timestamp not null, express boolean, note string"
)
SOURCE: Final = "raw.orders"
ORDERS: Final = "sales.orders"
RETURNS: Final = "sales.returns"
DOMAIN: Final = "sales"
PRODUCER_CATALOG: Final = "lake"
CONSUMER_CATALOG: Final = "shop"
OPERATOR: Final = "tom"
_HOUR_MICROS: Final = 3_600_000_000

CONTRACT_TEMPLATE: Final = resources.files("pvdm.evaluation").joinpath("shop_contract.yaml").read_text("utf-8")
"""Every file of the source is a chunk of its own; all chunks of a day become visible at once, or none."""


@dataclass(frozen=True, slots=True)
class OrderTotals:
    """The number of orders, and the sum of their amounts."""

    rows: int
    amount: Decimal

    def to_json(self) -> dict[str, object]:
        """The totals in JSON; the amount as text, so that it is exact."""
        return {"rows": self.rows, "amount": str(self.amount)}

    def __str__(self) -> str:
        return f"{self.rows:,} orders, {self.amount:,} in all"


class Orders:
    """All orders in one table, sorted by id."""

    def __init__(self, rows: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.table = _make_orders(rows, self.random)

    def totals(self, day: str) -> OrderTotals:
        """The totals of a day."""
        amounts = [row["amount"] for row in self._rows_of(day)]
        return OrderTotals(len(amounts), sum(amounts, Decimal("0.00")))

    def ids(self, day: str, shop: str) -> list[int]:
        """The ids of a shop's orders of a day."""
        return [row["order_id"] for row in self._rows_of(day) if row["shop"] == shop]

    def _rows_of(self, day: str) -> list[dict[str, Any]]:
        rows = self.table.select(["order_id", "day", "shop", "amount"]).to_pylist()
        return [row for row in rows if row["day"] == date.fromisoformat(day)]


def _make_orders(rows: int, rng: random.Random) -> pa.Table:
    """Orders of both days and both shops, with mixed types and some nulls."""
    days = [date.fromisoformat(DAYS[2 * index // rows]) for index in range(rows)]
    times = [
        datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(microseconds=rng.randrange(86_400_000_000))
        for day in days
    ]
    customers = [f"c{rng.randrange(50_000):05}" for _ in range(rows)]
    amounts = [Decimal(rng.randrange(100, 100_000)).scaleb(-2) for _ in range(rows)]
    return pa.table(
        {
            "order_id": pa.array(range(1, rows + 1), pa.int64()),
            "day": pa.array(days, pa.date32()),
            "shop": pa.array([SHOPS[index % 2] for index in range(rows)], pa.string()),
            "customer": pa.array(customers, pa.string()),
            "amount": pa.array(amounts, pa.decimal128(12, 2)),
            "ordered_at": pa.array(times, pa.timestamp("us", "UTC")),
            "express": pa.array(rng.choices((True, False, None), k=rows), pa.bool_()),
            "note": pa.array(rng.choices((None, "", "leave at the door", "Grüße"), k=rows), pa.string()),
        }
    )


@dataclass(slots=True)
class DemoLake:
    """The Steward, and a Spark session that has its catalog twice, with a producer's and a consumer's token."""

    folder: Path
    steward: EmbeddedSteward
    spark: SparkSession
    orders: Orders
    catalogs: list[SparkCatalog] = field(default_factory=list)

    def consumer_totals(self, table: str) -> OrderTotals:
        """The totals that a consumer reads from a table through Spark."""
        frame = self.spark.table(f"{CONSUMER_CATALOG}.{table}").selectExpr("count(*)", "sum(amount)")
        count, amount = frame.collect()[0]
        return OrderTotals(int(count), Decimal("0.00") if amount is None else amount)

    def connect_catalog(self, name: str, role: Role) -> None:
        """Configure the Steward's catalog in the session, under a name and with a role's rights."""
        engine_token = self.steward.lend(role, DOMAIN)
        catalog = SparkCatalog(name, f"{self.steward.url}/catalog", engine_token.token, engine_token.token_id)
        add_catalog(self.spark, catalog)
        self.catalogs.append(catalog)

    def table_uuid(self, table: str) -> str:
        """The table's UUID."""
        return self.steward.target("table", table).id


@contextlib.contextmanager
def open_demo_lake(folder: Path, *, rows: int, seed: int, store: Path | None = None) -> Iterator[DemoLake]:
    """A demo lake in a folder: source rows and two protected tables; the file `store` describes an object store."""
    kernel_engine()  # only the kernel reads staged files; without it, stop before Spark starts
    key = folder / f"{OPERATOR}.pem"
    with open_session(folder, object_store=store is not None) as spark:
        create_key_pair(key)
        person = Person.from_file(OPERATOR, RootRole.OPERATOR, key.with_name(f"{OPERATOR}.pem.pub"))
        with pvdm.Steward.embedded(folder / "steward", people=[person], store=store) as steward:
            lake = DemoLake(folder, steward, spark, Orders(rows, seed))
            try:
                _set_up(lake, open_key_pair(key))
                yield lake
            finally:
                for catalog in lake.catalogs:
                    remove_catalog(spark, catalog)


def _set_up(lake: DemoLake, key: PemKeyPair) -> None:
    """Create the tables, append the orders to the source, and protect the targets."""
    lake.connect_catalog(PRODUCER_CATALOG, Role.PRODUCER)
    lake.connect_catalog(CONSUMER_CATALOG, Role.CONSUMER)
    for namespace in ("raw", "sales"):
        lake.spark.sql(f"create namespace {PRODUCER_CATALOG}.{namespace}")
    for table, partition in ((SOURCE, "shop"), (ORDERS, "day"), (RETURNS, "day")):
        lake.spark.sql(
            f"create table {PRODUCER_CATALOG}.{table} ({COLUMNS}) using iceberg partitioned by ({partition})"
        )
    delivered = lake.folder / "delivered.parquet"
    pq.write_table(lake.orders.table, delivered)
    lake.spark.read.parquet(str(delivered)).writeTo(f"{PRODUCER_CATALOG}.{SOURCE}").append()
    for table in (ORDERS, RETURNS):
        _protect(lake, table, key)


def _protect(lake: DemoLake, table: str, key: PemKeyPair) -> None:
    """Sign a protection of the table's present state under its contract, as `pvdm protect` does, and submit it."""
    product = table.rpartition(".")[2]
    path = lake.folder / f"{product}.yaml"
    path.write_text(CONTRACT_TEMPLATE.format(product=product, target=table), "utf-8")
    contract = contract_text(path.read_bytes(), str(path))
    view, now = lake.steward.target("table", table), time.time_ns() // 1_000
    target = target_of(table_ref(view), table_metadata(view), contract_sha256(contract))
    signer = signer_fields(OPERATOR, f"{product} go live", now=now, lifetime_micros=_HOUR_MICROS)
    protection = Protection(action=ProtectionAction.PROTECT, target=target, contract=contract, **signer)
    lake.steward.submit_protection(sign_statement(protection, key).to_bytes())


@contextlib.contextmanager
def open_session(
    folder: Path, *, app_name: str = "pvdm demo", config: Mapping[str, str] | None = None, object_store: bool = False
) -> Iterator[SparkSession]:
    """A small Spark session; if Spark runs already, a new session in it."""
    running = running_session()
    if running is not None:
        yield running.newSession()
        return
    log = folder / "spark.log"
    try:
        # Spark's process writes to standard error while it fetches jars and starts, and keeps that descriptor.
        with _redirect_stderr(log):
            settings = _spark_settings(folder) | dict(config or {})
            spark = spark_session([], app_name=app_name, master="local[2]", config=settings, object_store=object_store)
    except UnavailableError:
        raise
    except Exception as error:
        raise _not_started_error(log, error) from error
    try:
        yield spark
    finally:
        spark.stop()


def _spark_settings(folder: Path) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        "spark.local.dir": str(folder / "spark-local"),
        "spark.log.level": "ERROR",
    }


@contextlib.contextmanager
def _redirect_stderr(path: Path) -> Iterator[None]:
    """Redirect standard error to the file, for this process and for processes that are started in the block."""
    try:
        saved_descriptor = os.dup(2)
    except OSError:  # standard error is closed
        yield
        return
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(saved_descriptor, 2)
        os.close(saved_descriptor)
        os.close(file)


def _not_started_error(log: Path, error: Exception) -> PvdmError:
    """The error with the first line of the exception, and the last line of the log."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    with contextlib.suppress(OSError):
        lines += [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()][-1:]
    got = " / ".join(dict.fromkeys((lines[0], lines[-1])))[:400] if lines else type(error).__name__
    return Code.SPARK_NOT_STARTED(expected=f"Spark with {ICEBERG_RUNTIME}", got=got)
