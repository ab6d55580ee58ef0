"""Declared partition values as a condition that Iceberg's writer takes: identity by the column, others by transform."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pvdm.errors import InputError
from pvdm.lake.format.partition.spec import Transform, source_types
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.model.filter.literal import parse_literal
from pvdm.model.schema import Type
from pvdm.physical.spark_columns import spark_name
from pvdm.physical.spark_filter import literal

if TYPE_CHECKING:
    from pyspark.sql import Column

_FUNCTIONS: Final = {"year": "years", "month": "months", "day": "days", "hour": "hours"}


def in_partition(metadata: TableMetadata, partition: Sequence[tuple[str, str | None]], catalog: str) -> Column:
    """Whether a row lies in the declared partition of the table's current spec."""
    kinds = source_types(to_model(metadata.current_schema))
    names = {found: name for name, found in metadata.current_schema.ids.items()}
    # As `lake.boundary` reads the contract: by the field's name, or by the column that it copies.
    copied = {
        names.get(field.source_id): field for field in metadata.default_spec.fields if field.transform == "identity"
    }
    fields = {name: field for name, field in copied.items() if name is not None}
    fields |= {field.name: field for field in metadata.default_spec.fields}
    parts: list[Column] = []
    for name, text in partition:
        field = fields.get(name)
        if field is None or field.source_id not in kinds:
            raise InputError(
                "partition_unknown",
                "the table is not partitioned by what the contract declares",
                expected=", ".join(sorted(fields)) or "no partition at all",
                got=ascii(name)[1:-1][:80],
            )
        source = spark_name(*names[field.source_id].split("."))
        parts.append(_part(source, Transform.parse(field.transform), kinds[field.source_id], text, catalog))
    return functools.reduce(operator.and_, parts)


def _part(source: str, transform: Transform, kind: Type, text: str | None, catalog: str) -> Column:
    from pyspark.sql import functions

    column = functions.col(source)
    if text is None:
        return column.isNull()  # every transform leaves null as it is
    result = transform.result(kind)
    if result is None or transform.name == "void":
        raise InputError(
            "partition_transform_unknown",
            "an unknown transform cannot be applied",
            expected="a transform of the specification",
            got=str(transform)[:120],
        )
    value = literal(parse_literal(text, result), result)
    if transform.name == "identity":
        return column == value
    name = spark_name(catalog, "system", _FUNCTIONS.get(transform.name, transform.name))
    before = [] if transform.parameter is None else [functions.lit(transform.parameter)]
    return functions.call_function(name, *before, column) == value
