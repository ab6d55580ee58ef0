"""Spark, with and without its vectorized reader, and Trino on a published table; part of the long suite."""

from __future__ import annotations

import base64
import datetime
import uuid
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow

from tests.readers.engines import Cases, condition, literal, runs_of
from tests.readers.publishing import Published
from tests.readers.questions import Question
from tests.readers.rows import CASE, ID
from tests.support.servers.trino import Trino

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _of_cases(cases: Cases) -> str:
    return "(" + " or ".join(f"{CASE} between {first} and {last}" for first, last in runs_of(cases)) + ")"


def _hex(value: bytes) -> str:
    return f"X'{value.hex()}'"


class Spark:
    """The table in a session's catalog."""

    def __init__(self, spark: SparkSession, lake: str, found: Published, *, vectorized: bool) -> None:
        self.name = "spark" if vectorized else "spark by rows"
        self._spark = spark
        self._view = f"readers_{found.name}_{'v' if vectorized else 'r'}"
        frame = spark.read.option("vectorization-enabled", str(vectorized).lower())
        frame.table(f"{lake}.sales.{found.name}").createOrReplaceTempView(self._view)

    def rows(self, names: Sequence[str], cases: Cases) -> pa.Table:
        return self._ask(", ".join(f"`{name}`" for name in names), _of_cases(cases))

    def filtered(self, asked: Question, cases: Cases) -> pa.Table | None:
        if isinstance(asked.value, uuid.UUID):
            return None  # Iceberg's Java compares identifiers as signed numbers: it misses rows of honest files
        where = condition(asked, self._spelled(asked)).replace('"', "`")
        return self._ask(f"`{CASE}`, `{ID}`", f"{where} and {_of_cases(cases)}")

    def aggregates(self, case: int, names: Sequence[str]) -> dict[str, Any] | None:  # noqa: ARG002
        return None  # the whole table's are asked: a query takes too long to ask it of each file

    def close(self) -> None:
        self._spark.catalog.dropTempView(self._view)

    def _ask(self, words: str, where: str) -> pa.Table:
        return self._spark.sql(f"select {words} from {self._view} where {where}").toArrow()

    def _spelled(self, asked: Question) -> str:
        match asked.value:
            case None:
                return ""
            case bytes():
                return _hex(asked.value)
            case float():
                return f"cast({asked.value!r} as double)"
            case datetime.datetime():
                kind = "timestamp_ntz" if asked.value.tzinfo is None else "timestamp"
                return f"{kind} '{asked.value.isoformat(sep=' ')}'"
        return literal(asked.value)


class TrinoReader:
    """The table in Trino's catalog `lake`."""

    name = "trino"

    def __init__(self, trino: Trino, found: Published) -> None:
        self._trino = trino
        self._table = f'lake.sales."{found.name}"'
        self._types = schema_to_pyarrow(found.table.schema())

    def rows(self, names: Sequence[str], cases: Cases) -> pa.Table:
        return self._ask(names, _of_cases(cases))

    def filtered(self, asked: Question, cases: Cases) -> pa.Table | None:
        return self._ask((CASE, ID), f"{condition(asked, self._spelled(asked))} and {_of_cases(cases)}")

    def aggregates(self, case: int, names: Sequence[str]) -> dict[str, Any] | None:  # noqa: ARG002
        return None  # as Spark

    def close(self) -> None:
        pass

    def _ask(self, names: Sequence[str], where: str) -> pa.Table:
        words = ", ".join(f'"{name}"' for name in names)
        _, rows = self._trino.ask(f"select {words} from {self._table} where {where}")
        arrays = {}
        for at, name in enumerate(names):
            kind = self._types.field(name).type
            arrays[name] = pa.array([_value(row[at], name, kind) for row in rows], _plain_type(kind))
        return pa.table(arrays)

    def _spelled(self, asked: Question) -> str:
        match asked.value:
            case None:
                return ""
            case bytes():
                return _hex(asked.value)
            case uuid.UUID():
                return f"uuid '{asked.value}'"
            case float():
                kind = "real" if asked.column == "ratio" else "double"
                return f"{kind} '{asked.value!r}'"
            case datetime.datetime():
                text = asked.value.replace(tzinfo=None).isoformat(sep=" ")
                return f"timestamp '{text}{'' if asked.value.tzinfo is None else ' UTC'}'"
            case Decimal():
                return f"decimal '{asked.value:f}'"
        return literal(asked.value)


def _plain_type(kind: Any) -> Any:
    return pa.binary(16) if str(kind).startswith("extension") else kind


def _value(value: Any, name: str, kind: Any) -> Any:
    """A value of Trino's JSON as Python's."""
    if value is None:
        return None
    if name == "key":
        return uuid.UUID(value).bytes
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_date(kind):
        return datetime.date.fromisoformat(value)
    if pa.types.is_time(kind):
        return datetime.time.fromisoformat(value)
    if pa.types.is_timestamp(kind):
        moment = datetime.datetime.fromisoformat(value.removesuffix(" UTC"))
        return moment if kind.tz is None else moment.replace(tzinfo=datetime.UTC)
    if pa.types.is_floating(kind):
        return float(value)
    if name in ("code", "mark"):
        return base64.b64decode(value)
    if name == "place":
        return {"floor": value[0], "hall": value[1]}
    if name == "counts":
        return list(value.items())
    return value
