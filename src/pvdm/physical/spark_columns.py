"""A producer's DataFrame as the target has its columns: by name, widened where nothing is lost, else refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pvdm.physical.columns import require_names, type_differs

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_FLOATS: Final = ("float", "double")


def spark_name(*parts: str) -> str:
    """A name of several parts as Spark reads it."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def fitted(rows: DataFrame, target: StructType) -> DataFrame:
    """The rows in the target's columns, in its order."""
    given = {field.name: field.dataType for field in rows.schema.fields}
    require_names(rows.columns, target.fieldNames())
    return rows.select(*(_column(field.name, given[field.name], field.dataType) for field in target.fields))


def _column(name: str, given: DataType, wanted: DataType) -> Column:
    from pyspark.sql import functions

    column = functions.col(spark_name(name))
    if _same(given, wanted):
        return column
    if not _widens(given, wanted):
        raise type_differs(name, wanted.simpleString(), given.simpleString())
    return column.cast(wanted).alias(name)


def _same(given: DataType, wanted: DataType) -> bool:
    """The same but for what may be null; nulls in a required column are found when the rows are written."""
    return bool(_plain(given) == _plain(wanted))


def _plain(kind: DataType) -> Any:
    from pyspark.sql.types import ArrayType, CharType, MapType, StringType, StructType, VarcharType

    match kind:
        case StructType():
            return ("struct", tuple((field.name, _plain(field.dataType)) for field in kind.fields))
        case ArrayType():
            return ("array", _plain(kind.elementType))
        case MapType():
            return ("map", _plain(kind.keyType), _plain(kind.valueType))
        case StringType() | CharType() | VarcharType():
            return "string"
        case _:
            return kind.simpleString()


def _widens(given: DataType, wanted: DataType) -> bool:
    from pyspark.sql.types import DecimalType, NullType

    if isinstance(given, NullType):
        return True
    if isinstance(given, DecimalType) and isinstance(wanted, DecimalType):
        return given.scale == wanted.scale and given.precision <= wanted.precision
    small, large = given.simpleString(), wanted.simpleString()
    return any(small in line and large in line and line.index(small) <= line.index(large) for line in (_WHOLE, _FLOATS))
