"""Deletes of random tables against an oracle that goes row by row, rule by rule, in plain Python."""

from __future__ import annotations

import math
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pvdm.model.schema import Field, Kind, PrimitiveType, Schema
from tests.support.examples import examples
from tests.support.lake.metadata import column, schema
from tests.support.lake.scans import Lake, identity_spec, table_of

pytestmark = [pytest.mark.property, pytest.mark.usefixtures("kernel")]

NAMES = (None, "a", "b")
COLUMNS = Schema(
    (
        Field("row", PrimitiveType(Kind.LONG), field_id=1),
        Field("name", PrimitiveType(Kind.STRING), field_id=2),
        Field("f", PrimitiveType(Kind.DOUBLE), field_id=3),
        Field("i", PrimitiveType(Kind.INT), field_id=4),
    )
)
DOC = schema(0, column(1, "row"), column(2, "name", "string"), column(3, "f", "double"), column(4, "i", "int"))
FLOATS = st.sampled_from([None, math.nan, 0.0, -0.0, 1.5, math.inf])
SEQUENCES = st.integers(1, 4)
Row = dict[str, Any]


@dataclass(frozen=True)
class Data:
    sequence: int
    name: str | None
    partitioned: bool
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class PositionDeletes:
    """A file of position deletes."""

    sequence: int
    name: str | None
    partitioned: bool
    places: tuple[tuple[int, int], ...]
    only: int | None
    """The number of the data file that the manifest entry references; None if it references none."""


@dataclass(frozen=True)
class EqualityDeletes:
    """A file of equality deletes."""

    sequence: int
    name: str | None
    partitioned: bool
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def rows(name: str | None, partitioned: bool) -> st.SearchStrategy[Row]:
    names = st.just(name) if partitioned else st.sampled_from(NAMES)
    return st.fixed_dictionaries({"name": names, "f": FLOATS, "i": st.none() | st.integers(0, 2)})


@st.composite
def data_files(draw: st.DrawFn) -> Data:
    name, partitioned = draw(st.sampled_from(NAMES)), draw(st.booleans())
    found = draw(st.lists(rows(name, partitioned), max_size=5))
    return Data(draw(SEQUENCES), name, partitioned, tuple(found))


@st.composite
def places(draw: st.DrawFn, files: int) -> PositionDeletes:
    only = draw(st.none() | st.integers(0, files - 1))
    which = st.integers(0, files - 1) if only is None else st.just(only)
    found = draw(st.lists(st.tuples(which, st.integers(0, 6)), min_size=1, max_size=4))
    return PositionDeletes(draw(SEQUENCES), draw(st.sampled_from(NAMES)), draw(st.booleans()), tuple(found), only)


@st.composite
def keys(draw: st.DrawFn) -> EqualityDeletes:
    columns = draw(st.lists(st.sampled_from(["name", "f", "i"]), min_size=1, max_size=3, unique=True))
    found = draw(st.lists(rows(None, False), min_size=1, max_size=3))
    return EqualityDeletes(
        draw(SEQUENCES), draw(st.sampled_from(NAMES)), draw(st.booleans()), tuple(columns), tuple(found)
    )


def comparable(value: Any) -> Any:
    """The value as Java's Double.compare sees it: all NaNs are equal, and the two zeros differ."""
    if isinstance(value, float):
        return ("nan",) if math.isnan(value) else struct.pack("<d", value)
    return value


def is_deleted(
    file: int, at: int, row: Row, data: list[Data], deletes: list[PositionDeletes | EqualityDeletes]
) -> bool:
    own = data[file]
    for delete in deletes:
        same_partition = (delete.partitioned, delete.partitioned and delete.name) == (
            own.partitioned,
            own.partitioned and own.name,
        )
        if isinstance(delete, PositionDeletes):
            near = delete.only is not None or same_partition
            if near and own.sequence <= delete.sequence and (file, at) in delete.places:
                return True
        elif own.sequence < delete.sequence and (same_partition or not delete.partitioned):
            for key in delete.rows:
                if all(comparable(row[name]) == comparable(key[name]) for name in delete.columns):
                    return True
    return False


def rows_left(data: list[Data], deletes: list[PositionDeletes | EqualityDeletes]) -> list[tuple[int, int]]:
    return [
        (file, at)
        for file, own in enumerate(data)
        for at, row in enumerate(own.rows)
        if not is_deleted(file, at, row, data, deletes)
    ]


def write_files(lake: Lake, data: list[Data], deletes: list[PositionDeletes | EqualityDeletes]) -> None:
    def where(each: Data | PositionDeletes | EqualityDeletes) -> dict[str, Any]:
        spec = {"spec": 1, "partition": {1000: each.name}} if each.partitioned else {"spec": 0, "partition": {}}
        return {"sequence": each.sequence, **spec}

    locations = [
        lake.data(
            table_of(COLUMNS, [{**row, "row": file * 100 + at} for at, row in enumerate(each.rows)]), **where(each)
        )
        for file, each in enumerate(data)
    ]
    for delete in deletes:
        if isinstance(delete, PositionDeletes):
            named = {} if delete.only is None else {"referenced_data_file": locations[delete.only]}
            listed = [(locations[file], at) for file, at in delete.places]
            lake.positions(listed, changes=named, **where(delete))
        else:
            columns = Schema(tuple(field for field in COLUMNS.fields if field.name in delete.columns))
            ids = [field.field_id for field in columns.fields if field.field_id is not None]
            lake.equalities(table_of(columns, delete.rows), ids, **where(delete))


@examples(120)
@given(data=st.data(), version=st.sampled_from([2, 3]))
def test_exactly_the_rows_that_no_delete_removes_are_left(data: st.DataObject, version: int) -> None:
    files = data.draw(st.lists(data_files(), min_size=1, max_size=3))
    deletes = data.draw(st.lists(places(len(files)) | keys(), max_size=4))
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder), (DOC,), version=version, specs={0: [], 1: identity_spec(2, "name")})
        write_files(lake, files, deletes)
        found = [divmod(row["row"], 100) for row in lake.rows()]
    assert sorted(found) == rows_left(files, deletes)
