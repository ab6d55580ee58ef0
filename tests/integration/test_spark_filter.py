"""Filters of the closed grammar mean in Spark what they mean to the Steward's own reader."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pvdm.errors import InputError
from pvdm.model.filter.bind import bind
from pvdm.model.filter.text import parse_expression
from pvdm.model.schema import Field, Kind, PrimitiveType, Schema
from pvdm.physical.spark import condition, fit_columns, spark_name, spark_type
from pvdm.verify.filtering import filter_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAN, INF = float("nan"), float("inf")
AT = datetime(2026, 11, 15, 9, 30, 0, 123456, tzinfo=UTC)
OLD, GAP = datetime(1969, 1, 1, tzinfo=UTC), datetime(2026, 3, 29, 2, 30, tzinfo=UTC)
TIMES: list[object] = [AT, OLD, None, GAP, AT]
COLUMNS: dict[str, tuple[Kind | str, pa.DataType, list[object]]] = {
    "flag": (Kind.BOOLEAN, pa.bool_(), [True, False, None, True, False]),
    "small": (Kind.INT, pa.int32(), [1, -5, None, 2**31 - 1, 0]),
    "large": (Kind.LONG, pa.int64(), [1, 2**63 - 1, None, -(2**63), 0]),
    "single": (Kind.FLOAT, pa.float32(), [0.1, NAN, None, -0.0, INF]),
    "double": (Kind.DOUBLE, pa.float64(), [0.1, NAN, None, -0.0, -INF]),
    "amount": ("decimal", pa.decimal128(9, 2), [Decimal("1.10"), Decimal("-0.01"), None, Decimal(9999999), Decimal(0)]),
    "day": (Kind.DATE, pa.date32(), [date(2026, 11, 15), date(1969, 12, 31), None, date(9999, 12, 31), date(1, 1, 1)]),
    "local": (Kind.TIMESTAMP, pa.timestamp("us"), TIMES),
    "zoned": (Kind.TIMESTAMPTZ, pa.timestamp("us", "UTC"), TIMES),
    "town": (Kind.STRING, pa.string(), ["Ulm", "", None, "Ülm\u0301 100%_\\", "ul"]),
    "raw": (Kind.BINARY, pa.binary(), [b"\x00\xff", b"", None, b"a", b"b"]),
    "odd `name`.x": (Kind.INT, pa.int32(), [1, 2, None, 3, 4]),
}
EXPRESSIONS = [
    "true",
    "flag = true",
    "flag != true",
    "small = 1 or small is null",
    "not (small > 0)",
    "small in (1, 0)",
    "small not in (1, 0)",
    "large >= 9223372036854775807",
    "large <= -9223372036854775808",
    "single > 0.1",
    "single = 0.1",
    "single >= 0",
    "single = 0",
    "single in (0, 0.1)",
    "single is nan",
    "single is not nan",
    "double > 1e300",
    "double < 0",
    "double not in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)",
    "double != 0",
    "amount = 1.1",
    "amount > -0.01 and amount < 9999999",
    "day = '2026-11-15'",
    "day < '1970-01-01'",
    "day in ('9999-12-31', '0001-01-01')",
    "local = '2026-11-15T09:30:00.123456'",
    "local = '2026-03-29T02:30:00'",
    "zoned = '2026-11-15T09:30:00.123456Z'",
    "zoned >= '2026-03-29T04:30:00+02:00'",
    "town = ''",
    "town starts with 'U'",
    "town not starts with 'U'",
    "town starts with 'Ülm\u0301 100%_\\'",
    "raw = '00ff'",
    "raw > ''",
    "`odd ``name``.x` > 1",
    "not (small = 1 and large = 1) or not (town is null)",
]


def schema() -> Schema:
    from pvdm.model.schema import DecimalType

    return Schema(
        tuple(
            Field(name, PrimitiveType(kind) if isinstance(kind, Kind) else DecimalType(9, 2))
            for name, (kind, _, _) in COLUMNS.items()
        )
    )


@pytest.fixture(scope="module")
def table() -> pa.Table:
    made = {name: pa.array(values, kind) for name, (_, kind, values) in COLUMNS.items()}
    return pa.table({"row": pa.array(range(5), pa.int64()), **made})


@pytest.fixture(scope="module")
def frame(spark: SparkSession, table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """The rows in Spark, read from a file, so that no conversion of Python values or time zones takes part."""
    import pyarrow.parquet as pq

    path = tmp_path_factory.mktemp("filter") / "rows.parquet"
    pq.write_table(table, path)
    return spark.read.parquet(str(path))


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_filter_keeps_the_same_rows_in_spark_and_in_the_steward(
    spark: SparkSession, frame: DataFrame, table: pa.Table, zone: str
) -> None:
    from pyspark.sql import functions

    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        bound = [bind(parse_expression(text), schema(), {}) for text in EXPRESSIONS]
        marked = frame.select(
            "row",
            *(
                functions.coalesce(condition(each), functions.lit(False)).alias(str(at))
                for at, each in enumerate(bound)
            ),
        ).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    (batch,) = table.to_batches()
    for at, (text, each) in enumerate(zip(EXPRESSIONS, bound, strict=True)):
        expected = filter_rows(batch, each).column("row").to_pylist()
        assert (text, sorted(row["row"] for row in marked if row[str(at)])) == (text, expected)


def test_a_type_that_spark_lacks_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InputError) as caught:
        spark_type(PrimitiveType(Kind.TIME))
    assert caught.value.reason == "spark_type_unsupported"


def test_names_are_quoted_for_spark() -> None:
    assert spark_name("a`b", "c.d") == "`a``b`.`c.d`"


def test_nested_columns_fit_whatever_may_be_null(spark: SparkSession) -> None:
    from pyspark.sql.types import StructType

    given = spark.sql("select named_struct('x', 1, 'y', array('a')) as s, cast(1 as decimal(5,2)) as d, 1.5f as f")

    def struct_type(text: str) -> StructType:
        made = StructType.fromDDL(text)
        assert isinstance(made, StructType)
        return made

    wanted = struct_type("f double, s struct<x: int, y: array<string>> not null, d decimal(9,2)")
    assert (
        fit_columns(given, wanted).schema.simpleString()
        == "struct<f:double,s:struct<x:int,y:array<string>>,d:decimal(9,2)>"
    )
    for other in (
        "f float, s struct<x: int, y: array<int>>, d decimal(5,2)",
        "f float, s struct<y: array<string>, x: int>, d decimal(5,2)",
    ):
        with pytest.raises(InputError) as caught:
            fit_columns(given, struct_type(other))
        assert caught.value.reason == "rows_type_differs"
