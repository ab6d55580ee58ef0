"""Equality deletes that Iceberg's own index leaves out, because manifests say that no row of the data file can match.

Spark and Trino believe the bounds and counts of both entries before they open a delete file. Where these lie, they show
rows that are deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pvdm.errors import InputError
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.format.schema.bounds import compare
from pvdm.lake.format.schema.single_value import decode_promoted
from pvdm.model.schema import Field, Inner, Kind, PrimitiveType, Schema, Type

Slots = Mapping[int, Field | Inner]
_UUID: Final = PrimitiveType(Kind.UUID)


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a manifest's entry says of a file's columns, by their ids."""

    lower: Mapping[int, bytes] | None = None
    upper: Mapping[int, bytes] | None = None
    values: Mapping[int, int] | None = None
    nulls: Mapping[int, int] | None = None

    @classmethod
    def of_file(cls, file: DataFile) -> Metrics:
        """What this entry says of its file."""
        return cls(file.lower_bounds, file.upper_bounds, file.value_counts, file.null_value_counts)


def slots_of(schemas: Sequence[Schema]) -> dict[int, Field | Inner]:
    """Every column at any depth by its id, as the first of the schemas that has it knows it."""
    found: dict[int, Field | Inner] = {}
    for schema in schemas:
        for _, slot in schema.walk():
            if slot.field_id is not None:
                found.setdefault(slot.field_id, slot)
    return found


def may_be_left_out(ids: Sequence[int], slots: Slots, data: Metrics, deletes: Metrics) -> bool:
    """Whether Iceberg's index may pass over the delete file for this data file; its columns are those of the ids."""
    return any(_differs(field_id, slots[field_id], data, deletes) for field_id in ids if field_id in slots)


def _differs(field_id: int, slot: Field | Inner, data: Metrics, deletes: Metrics) -> bool:
    if _may_have_null(field_id, slot, data) and _may_have_null(field_id, slot, deletes):
        return False
    for one, other in ((data, deletes), (deletes, data)):
        if _is_all_null(field_id, slot, one) and _has_no_null(field_id, slot, other):
            return True
    return _lie_apart(field_id, slot.type, data, deletes)


def _may_have_null(field_id: int, slot: Field | Inner, file: Metrics) -> bool:
    return not slot.required and (file.nulls is None or file.nulls.get(field_id, 1) > 0)


def _has_no_null(field_id: int, slot: Field | Inner, file: Metrics) -> bool:
    return slot.required or (file.nulls is not None and file.nulls.get(field_id, 1) <= 0)


def _is_all_null(field_id: int, slot: Field | Inner, file: Metrics) -> bool:
    if slot.required or file.nulls is None or file.values is None:
        return False
    nulls = file.nulls.get(field_id)
    return nulls is not None and nulls == file.values.get(field_id)


def _lie_apart(field_id: int, kind: Type, data: Metrics, deletes: Metrics) -> bool:
    ends = [
        None if each is None else each.get(field_id) for file in (data, deletes) for each in (file.lower, file.upper)
    ]
    if any(end is None for end in ends):
        return False
    if kind == _UUID:
        return True  # Iceberg's versions compare them with a sign, or without
    try:
        lower, upper, first, last = (decode_promoted(kind, end or b"") for end in ends)
        return compare(kind, lower, last) > 0 or compare(kind, first, upper) > 0
    except InputError:
        return True  # no value of the type, NaN among them: engines may read it differently
