"""Engines that read a published table: each by its own reader of Parquet files, most by their own reader of Iceberg."""

from __future__ import annotations

import datetime
import functools
import itertools
import operator
import os
import re
import tempfile
import uuid
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Protocol

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
from datafusion import functions
from pyiceberg.expressions import (
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
    parser,
)
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import ALWAYS_TRUE

from tests.readers.publishing import Published
from tests.readers.questions import COMPARED, EQUALS_ONLY, Question
from tests.readers.rows import CASE, ID, ORDERED
from tests.support.oracles.engines import duckdb_connection

_ABSENT: Final = re.compile('Referenced column "([a-z0-9]+)" not found')
Cases = Sequence[int]
"""Which files of the table are asked about, in order of their numbers."""


class Reader(Protocol):
    """One engine on one published table."""

    name: str

    def rows(self, names: Sequence[str], cases: Cases) -> pa.Table:
        """The cases' rows of these columns, the case first."""

    def filtered(self, question: Question, cases: Cases) -> pa.Table | None:
        """Case and id of the cases' rows for which the filter holds; None if the engine cannot be asked this."""

    def aggregates(self, case: int, names: Sequence[str]) -> dict[str, Any] | None:
        """Counts, least and greatest values of one case's file alone; None if the engine cannot be asked this."""

    def close(self) -> None: ...


def literal(value: Any) -> str:
    """A value in the SQL of DuckDB, Spark and Trino. Floats, bytes and UUIDs differ: each engine has its own form."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case Decimal():
            return f"{value:f}"
        case str():
            return f"'{value}'"
        case datetime.datetime():
            kind = "timestamp" if value.tzinfo is None else "timestamptz"
            return f"{kind} '{value.isoformat(sep=' ')}'"
        case datetime.date():
            return f"date '{value.isoformat()}'"
        case datetime.time():
            return f"time '{value.isoformat()}'"
    raise AssertionError(value)


def condition(question: Question, sql_value: str) -> str:
    column = f'"{question.column}"'
    return f"{column} {question.sign}" + ("" if question.value is None else f" {sql_value}")


class PyIceberg:
    name = "pyiceberg"
    _SIGNS: Final[dict[str, Any]] = {
        "=": EqualTo,
        "<": LessThan,
        "<=": LessThanOrEqual,
        ">": GreaterThan,
        ">=": GreaterThanOrEqual,
    }

    def __init__(self, published: Published) -> None:
        self._table = published.table
        self._published = published

    def rows(self, names: Sequence[str], cases: Cases) -> pa.Table:
        return self._scan(names, ALWAYS_TRUE, cases)

    def filtered(self, question: Question, cases: Cases) -> pa.Table:
        return self._scan((CASE, ID), self._expression(question), cases)

    def aggregates(self, case: int, names: Sequence[str]) -> dict[str, Any] | None:  # noqa: ARG002
        counted: int = ds.dataset(self._published.files[case]).count_rows()
        return {"rows": counted}

    def close(self) -> None:
        pass

    def _scan(self, names: Sequence[str], where: BooleanExpression, cases: Cases) -> pa.Table:
        scan = self._table.scan(row_filter=where, selected_fields=tuple(names))
        wanted = {self._published.locations[case] for case in cases}
        tasks = [task for task in scan.plan_files() if task.file.file_path in wanted]
        made = ArrowScan(self._table.metadata, self._table.io, scan.projection(), scan.row_filter)
        return made.to_table(tasks).select(list(names))

    def _expression(self, question: Question) -> BooleanExpression:
        if question.value is None:
            return parser.parse(f"{question.column} {question.sign}")
        value = question.value
        if isinstance(value, datetime.datetime | datetime.time):
            value = value.isoformat()
        made: BooleanExpression = self._SIGNS[question.sign](question.column, value)
        return made


def consecutive_ranges(cases: Cases) -> list[tuple[int, int]]:
    """The first and the last number of each run of consecutive numbers."""
    groups = itertools.groupby(enumerate(cases), lambda pair: pair[1] - pair[0])
    listed = [[number for _, number in group] for _, group in groups]
    return [(each[0], each[-1]) for each in listed]


_UNSUPPORTED: Final = "unsupported"


class DuckDB:
    """By its own reader of Iceberg, or by its reader of Parquet on the table's files."""

    def __init__(self, published: Published, *, iceberg: bool) -> None:
        self.name = "duckdb iceberg" if iceberg else "duckdb"
        self._published, self._iceberg = published, iceberg
        self._connection = duckdb_connection()

    def rows(self, names: Sequence[str], cases: Cases) -> pa.Table:
        return self._query(", ".join(f'"{name}"' for name in names), "true", cases)

    def filtered(self, question: Question, cases: Cases) -> pa.Table | None:
        sql_value = self._sql_value(question)
        if sql_value == _UNSUPPORTED:
            return None  # without Iceberg's types some files have identifiers, and others bytes
        return self._query(f'"{CASE}", "{ID}"', condition(question, sql_value), cases)

    def aggregates(self, case: int, names: Sequence[str]) -> dict[str, Any] | None:
        if self._iceberg:
            return None
        expressions = {"rows": "count(*)"} | {f"count {name}": f'count("{name}")' for name in names}
        for name in names:
            if name in ORDERED and name not in EQUALS_ONLY:
                expressions |= {f"min {name}": f'min("{name}")', f"max {name}": f'max("{name}")'}
        select_list = ", ".join(expressions.values())
        path = self._published.files[case]
        found = self._connection.execute(f"select {select_list} from read_parquet('{path}')").to_arrow_table()
        return dict(zip(expressions, (column[0].as_py() for column in found.columns), strict=True))

    def close(self) -> None:
        self._connection.close()

    def _query(self, select_list: str, where: str, cases: Cases) -> pa.Table:
        if not self._iceberg:
            return self._query_files(select_list, where, self._source(cases))
        # DuckDB skips files by their bounds only for conditions on ranges.
        queries = [
            f'select {select_list} from {self._source(cases)} where "{CASE}" between {first} and {last} and {where}'
            for first, last in consecutive_ranges(cases)
        ]
        found: pa.Table = self._connection.execute(" union all ".join(queries)).to_arrow_table()
        return found

    def _query_files(self, select_list: str, where: str, source: str) -> pa.Table:
        try:
            found: pa.Table = self._connection.execute(
                f"select {select_list} from {source} where {where}"
            ).to_arrow_table()
        except duckdb.BinderException as error:
            absent = _ABSENT.search(str(error))
            if absent is None:
                raise
            # No file of these has the column: its values are null.
            return self._query_files(select_list, where, f'(select *, null as "{absent[1]}" from {source})')
        return found

    def _source(self, cases: Cases) -> str:
        if self._iceberg:
            return f"iceberg_scan('{self._published.metadata_file}')"
        listed = ", ".join(f"'{path}'" for path in self._published.paths(cases))
        return f"read_parquet([{listed}], union_by_name = true)"

    def _sql_value(self, question: Question) -> str:
        match question.value:
            case None:
                return ""
            case bytes():
                return "'" + "".join(f"\\x{byte:02X}" for byte in question.value) + "'::blob"
            case uuid.UUID():
                return f"'{question.value}'::uuid" if self._iceberg else _UNSUPPORTED
            case float():
                return f"{question.value!r}::double"
        return literal(question.value)


class Polars:
    name = "polars"

    def __init__(self, published: Published) -> None:
        self._published = published
        os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"

    def rows(self, names: Sequence[str], cases: Cases) -> pa.Table:
        return self._frame(cases).select(list(names)).collect().to_arrow()

    def filtered(self, question: Question, cases: Cases) -> pa.Table:
        return self._frame(cases).filter(self._expression(question)).select(CASE, ID).collect().to_arrow()

    def aggregates(self, case: int, names: Sequence[str]) -> dict[str, Any] | None:
        expressions = {"rows": pl.len()} | {f"count {name}": pl.col(name).count() for name in names}
        for name in names:
            if name in ORDERED and name not in EQUALS_ONLY:
                expressions |= {f"min {name}": pl.col(name).min(), f"max {name}": pl.col(name).max()}
        frame = pl.scan_parquet(self._published.files[case])
        row = frame.select(**expressions).collect().row(0, named=True)
        return dict(row)

    def close(self) -> None:
        pass

    def _frame(self, cases: Cases) -> pl.LazyFrame:
        frame = pl.scan_iceberg(self._published.table, reader_override="native")
        ranges = [pl.col(CASE).is_between(*each) for each in consecutive_ranges(cases)]
        return frame.filter(functools.reduce(operator.or_, ranges))

    def _expression(self, question: Question) -> pl.Expr:
        column = pl.col(question.column)
        if question.sign == "is null":
            return column.is_null()
        if question.sign == "is not null":
            return column.is_not_null()
        value = question.value.bytes if isinstance(question.value, uuid.UUID) else question.value
        wanted = pl.lit(value, dtype=_decimal(value) if isinstance(value, Decimal) else None)
        made: pl.Expr = COMPARED[question.sign](column, wanted)
        return made


def _decimal(value: Decimal) -> pl.Decimal:
    return pl.Decimal(38, -int(value.as_tuple().exponent))


class DataFusion:
    """Reads Parquet files only: a table's files are linked into one folder and read with the table's columns."""

    name = "datafusion"

    def __init__(self, published: Published) -> None:
        self._published = published
        self._types = _without_metadata(schema_to_pyarrow(published.table.schema()))
        config = datafusion.SessionConfig().with_target_partitions(2)
        self._context = datafusion.SessionContext(config)
        self._folder = tempfile.TemporaryDirectory(dir=Path(next(iter(published.files.values()))).parent)
        self._known: dict[tuple[int, ...], str] = {}

    def rows(self, names: Sequence[str], cases: Cases) -> pa.Table:
        return self._table(cases).select(*(f'"{name}"' for name in names)).to_arrow_table()

    def filtered(self, question: Question, cases: Cases) -> pa.Table:
        column = datafusion.col(f'"{question.column}"')
        if question.sign == "is null":
            where = column.is_null()
        elif question.sign == "is not null":
            where = column.is_not_null()
        else:
            value = question.value.bytes if isinstance(question.value, uuid.UUID) else question.value
            wanted = datafusion.lit(pa.scalar(value, self._types.field(question.column).type))
            where = COMPARED[question.sign](column, wanted)
        return self._table(cases).filter(where).select(f'"{CASE}"', f'"{ID}"').to_arrow_table()

    def aggregates(self, case: int, names: Sequence[str]) -> dict[str, Any] | None:
        expressions = {"rows": functions.count_star()} | {
            f"count {name}": functions.count(_column(name)) for name in names
        }
        for name in names:
            if name in ORDERED and name not in EQUALS_ONLY:
                expressions |= {
                    f"min {name}": functions.min(_column(name)),
                    f"max {name}": functions.max(_column(name)),
                }
        frame = self._table((case,)).aggregate([], [each.alias(name) for name, each in expressions.items()])
        (row,) = frame.to_arrow_table().to_pylist()
        return dict(row)

    def close(self) -> None:
        self._folder.cleanup()

    def _table(self, cases: Cases) -> datafusion.DataFrame:
        wanted = tuple(cases)
        if wanted not in self._known:
            name = self._known[wanted] = f"t{len(self._known)}"
            folder = Path(self._folder.name) / name
            folder.mkdir()
            for path in self._published.paths(cases):
                os.link(path, folder / Path(path).name)
            self._context.register_listing_table(name, f"{folder}/", schema=self._types)
        return self._context.table(self._known[wanted])


def _column(name: str) -> datafusion.Expr:
    return datafusion.col(f'"{name}"')


def _without_metadata(schema: pa.Schema) -> pa.Schema:
    """Types alone, and identifiers as their bytes."""
    fields = [
        pa.field(each.name, pa.binary(16) if str(each.type).startswith("extension") else each.type) for each in schema
    ]
    return pa.schema(fields)


class NoAggregates:
    """A reader without aggregates of single files: after deletes, a file has other rows than the table shows."""

    def __init__(self, reader: Reader) -> None:
        self.name = reader.name
        self.rows, self.filtered, self.close = reader.rows, reader.filtered, reader.close

    def aggregates(self, case: int, names: Sequence[str]) -> dict[str, Any] | None:  # noqa: ARG002
        return None


def iceberg_readers(published: Published) -> list[Reader]:
    """The readers that apply delete files."""
    return [PyIceberg(published), DuckDB(published, iceberg=True), Polars(published)]


def quick_readers(published: Published) -> list[Reader]:
    return [
        PyIceberg(published),
        DuckDB(published, iceberg=True),
        DuckDB(published, iceberg=False),
        Polars(published),
        DataFusion(published),
    ]
