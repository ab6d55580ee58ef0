"""Deletion vectors of random tables against plain sets, and damaged bitmaps against CRoaring."""

from __future__ import annotations

import contextlib
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from pvdm.errors import InputError, VerificationError
from pvdm.lake.read.vectors import read_positions
from pvdm.model.schema import Field, Kind, PrimitiveType, Schema
from tests.support.lake.metadata import column, schema
from tests.support.lake.puffin import Listed, add_vectors, bitmap, framed
from tests.support.lake.scans import Lake, table_of

pytestmark = [pytest.mark.property, pytest.mark.usefixtures("kernel")]

COLUMNS = Schema((Field("id", PrimitiveType(Kind.LONG), field_id=1),))
DOC = schema(0, column(1, "id"))
RANGES = st.builds(
    lambda start, size, step: range(start, start + size, step),
    st.integers(0, 200_000),
    st.integers(0, 9_000),
    st.integers(1, 5),
)
SETS = st.lists(RANGES, max_size=4).map(lambda parts: frozenset(each for part in parts for each in part))


@given(
    st.lists(st.tuples(st.integers(0, 12), st.sets(st.integers(0, 11)), st.integers(0, 2)), min_size=1, max_size=5),
    st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_the_rows_left_are_those_that_no_vector_names(files: list[tuple[int, set[int], int]], runs: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder), (DOC,), version=3)
        wanted: list[int] = []
        groups: dict[int, list[Listed]] = {}
        for number, (rows, drawn, group) in enumerate(files):
            ids = [100 * number + at for at in range(rows)]
            location = lake.data(table_of(COLUMNS, [{"id": each} for each in ids]))
            gone = sorted(at for at in drawn if at < rows)
            wanted += [each for at, each in enumerate(ids) if at not in gone]
            if gone:
                listed = Listed(location, gone, framed(bitmap(gone, runs=runs)))
                groups.setdefault(group, []).append(listed)
        for blobs in groups.values():
            add_vectors(lake, blobs)
        assert [row["id"] for row in lake.rows()] == wanted


@given(SETS, st.booleans())
@settings(max_examples=40, deadline=None)
def test_every_set_comes_back(wanted: frozenset[int], runs: bool) -> None:
    found = read_positions(bitmap(sorted(wanted), runs=runs))
    assert found.count == len(wanted)
    assert int.from_bytes(found.data, "little") == sum(1 << each for each in wanted)


@given(SETS, st.booleans(), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=3))
@settings(max_examples=100, deadline=None)
def test_bytes_that_were_changed_are_refused_or_read_as_croaring_reads_them(
    wanted: frozenset[int], runs: bool, edits: list[tuple[int, int]]
) -> None:
    data = bytearray(bitmap([*sorted(wanted), 300_000], runs=runs))
    for at, value in edits:
        data[12 + at % (len(data) - 12)] = value
    with contextlib.suppress(VerificationError, InputError):
        found = read_positions(bytes(data))
        theirs = BitMap.deserialize(bytes(data[12:]))
        assert struct.unpack("<Q", data[:8]) == (1,)
        assert found.count == len(theirs)
        assert int.from_bytes(found.data, "little") == sum(1 << each for each in theirs)
