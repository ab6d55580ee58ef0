"""Rows of every kind, and one question asked of Spark, PyIceberg and DuckDB, each by its own reader."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import httpx
import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from tests.support.lake.metadata import column, schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Doc = dict[str, Any]
UTC = datetime.UTC

PLACE: Doc = {"type": "struct", "fields": [column(13, "floor", "int"), column(14, "hall", "string")]}
TAGS: Doc = {"type": "list", "element-id": 16, "element": "string", "element-required": False}
COUNTS: Doc = {
    "type": "map",
    "key-id": 18,
    "key": "string",
    "value-id": 19,
    "value": "long",
    "value-required": False,
}
SCHEMA = schema(
    0,
    column(1, "id"),
    column(2, "flag", "boolean"),
    column(3, "small", "int"),
    column(4, "ratio", "float"),
    column(5, "amount", "double"),
    column(6, "price", "decimal(12, 2)"),
    column(7, "day", "date"),
    column(8, "made", "timestamp"),
    column(9, "seen", "timestamptz"),
    column(10, "town", "string"),
    column(11, "code", "binary"),
    column(12, "place", PLACE),
    column(15, "tags", TAGS),
    column(17, "counts", COUNTS),
)
NAMES = tuple(str(each["name"]) for each in SCHEMA["fields"])
TOWNS = ("Ulm", "Castrop-Rauxel am Emscherland", "Castrop-Rauxel an der Ruhr", "Żary", "", "\U0010ffff\U0010ffff", None)
AMOUNTS = (0.0, -0.0, 2.5, -1e300, math.inf, -math.inf, math.nan, None, 1e-300)
DAYS = ("1969-12-31", "1970-01-01", "2024-02-29", "2026-11-14", None)
TIMES = ("1969-12-31T23:59:59.999999", "2026-11-14T12:59:59.999999", "2026-11-14T13:00:00", None)


def row(number: int) -> Doc:
    """The row of this number: every column has its own period, so that nulls and ends meet in every way."""
    day, at = DAYS[number % len(DAYS)], TIMES[number % len(TIMES)]
    moment = None if at is None else datetime.datetime.fromisoformat(at)
    amount = AMOUNTS[number % len(AMOUNTS)]
    return {
        "id": number * 7 - 100,
        "flag": (True, False, None)[number % 3],
        "small": (2**31 - 1, -(2**31) + 48, 0, None, 150)[number % 5] if number % 2 else number,
        "ratio": (0.5, -0.25, math.nan, None)[number % 4],
        "amount": amount,
        "price": None if number % 6 == 0 else Decimal(number * 37 - 2_000).scaleb(-2),
        "day": None if day is None else datetime.date.fromisoformat(day),
        "made": moment,
        "seen": None if moment is None else moment.replace(tzinfo=UTC) + datetime.timedelta(days=number % 2),
        "town": TOWNS[number % len(TOWNS)],
        "code": None if number % 5 == 4 else bytes([number, 255, 0]),
        "place": None
        if number % 8 == 7
        else {"floor": None if number % 9 == 8 else number % 4, "hall": f"h{number % 3}"},
        "tags": None if number % 7 == 6 else [None if number % 4 == 3 else "a"] * (number % 3),
        "counts": None if number % 11 == 10 else {f"k{number % 2}": None if number % 4 == 1 else number},
    }


ROWS = tuple(row(number) for number in range(120))
OLD = tuple({**dict.fromkeys(NAMES), "id": -1_000 - at, "town": town} for at, town in enumerate(("Bonn", None, "Ulm")))


@dataclass(frozen=True, slots=True)
class Question:
    """A filter in the words of each engine, and what it means."""

    spark: str
    duckdb: str
    pyiceberg: str
    holds: Callable[[Doc], bool]


def same(text: str, holds: Callable[[Doc], bool]) -> Question:
    """Words that all of them understand."""
    return Question(text, text, text, holds)


MOMENT = datetime.datetime.fromisoformat(TIMES[2])
EPOCH = datetime.date(1970, 1, 1)
LONG = "Castrop-Rauxel am Z"


def _floor(row: Doc) -> object:
    return (row["place"] or {}).get("floor")


QUESTIONS = (
    same("id = 299", lambda row: row["id"] == 299),
    same("id >= 40 and id < 350", lambda row: 40 <= row["id"] < 350),
    same("town = 'Ulm'", lambda row: row["town"] == "Ulm"),
    same("town is null", lambda row: row["town"] is None),
    same(f"town > '{LONG}'", lambda row: row["town"] is not None and row["town"].encode() > LONG.encode()),
    # No engine's NaN is below anything, and only some have it above everything.
    same("amount < -1.0", lambda row: row["amount"] is not None and row["amount"] < -1.0),
    Question(
        "isnan(amount)",
        "isnan(amount)",
        "amount is nan",
        lambda row: row["amount"] is not None and math.isnan(row["amount"]),
    ),
    same("price > 10.50", lambda row: row["price"] is not None and row["price"] > Decimal("10.50")),
    same("small >= 2147483647", lambda row: row["small"] is not None and row["small"] >= 2**31 - 1),
    Question(
        "day < date'1970-01-01'",
        "day < date'1970-01-01'",
        "day < '1970-01-01'",
        lambda row: row["day"] is not None and row["day"] < EPOCH,
    ),
    Question(
        "made >= timestamp_ntz'2026-11-14 13:00:00'",
        "made >= timestamp'2026-11-14 13:00:00'",
        "made >= '2026-11-14T13:00:00'",
        lambda row: row["made"] is not None and row["made"] >= MOMENT,
    ),
    Question(
        "seen < timestamp'2026-11-15 12:59:59.999999+00:00'",
        "seen < timestamptz'2026-11-15 12:59:59.999999+00:00'",
        "seen < '2026-11-15T12:59:59.999999+00:00'",
        lambda row: row["seen"] is not None and row["seen"] < datetime.datetime(2026, 11, 15, 12, 59, 59, 999_999, UTC),
    ),
    same("place.floor = 3", lambda row: _floor(row) == 3),
)
ENDS = ("id", "small", "price", "day", "made", "seen", "town", "code", "place.floor")
FLOATS = ("ratio", "amount")


class Engines:
    """One table in three engines, as a consumer sees it."""

    def __init__(self, spark: SparkSession, name: str, table: Table, base: str) -> None:
        self._spark, self._name, self._table = spark, name, table
        self._duckdb = duckdb_connection()
        self._source = f"iceberg_scan('{base}')"

    def close(self) -> None:
        self._duckdb.close()

    def rows(self) -> dict[str, list[str]]:
        """Every row of every engine, in one form and order."""
        listed = ", ".join(NAMES)
        return {
            "spark": plain(self._spark.sql(f"select {listed} from {self._name}").toArrow()),
            "duckdb": plain(self._ask(f"select {listed} from {self._source}")),
            "pyiceberg": plain(self._table.scan(selected_fields=NAMES).to_arrow().select(list(NAMES))),
        }

    def ids_by_spark(self, questions: Sequence[Question]) -> list[list[int]]:
        """The ids of the rows for which each holds: one query, in which each question has a scan of its own."""
        scans = [f"select {at} as asked, id from {self._name} where {each.spark}" for at, each in enumerate(questions)]
        found: list[list[int]] = [[] for _ in questions]
        for row in self._spark.sql(" union all ".join(scans)).toArrow().to_pylist():
            found[row["asked"]].append(int(str(row["id"])))
        return [sorted(ids) for ids in found]

    def ids(self, asked: Question) -> dict[str, list[int]]:
        """The ids of the rows for which it holds."""
        return {"spark": self.ids_by_spark([asked])[0], **self.ids_by_others(asked)}

    def ids_by_others(self, asked: Question) -> dict[str, list[int]]:
        found = {
            "duckdb": self._ask(f"select id from {self._source} where {asked.duckdb}"),
            "pyiceberg": self._table.scan(row_filter=asked.pyiceberg, selected_fields=("id",)).to_arrow(),
        }
        return {name: sorted(int(str(each)) for each in table["id"].to_pylist()) for name, table in found.items()}

    def counts(self) -> dict[str, int]:
        return {
            "spark": self._spark.sql(f"select count(*) as n from {self._name}").toArrow()["n"][0].as_py(),
            "duckdb": self._ask(f"select count(*) as n from {self._source}")["n"][0].as_py(),
            "pyiceberg": self._table.scan().count(),
        }

    def ends(self, names: Sequence[str], where: str = "true") -> dict[str, list[str]]:
        """The least and the greatest value of each column; PyIceberg has no such question, so its rows are asked."""
        listed = ", ".join(f"min({name}) as a{at}, max({name}) as b{at}" for at, name in enumerate(names))
        found = {
            "spark": self._spark.sql(f"select {listed} from {self._name} where {where}").toArrow(),
            "duckdb": self._ask(f"select {listed} from {self._source} where {where}"),
        }
        return {name: plain(table) for name, table in found.items()}

    def _ask(self, text: str) -> pa.Table:
        found: pa.Table = self._duckdb.execute(text).to_arrow_table()
        return found


def duckdb_connection() -> duckdb.DuckDBPyConnection:
    """A connection with the packaged extensions: nothing is fetched."""
    made = duckdb.connect(config={"autoinstall_known_extensions": "false", "threads": "2"})
    made.execute("set timezone = 'UTC'")
    for package in ("duckdb_extension_avro", "duckdb_extension_iceberg"):
        (path,) = Path(str(resources.files(package))).rglob("*.duckdb_extension")
        made.execute(f"load '{path}'")
    return made


def metadata_location(url: str, token: str, table: str) -> str:
    """The metadata file that the consumer's answer points to."""
    namespace, name = table.split(".")
    path = f"{url}/catalog/v1/namespaces/{namespace}/tables/{name}"
    answer = httpx.get(path, headers={"authorization": f"Bearer {token}"}, timeout=30)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["metadata-location"]).removeprefix("file://")


def consumer_catalog(url: str, token: str) -> RestCatalog:
    return RestCatalog("lake", uri=f"{url}/catalog", token=token)


def plain(table: pa.Table) -> list[str]:
    """Rows as text, with every value in one form, in one order."""
    names = table.column_names
    return sorted(repr(tuple(_plain(row[name]) for name in names)) for row in table.to_pylist())


def told(rows: Sequence[Doc]) -> list[str]:
    """The same of rows that are known."""
    return sorted(repr(tuple(_plain(row[name]) for name in NAMES)) for row in rows)


def _plain(value: object) -> object:
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case datetime.datetime():
            return value.replace(tzinfo=None) if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        case Decimal():
            return str(value.quantize(Decimal("0.01")))
        case dict() if set(value) == {"floor", "hall"}:
            return ("struct", value["floor"], value["hall"])
        case dict():
            return ("map", *sorted(value.items()))
        case list() if value and isinstance(value[0], tuple):
            return ("map", *sorted(value))
        case list():
            return ("list", *map(_plain, value))
        case _:
            return value


def arrow(rows: Sequence[Doc], names: Sequence[str] = NAMES) -> pa.Table:
    """Rows for the small stager."""
    kinds: dict[str, Any] = {
        "id": pa.int64(),
        "flag": pa.bool_(),
        "small": pa.int32(),
        "ratio": pa.float32(),
        "amount": pa.float64(),
        "price": pa.decimal128(12, 2),
        "day": pa.date32(),
        "made": pa.timestamp("us"),
        "seen": pa.timestamp("us", "UTC"),
        "town": pa.string(),
        "code": pa.binary(),
        "place": pa.struct([("floor", pa.int32()), ("hall", pa.string())]),
        "tags": pa.list_(pa.string()),
        "counts": pa.map_(pa.string(), pa.int64()),
    }

    def cell(row: Doc, name: str) -> Any:
        return list(row[name].items()) if name == "counts" and row[name] is not None else row[name]

    return pa.table({name: pa.array([cell(row, name) for row in rows], kinds[name]) for name in names})


def known_ends(rows: Sequence[Doc], names: Sequence[str]) -> list[str]:
    """The least and the greatest of these rows, as every engine should tell them."""
    found: list[object] = []
    for name in names:
        values = [_floor(row) if name == "place.floor" else row[name] for row in rows]
        there: list[Any] = [value for value in values if value is not None and _plain(value) != "NaN"]
        there.sort(key=lambda value: value.encode() if isinstance(value, str) else value)
        found += [there[0], there[-1]] if there else [None, None]
    return [repr(tuple(map(_plain, found)))]


def scanned_ends(table: Table, names: Sequence[str]) -> list[str]:
    """The same from a scan of PyIceberg."""
    rows = table.scan(selected_fields=tuple({name.partition(".")[0] for name in names})).to_arrow().to_pylist()
    return known_ends(rows, names)
