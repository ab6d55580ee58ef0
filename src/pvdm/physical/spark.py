"""Stages a DataFrame with Spark on the attempt's branch; filters and columns are Spark expressions, never SQL text."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pvdm import fault
from pvdm.client import StewardClient
from pvdm.client.table import TableClient
from pvdm.errors import Code
from pvdm.lake.format.partition_spec import Transform, source_types
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.spark import SparkCatalog, add_catalog, remove_catalog
from pvdm.model.filter import expression as ex
from pvdm.model.filter.literal import literal_text, parse_literal
from pvdm.model.schema import DecimalType, FixedType, Kind, ListType, MapType, PrimitiveType, StructType, Type
from pvdm.model.statements.core import Operation
from pvdm.physical.stager import Destination, require_names, type_error

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import types as spark_types
    from pyspark.sql.types import DataType

_COMPARISONS: Final[dict[ex.Operator, Any]] = {
    ex.Operator.EQUAL: operator.eq,
    ex.Operator.NOT_EQUAL: operator.ne,
    ex.Operator.LESS: operator.lt,
    ex.Operator.LESS_OR_EQUAL: operator.le,
    ex.Operator.GREATER: operator.gt,
    ex.Operator.GREATER_OR_EQUAL: operator.ge,
}
_SPARK_TYPES: Final[dict[Kind, str]] = {
    Kind.BOOLEAN: "boolean",
    Kind.INT: "int",
    Kind.LONG: "bigint",
    Kind.FLOAT: "float",
    Kind.DOUBLE: "double",
    Kind.DATE: "date",
    Kind.TIMESTAMP: "timestamp_ntz",
    Kind.TIMESTAMPTZ: "timestamp",
    Kind.STRING: "string",
    Kind.UUID: "string",
}
_FLOATS: Final = (PrimitiveType(Kind.FLOAT), PrimitiveType(Kind.DOUBLE))
_CAST_FROM_TEXT: Final = frozenset({Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.UUID})
# Iceberg's transforms whose functions in Spark have other names.
_TRANSFORM_FUNCTIONS: Final = {"year": "years", "month": "months", "day": "days", "hour": "hours"}
_INTEGER_NAMES: Final = ("tinyint", "smallint", "int", "bigint")
_FLOAT_NAMES: Final = ("float", "double")


def condition(expression: ex.Expression) -> Column:
    """The filter as a Spark column: true, false or null for each row."""
    from pyspark.sql import functions

    match expression:
        case ex.Always():
            return functions.lit(True)
        case ex.And(parts):
            return functools.reduce(operator.and_, (condition(part) for part in parts))
        case ex.Or(parts):
            return functools.reduce(operator.or_, (condition(part) for part in parts))
        case ex.Not(part):
            return ~condition(part)
        case _:
            return _predicate(expression)


def spark_type(type_: Type) -> str:
    """The type's name in Spark."""
    match type_:
        case PrimitiveType(primitive) if primitive in _SPARK_TYPES:
            return _SPARK_TYPES[primitive]
        case PrimitiveType(Kind.BINARY) | FixedType():
            return "binary"
        case DecimalType(precision, scale):
            return f"decimal({precision},{scale})"
    raise Code.SPARK_TYPE_UNSUPPORTED(got=str(type_))


def literal(value: ex.LiteralValue, type_: Type) -> Column:
    """A literal of this type. Dates, times and UUIDs are cast from text, which no time zone of a session changes."""
    from pyspark.sql import functions

    name = spark_type(type_)
    if isinstance(type_, PrimitiveType) and type_.kind in _CAST_FROM_TEXT:
        return functions.lit(literal_text(value, type_)).cast(name)
    return functions.lit(value).cast(name)


def null_of(type_: Type) -> Column:
    """Null of this type."""
    from pyspark.sql import functions

    return functions.lit(None).cast(_full_type(type_))


def _full_type(type_: Type) -> str:
    """The type's name in Spark, nested types included."""
    match type_:
        case StructType(fields):
            return f"struct<{', '.join(f'{spark_name(each.name)}: {_full_type(each.type)}' for each in fields)}>"
        case ListType(element):
            return f"array<{_full_type(element.type)}>"
        case MapType(key, value):
            return f"map<{_full_type(key.type)}, {_full_type(value.type)}>"
        case PrimitiveType(Kind.VARIANT):
            return "variant"
        case _:
            return spark_type(type_)


def _predicate(predicate: ex.Predicate) -> Column:
    from pyspark.sql import functions

    column = functions.col(spark_name(predicate.column))
    match predicate:
        case ex.IsNull(_, negated):
            result = column.isNull()
        case ex.IsNan(_, negated):
            result = functions.isnan(column)
        case ex.Compare(_, sign, given):
            compared: Column = _COMPARISONS[sign](_comparable(column, given), _literal(given))
            return compared
        case ex.OneOf(_, literals, negated):
            # Not by `isin`, which compares floats by their bits, so that -0.0 would not be 0.0.
            result = functools.reduce(operator.or_, (_comparable(column, each) == _literal(each) for each in literals))
        case ex.StartsWith(_, prefix, negated):
            result = column.startswith(_literal(prefix))
    return ~result if negated else result


def _comparable(column: Column, given: ex.Literal) -> Column:
    """The column. For floats and UUIDs it is an expression that Spark does not push down to its sources.

    Iceberg and Parquet skip partitions, files and row groups by lower and upper bounds, but do not order values as
    Spark does. In bounds -0.0 is below 0.0, and NaN does not count; Spark orders NaN above all numbers. Iceberg orders
    UUIDs as signed numbers. Spark does not push down sums or concatenations. Adding 0.0 changes only -0.0: to 0.0.
    """
    from pyspark.sql import functions

    type_ = ex.require_typed(given).type
    if type_ in _FLOATS:
        return column + literal(0.0, type_)
    return functions.concat(column, functions.lit("")) if type_ == PrimitiveType(Kind.UUID) else column


def _literal(given: ex.Literal) -> Column:
    typed = ex.require_typed(given)
    return literal(typed.value, typed.type)


def in_partition(metadata: TableMetadata, partition: Sequence[tuple[str, str | None]], catalog: str) -> Column:
    """The condition that a row lies in the `partition` that the contract declares, by the table's current spec."""
    types = source_types(to_model(metadata.current_schema))
    names = {field_id: name for name, field_id in metadata.current_schema.ids_by_name.items()}
    # A contract names a partition field by its name, or by the column that an identity field copies.
    spec_fields = metadata.default_spec.fields
    copies = [field for field in spec_fields if field.transform == "identity" and field.source_id in names]
    fields = {names[field.source_id]: field for field in copies} | {field.name: field for field in spec_fields}
    parts: list[Column] = []
    for name, text in partition:
        field = fields.get(name)
        if field is None or field.source_id not in types:
            expected = ", ".join(sorted(fields)) or "no partition at all"
            raise Code.PARTITION_UNKNOWN(expected=expected, got=ascii(name)[1:-1][:80])
        source = spark_name(*names[field.source_id].split("."))
        parts.append(_has_value(source, Transform.parse(field.transform), types[field.source_id], text, catalog))
    return functools.reduce(operator.and_, parts)


def _has_value(source: str, transform: Transform, type_: Type, text: str | None, catalog: str) -> Column:
    """The condition that the source column, transformed, has this partition value."""
    from pyspark.sql import functions

    column = functions.col(source)
    if text is None:
        return column.isNull()  # every transform leaves null as it is
    result = transform.result_type(type_)
    if result is None or transform.name == "void":
        message, reason = "an unknown transform cannot be applied", "partition_transform_unknown"
        raise Code.PARTITION_SPEC_INVALID(message, reason=reason, got=str(transform)[:120])
    value = literal(parse_literal(text, result), result)
    if transform.name == "identity":
        return column == value
    name = spark_name(catalog, "system", _TRANSFORM_FUNCTIONS.get(transform.name, transform.name))
    parameter = [] if transform.parameter is None else [functions.lit(transform.parameter)]
    return functions.call_function(name, *parameter, column) == value


def spark_name(*parts: str) -> str:
    """A quoted name of several parts for Spark."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def fit_columns(rows: DataFrame, target: spark_types.StructType) -> DataFrame:
    """The rows in the target's columns, in its order. Raises for other names, and for types that would lose values."""
    given = {field.name: field.dataType for field in rows.schema.fields}
    require_names(rows.columns, target.fieldNames())
    return rows.select(*(_fit_column(field.name, given[field.name], field.dataType) for field in target.fields))


def _fit_column(name: str, given: DataType, wanted: DataType) -> Column:
    from pyspark.sql import functions

    column = functions.col(spark_name(name))
    if _type_key(given) == _type_key(wanted):
        return column
    if not _widens(given, wanted):
        raise type_error(name, wanted.simpleString(), given.simpleString())
    return column.cast(wanted).alias(name)


def _type_key(type_: DataType) -> Any:
    """The type without nullability, for comparisons; Spark checks nullability when it writes the rows."""
    from pyspark.sql.types import ArrayType, CharType, MapType, StringType, StructType, VarcharType

    match type_:
        case StructType():
            return ("struct", tuple((field.name, _type_key(field.dataType)) for field in type_.fields))
        case ArrayType():
            return ("array", _type_key(type_.elementType))
        case MapType():
            return ("map", _type_key(type_.keyType), _type_key(type_.valueType))
        case StringType() | CharType() | VarcharType():
            return "string"
        case _:
            return type_.simpleString()


def _widens(given: DataType, wanted: DataType) -> bool:
    """Whether the wanted type has every value of the given type: a wider number type, or any type for nulls only."""
    from pyspark.sql.types import DecimalType, NullType

    if isinstance(given, NullType):
        return True
    if isinstance(given, DecimalType) and isinstance(wanted, DecimalType):
        return given.scale == wanted.scale and given.precision <= wanted.precision
    small, large = given.simpleString(), wanted.simpleString()
    return any(
        small in names and large in names and names.index(small) <= names.index(large)
        for names in (_INTEGER_NAMES, _FLOAT_NAMES)
    )


class SparkStager:
    """Writes to `table.branch_x`, since Iceberg's `branch` option would silently write to `main`."""

    def __init__(self, client: StewardClient, spark: SparkSession) -> None:
        """`client` is any client of the Steward; requests use the attempt's own token."""
        self._client = client
        self._spark = spark
        self._cancelled: set[str] = set()

    def stage(self, make: Callable[[], DataFrame], to: Destination) -> None:
        """Write the rows that `make` returns; Spark removes its files itself when a job fails or is cancelled."""
        with _job_group(self._spark, to):
            self._stage(make(), to)

    def _stage(self, rows: DataFrame, to: Destination) -> None:
        from pyspark.sql import DataFrame

        if not isinstance(rows, DataFrame):
            raise Code.ROWS_INVALID(reason="rows_not_a_frame", got=type(rows).__name__)
        spark = rows.sparkSession
        with self._client.with_token(to.token) as client:
            metadata = TableMetadata.from_json(TableClient(client, *to.table_parts).load())
        catalog = SparkCatalog(f"pvdm_{to.attempt_id}", f"{to.steward_url}/catalog", to.token)
        add_catalog(spark, catalog)
        try:
            levels, name = to.table_parts
            table = (catalog.name, *levels, name)
            if to.branch not in metadata.refs:
                # The Steward cannot create a branch of an empty table, and Spark writes to existing branches only.
                fault.point("stager.before_write")
                spark.sql(f"alter table {spark_name(*table)} create branch {spark_name(to.branch)}")
            ready = fit_columns(rows, spark.table(spark_name(*table)).schema)
            writer = ready.writeTo(spark_name(*table, f"branch_{to.branch}"))
            for key, text in to.summary.items():
                writer = writer.option(f"snapshot-property.{key}", text)
            if to.attempt_id in self._cancelled:
                raise Code.ATTEMPT_INTERRUPTED()
            fault.point("stager.before_write")
            _write(writer, to, metadata, catalog.name)
            fault.point("stager.after_write")
        finally:
            remove_catalog(spark, catalog)

    def cancel(self, to: Destination) -> bool:
        """Cancel the attempt's jobs in all sessions of this process; the caller must wait for their end."""
        self._cancelled.add(to.attempt_id)
        from pyspark import SparkContext

        context: Any = SparkContext._active_spark_context
        if context is not None:
            context.cancelJobGroup(to.attempt_id)
        return False


def _write(writer: Any, to: Destination, metadata: TableMetadata, catalog: str) -> None:
    """Write with the contract's operation. `overwritePartitions` replaces the partitions in which there are rows."""
    from pyspark.sql import functions

    match to.operation:
        case Operation.APPEND:
            writer.append()
        case Operation.OVERWRITE:
            writer.overwrite(functions.lit(True))
        case Operation.OVERWRITE_PARTITIONS if to.partition:
            # A static overwrite, so that a job without rows empties the partition.
            writer.overwrite(in_partition(metadata, to.partition, catalog))
        case Operation.OVERWRITE_PARTITIONS:
            writer.overwritePartitions()


@contextlib.contextmanager
def _job_group(spark: SparkSession, to: Destination) -> Iterator[None]:
    """Put this thread's jobs into the attempt's job group, so that another thread can cancel them."""
    context: Any = spark.sparkContext
    description = f"pvdm: chunk {to.chunk_id} of {to.workload_id} to {to.table}"
    context.setJobGroup(to.attempt_id, description, interruptOnCancel=True)
    try:
        yield
    finally:
        for key in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(key, None)
