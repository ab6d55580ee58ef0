"""Located rows on the wire."""

from __future__ import annotations

from typing import Literal

from pvdm.model.located import Located, LocatedClass, RowsIn, SampleKey
from pvdm.steward.http.v1.models import Decimal, Told


class RowsInPart(Told):
    """So many rows in one file or partition, or with one field that differs."""

    name: str
    rows: Decimal


class KeyPart(Told):
    """One column of a key, as text."""

    column: str
    value: str | None


class SamplePart(Told):
    """A key of wrong rows: in how many rows, where it was first seen, and which fields differ in a modified one."""

    key: list[KeyPart]
    rows: Decimal
    file: str
    partition: str | None
    fields: list[str] | None


class LocatedClassPart(Told):
    """The wrong rows of one class; files and partitions are the staged ones, for missing rows the source's."""

    failure: Literal["missing", "added", "duplicated", "modified"]
    rows: Decimal
    files: list[RowsInPart]
    files_more: int
    partitions: list[RowsInPart]
    partitions_more: int
    samples: list[SamplePart]


class LocatedPart(Told):
    """Which rows are wrong, or why they were not located; keys, fields and partitions for those who may see them.

    `withheld` says that the token's role may not; `keys_for` are the roles that may.
    """

    classes: list[LocatedClassPart]
    fields: list[RowsInPart]
    compared: Decimal
    problem_code: str | None
    problem: str | None
    withheld: bool
    keys_for: list[Literal["producer", "operator", "auditor"]]


def located_part(found: Located) -> LocatedPart:
    """What was located, as it is told."""
    return LocatedPart.model_validate(
        {
            "classes": [_class(each) for each in found.classes],
            "fields": [_rows_in(each) for each in found.fields],
            "compared": str(found.compared),
            "problem_code": found.problem_code,
            "problem": found.problem,
            "withheld": found.withheld,
            "keys_for": [role.value for role in found.keys_for],
        }
    )


def _class(found: LocatedClass) -> LocatedClassPart:
    return LocatedClassPart.model_validate(
        {
            "failure": found.failure.value,
            "rows": str(found.rows),
            "files": [_rows_in(each) for each in found.files],
            "files_more": found.files_more,
            "partitions": [_rows_in(each) for each in found.partitions],
            "partitions_more": found.partitions_more,
            "samples": [_sample(each) for each in found.samples],
        }
    )


def _rows_in(found: RowsIn) -> RowsInPart:
    return RowsInPart(name=found.name, rows=str(found.rows))


def _sample(found: SampleKey) -> SamplePart:
    return SamplePart(
        key=[KeyPart(column=column, value=value) for column, value in found.key],
        rows=str(found.rows),
        file=found.file,
        partition=found.partition,
        fields=None if found.fields is None else list(found.fields),
    )
