"""The declared mapping, resolved against the source: rename, drop, reorder, and a closed list of lossless widenings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pvdm.errors import Code, InputError
from pvdm.model.contract.types import Column, DataProductContract, Mapping
from pvdm.model.filter.expression import columns_of
from pvdm.model.schema import DecimalType, Kind, PrimitiveType, Schema, Type, type_from_json

ICEBERG_PRECISION: Final = 38
WIDENINGS: Final[dict[Type, Type]] = {
    PrimitiveType(Kind.INT): PrimitiveType(Kind.LONG),
    PrimitiveType(Kind.FLOAT): PrimitiveType(Kind.DOUBLE),
}
_DECIMAL: Final = re.compile(r"decimal\(\d{1,2}, ?\d{1,2}\)", re.ASCII)
_LIST: Final = "long (from int), double (from float), or decimal(P,S) with more digits and the same scale"
_PROFILE_T: Final = "any other change of values is a transformation, which is Profile T"


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """A column of the source under the target's name and in the target's type."""

    source: str
    target: str
    type: Type


def widened_type(text: str) -> Type:
    """The type that a mapping may ask for."""
    if text in ("long", "double"):
        return type_from_json(text)
    if _DECIMAL.fullmatch(text):
        try:
            kind = type_from_json(text.replace(" ", ""))
        except InputError:
            raise _not_lossless(ascii(text)) from None
        if isinstance(kind, DecimalType) and kind.precision <= ICEBERG_PRECISION:
            return kind
    raise _not_lossless(ascii(text[:64]))


def resolve(mapping: Mapping, source: Schema) -> tuple[MappedColumn, ...]:
    """The target's columns in the contract's order, of a source with this schema."""
    columns = mapping.columns
    if columns is None:
        columns = tuple(Column(name, name, None) for name in source.names)
    return tuple(MappedColumn(each.source, each.target, _mapped_type(each, source)) for each in columns)


def columns_read(contract: DataProductContract, target: Iterable[str]) -> frozenset[str]:
    """Every column that the contract asks its source for; `target` are the columns of the target."""
    boundary, chunking = contract.boundary, contract.chunking
    columns = boundary.mapping.columns
    taken = target if columns is None else (each.source for each in columns)
    cut = (*chunking.columns, *(each for each in (chunking.column, boundary.claim) if each is not None))
    return frozenset({*taken, *columns_of(boundary.where), *cut})


def _mapped_type(column: Column, source: Schema) -> Type:
    if column.source not in source.names:
        raise Code.MAPPING_COLUMN_UNKNOWN(
            f"the source has no column {column.source[:80]!a}, which the contract takes for {column.target[:80]!a}",
            expected=f"one of {', '.join(source.names)}"[:400],
            got=ascii(column.source[:80]),
            hint=f"boundary.columns names columns of the source; {_PROFILE_T}",
            column=column.source,
        )
    given = source.column(column.source).type
    if column.type is None or column.type == given:
        return given
    if WIDENINGS.get(given) == column.type:
        return column.type
    match given, column.type:
        case DecimalType(few, scale), DecimalType(many, same) if many > few and scale == same:
            return column.type
    raise _not_lossless(f"{given} to {column.type} for {column.source[:80]!a}")


def _not_lossless(got: str) -> InputError:
    return InputError(
        Code.MAPPING_NOT_LOSSLESS,
        "the mapping would do more than widen a type",
        expected=_LIST,
        got=got,
        hint=_PROFILE_T,
    )
