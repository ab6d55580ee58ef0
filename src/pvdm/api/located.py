"""Located rows in responses; in Python they are `pvdm.model.located.Located`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, TypeAlias

from pydantic import ValidationInfo
from pydantic_core import PydanticCustomError

from pvdm.api.base import Count, Decimal, Flag, ResponseModel, SentAs
from pvdm.errors import InputError
from pvdm.model.located import Located
from pvdm.model.role import Role


class RowsInView(ResponseModel):
    """The number of rows in one file or partition, or with one field that differs."""

    name: str
    rows: Decimal


class KeyColumnView(ResponseModel):
    """One column of a key, as text."""

    column: str
    value: str | None


class SampleKeyView(ResponseModel):
    """A key of wrong rows: in how many rows, where it was first seen, and which fields differ in a modified one."""

    key: tuple[KeyColumnView, ...]
    rows: Decimal
    file: str
    partition: str | None
    fields: tuple[str, ...] | None


class LocatedClassView(ResponseModel):
    """The wrong rows of one class; files and partitions are the staged ones, for missing rows the source's."""

    failure: Literal["missing", "added", "duplicated", "modified"]
    rows: Decimal
    files: tuple[RowsInView, ...]
    files_more: Count
    partitions: tuple[RowsInView, ...]
    partitions_more: Count
    samples: tuple[SampleKeyView, ...]


class LocatedView(ResponseModel):
    """Which rows are wrong, or why they were not located; keys, fields and partitions for roles that may see them.

    `withheld` says that the token's role may not; `keys_for` are the roles that may.
    """

    classes: tuple[LocatedClassView, ...]
    fields: tuple[RowsInView, ...]
    compared: Decimal
    problem_code: str | None
    problem: str | None
    withheld: Flag
    keys_for: tuple[Literal["producer", "operator", "auditor"], ...]


def _read(view: LocatedView, _: ValidationInfo) -> Located:
    document = view.model_dump(exclude={"withheld", "keys_for"})
    try:
        found = Located.from_json(document)
    except InputError as error:
        code = error.reason
    else:
        return replace(found, withheld=view.withheld, keys_for=tuple(Role(each) for each in view.keys_for))
    raise PydanticCustomError("located", "Input should be located rows ({code})", {"code": code})


def _write(found: Located) -> LocatedView:
    more = {"withheld": found.withheld, "keys_for": tuple(role.value for role in found.keys_for)}
    return LocatedView.model_validate({**found.to_json(), **more})


LocatedField: TypeAlias = Annotated[Located, SentAs(LocatedView, _read, _write)]
