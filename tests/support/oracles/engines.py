"""Test rows with columns of many types, and queries that Spark, PyIceberg and DuckDB each answer with their reader."""

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
    """The row with this number. The values of each column repeat with another period, so that all combine."""
    day, time = DAYS[number % len(DAYS)], TIMES[number % len(TIMES)]
    moment = None if time is None else datetime.datetime.fromisoformat(time)
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
ROWS_OF_OLD_SCHEMA = tuple(
    {**dict.fromkeys(NAMES), "id": -1_000 - number, "town": town} for number, town in enumerate(("Bonn", None, "Ulm"))
)
"""Rows that a table got before most of its columns were added: only id and town have values."""


@dataclass(frozen=True, slots=True)
class Question:
    """A filter in the syntax of each engine, and a function that decides it for a row."""

    spark: str
    duckdb: str
    pyiceberg: str
    holds: Callable[[Doc], bool]


def same_text(text: str, holds: Callable[[Doc], bool]) -> Question:
    """A filter whose text is the same for all engines."""
    return Question(text, text, text, holds)


MOMENT = datetime.datetime.fromisoformat(TIMES[2])
EPOCH = datetime.date(1970, 1, 1)
LONG = "Castrop-Rauxel am Z"


def _floor(row: Doc) -> object:
    return (row["place"] or {}).get("floor")


QUESTIONS = (
    same_text("id = 299", lambda row: row["id"] == 299),
    same_text("id >= 40 and id < 350", lambda row: 40 <= row["id"] < 350),
    same_text("town = 'Ulm'", lambda row: row["town"] == "Ulm"),
    same_text("town is null", lambda row: row["town"] is None),
    same_text(f"town > '{LONG}'", lambda row: row["town"] is not None and row["town"].encode() > LONG.encode()),
    # In no engine is NaN below a number. In some it is above all numbers, so no question asks for greater amounts.
    same_text("amount < -1.0", lambda row: row["amount"] is not None and row["amount"] < -1.0),
    Question(
        "isnan(amount)",
        "isnan(amount)",
        "amount is nan",
        lambda row: row["amount"] is not None and math.isnan(row["amount"]),
    ),
    same_text("price > 10.50", lambda row: row["price"] is not None and row["price"] > Decimal("10.50")),
    same_text("small >= 2147483647", lambda row: row["small"] is not None and row["small"] >= 2**31 - 1),
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
    same_text("place.floor = 3", lambda row: _floor(row) == 3),
)
ORDERED_COLUMNS = ("id", "small", "price", "day", "made", "seen", "town", "code", "place.floor")
"""Columns whose least and greatest values are compared."""
FLOAT_COLUMNS = ("ratio", "amount")


class Engines:
    """One table, read as a consumer by three engines.

    `name` is its name in Spark, `table` is PyIceberg's, and `base` is what DuckDB's `iceberg_scan` takes.
    """

    def __init__(self, spark: SparkSession, name: str, table: Table, base: str) -> None:
        self._spark, self._name, self._table = spark, name, table
        self._duckdb = duckdb_connection()
        self._source = f"iceberg_scan('{base}')"

    def close(self) -> None:
        self._duckdb.close()

    def rows(self) -> dict[str, list[str]]:
        """All rows by engine, as sorted texts (`plain`)."""
        listed = ", ".join(NAMES)
        return {
            "spark": plain(self._spark.sql(f"select {listed} from {self._name}").toArrow()),
            "duckdb": plain(self._query_duckdb(f"select {listed} from {self._source}")),
            "pyiceberg": plain(self._table.scan(selected_fields=NAMES).to_arrow().select(list(NAMES))),
        }

    def ids_by_spark(self, questions: Sequence[Question]) -> list[list[int]]:
        """For each question the ids of its rows. One query has a scan for each question."""
        scans = [f"select {at} as question, id from {self._name} where {q.spark}" for at, q in enumerate(questions)]
        found: list[list[int]] = [[] for _ in questions]
        for row in self._spark.sql(" union all ".join(scans)).toArrow().to_pylist():
            found[row["question"]].append(int(str(row["id"])))
        return [sorted(ids) for ids in found]

    def ids(self, question: Question) -> dict[str, list[int]]:
        """The ids of the question's rows, by engine."""
        return {"spark": self.ids_by_spark([question])[0], **self.ids_by_others(question)}

    def ids_by_others(self, question: Question) -> dict[str, list[int]]:
        """The ids of the question's rows, by DuckDB and PyIceberg."""
        found = {
            "duckdb": self._query_duckdb(f"select id from {self._source} where {question.duckdb}"),
            "pyiceberg": self._table.scan(row_filter=question.pyiceberg, selected_fields=("id",)).to_arrow(),
        }
        return {name: sorted(int(str(each)) for each in table["id"].to_pylist()) for name, table in found.items()}

    def counts(self) -> dict[str, int]:
        return {
            "spark": self._spark.sql(f"select count(*) as n from {self._name}").toArrow()["n"][0].as_py(),
            "duckdb": self._query_duckdb(f"select count(*) as n from {self._source}")["n"][0].as_py(),
            "pyiceberg": self._table.scan().count(),
        }

    def ends(self, names: Sequence[str], where: str = "true") -> dict[str, list[str]]:
        """The least and greatest values of the columns, by Spark and DuckDB. For PyIceberg use `scanned_ends`."""
        listed = ", ".join(f"min({name}) as a{at}, max({name}) as b{at}" for at, name in enumerate(names))
        found = {
            "spark": self._spark.sql(f"select {listed} from {self._name} where {where}").toArrow(),
            "duckdb": self._query_duckdb(f"select {listed} from {self._source} where {where}"),
        }
        return {name: plain(table) for name, table in found.items()}

    def _query_duckdb(self, text: str) -> pa.Table:
        found: pa.Table = self._duckdb.execute(text).to_arrow_table()
        return found


def duckdb_connection() -> duckdb.DuckDBPyConnection:
    """A connection that loads its extensions from installed Python packages, so that DuckDB downloads nothing."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "threads": "2"})
    connection.execute("set timezone = 'UTC'")
    for package in ("duckdb_extension_avro", "duckdb_extension_iceberg"):
        (path,) = Path(str(resources.files(package))).rglob("*.duckdb_extension")
        connection.execute(f"load '{path}'")
    return connection


def metadata_location(url: str, token: str, table: str) -> str:
    """The path of the metadata file that the catalog names for the token's owner when it loads the table."""
    namespace, name = table.split(".")
    path = f"{url}/catalog/v1/namespaces/{namespace}/tables/{name}"
    answer = httpx.get(path, headers={"authorization": f"Bearer {token}"}, timeout=30)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["metadata-location"]).removeprefix("file://")


def consumer_catalog(url: str, token: str) -> RestCatalog:
    return RestCatalog("lake", uri=f"{url}/catalog", token=token)


def plain(table: pa.Table) -> list[str]:
    """The rows as sorted texts. Each value has one form, since engines give some types as different Python values."""
    names = table.column_names
    return sorted(repr(tuple(_plain(row[name]) for name in names)) for row in table.to_pylist())


def plain_rows(rows: Sequence[Doc]) -> list[str]:
    """The same texts for rows of this module."""
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


def arrow_table(rows: Sequence[Doc], names: Sequence[str] = NAMES) -> pa.Table:
    """The rows as an Arrow table, which a job returns to `SmallStager`."""
    types: dict[str, Any] = {
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

    return pa.table({name: pa.array([cell(row, name) for row in rows], types[name]) for name in names})


def known_ends(rows: Sequence[Doc], names: Sequence[str]) -> list[str]:
    """The least and greatest values of these rows, without nulls and NaN, in the form of `Engines.ends`."""
    ends: list[object] = []
    for name in names:
        values = [_floor(row) if name == "place.floor" else row[name] for row in rows]
        ordered: list[Any] = [value for value in values if value is not None and _plain(value) != "NaN"]
        ordered.sort(key=lambda value: value.encode() if isinstance(value, str) else value)
        ends += [ordered[0], ordered[-1]] if ordered else [None, None]
    return [repr(tuple(map(_plain, ends)))]


def scanned_ends(table: Table, names: Sequence[str]) -> list[str]:
    """The least and greatest values of the rows that PyIceberg scans."""
    rows = table.scan(selected_fields=tuple({name.partition(".")[0] for name in names})).to_arrow().to_pylist()
    return known_ends(rows, names)
