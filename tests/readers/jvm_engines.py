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

from tests.readers.engines import Cases, condition, consecutive_ranges, literal
from tests.readers.publishing import Published
from tests.readers.questions import Question
from tests.readers.rows import CASE, ID
from tests.support.servers.trino import Trino

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _where_cases(cases: Cases) -> str:
    return "(" + " or ".join(f"{CASE} between {first} and {last}" for first, last in consecutive_ranges(cases)) + ")"


def _hex(value: bytes) -> str:
    return f"X'{value.hex()}'"


class Spark:
    """The table in a session's catalog."""

    def __init__(self, spark: SparkSession, lake: str, published: Published, *, vectorized: bool) -> None:
        self.name = "spark" if vectorized else "spark by rows"
        self._spark = spark
        self._view = f"readers_{published.name}_{'v' if vectorized else 'r'}"
        frame = spark.read.option("vectorization-enabled", str(vectorized).lower())
        frame.table(f"{lake}.sales.{published.name}").createOrReplaceTempView(self._view)

    def rows(self, names: Sequence[str], cases: Cases) -> pa.Table:
        return self._query(", ".join(f"`{name}`" for name in names), _where_cases(cases))

    def filtered(self, question: Question, cases: Cases) -> pa.Table | None:
        if isinstance(question.value, uuid.UUID):
            return None  # Iceberg's Java compares identifiers as signed numbers: it misses rows of honest files
        where = condition(question, self._sql_value(question)).replace('"', "`")
        return self._query(f"`{CASE}`, `{ID}`", f"{where} and {_where_cases(cases)}")

    def aggregates(self, case: int, names: Sequence[str]) -> dict[str, Any] | None:  # noqa: ARG002
        return None  # one query for each file would take too long

    def close(self) -> None:
        self._spark.catalog.dropTempView(self._view)

    def _query(self, select_list: str, where: str) -> pa.Table:
        return self._spark.sql(f"select {select_list} from {self._view} where {where}").toArrow()

    def _sql_value(self, question: Question) -> str:
        match question.value:
            case None:
                return ""
            case bytes():
                return _hex(question.value)
            case float():
                return f"cast({question.value!r} as double)"
            case datetime.datetime():
                kind = "timestamp_ntz" if question.value.tzinfo is None else "timestamp"
                return f"{kind} '{question.value.isoformat(sep=' ')}'"
        return literal(question.value)


class TrinoReader:
    """The table in Trino's catalog `lake`."""

    name = "trino"

    def __init__(self, trino: Trino, published: Published) -> None:
        self._trino = trino
        self._table = f'lake.sales."{published.name}"'
        self._types = schema_to_pyarrow(published.table.schema())

    def rows(self, names: Sequence[str], cases: Cases) -> pa.Table:
        return self._query(names, _where_cases(cases))

    def filtered(self, question: Question, cases: Cases) -> pa.Table | None:
        return self._query((CASE, ID), f"{condition(question, self._sql_value(question))} and {_where_cases(cases)}")

    def aggregates(self, case: int, names: Sequence[str]) -> dict[str, Any] | None:  # noqa: ARG002
        return None  # for the same reason as in Spark

    def close(self) -> None:
        pass

    def _query(self, names: Sequence[str], where: str) -> pa.Table:
        select_list = ", ".join(f'"{name}"' for name in names)
        _, rows = self._trino.ask(f"select {select_list} from {self._table} where {where}")
        arrays = {}
        for at, name in enumerate(names):
            kind = self._types.field(name).type
            arrays[name] = pa.array([_value(row[at], name, kind) for row in rows], _plain_type(kind))
        return pa.table(arrays)

    def _sql_value(self, question: Question) -> str:
        match question.value:
            case None:
                return ""
            case bytes():
                return _hex(question.value)
            case uuid.UUID():
                return f"uuid '{question.value}'"
            case float():
                kind = "real" if question.column == "ratio" else "double"
                return f"{kind} '{question.value!r}'"
            case datetime.datetime():
                text = question.value.replace(tzinfo=None).isoformat(sep=" ")
                return f"timestamp '{text}{'' if question.value.tzinfo is None else ' UTC'}'"
            case Decimal():
                return f"decimal '{question.value:f}'"
        return literal(question.value)


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
