"""Every number in a published file against one that is computed of the values: footer, indexes, page headers, entry."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pvdm.digest.parquet import splice
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.format.schema.logical import to_model, type_to_iceberg
from pvdm.model.schema import DecimalType, FixedType, Kind, PrimitiveType, Type
from tests.property.test_transforms import KINDS, plain, values
from tests.support.lake.metadata import column
from tests.support.lake.scans import table_of
from tests.support.parquet.edit import Struct, columns, get, groups, metadata_of, parse, split_footer
from tests.support.verify.staged import metadata, observe_file, parquet

Ends = tuple[bytes, bytes] | None
LONGEST = 63
"""A text of more bytes is no end of a column in a file."""
TEXTS = st.text(st.sampled_from("aß€\U0001f600\U0010ffff\ud7ff\ue000\uffff\0"), max_size=70) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=5
)
BYTES = st.binary(max_size=20) | st.integers(0, 300).map(lambda length: b"\xff" * length)
ZEROS = st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf])


def values_with_edges(kind: Type) -> st.SearchStrategy[Any]:
    match kind:
        case PrimitiveType(Kind.STRING):
            return TEXTS
        case PrimitiveType(Kind.BINARY):
            return BYTES
        case PrimitiveType(Kind.FLOAT | Kind.DOUBLE):
            return ZEROS | values(kind)
    return values(kind)


@dataclass(frozen=True)
class Case:
    kinds: Sequence[Type]
    rows: Sequence[Any]
    options: dict[str, Any]
    mode: str

    def column(self, at: int, first: int = 0, count: int | None = None) -> list[Any]:
        part = self.rows[first : None if count is None else first + count]
        return [row[at] for row in part]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    size = draw(st.integers(0, 12))
    few = [draw(st.lists(st.none() | values_with_edges(kind), min_size=1, max_size=4)) for kind in kinds]
    cells = [draw(st.lists(st.sampled_from(each) | values_with_edges(kind), min_size=size, max_size=size))
             for kind, each in zip(kinds, few, strict=True)]  # fmt: skip
    options = {
        "row_group_size": draw(st.integers(1, 12)),
        "compression": draw(st.sampled_from(["none", "zstd", "snappy"])),
        "use_dictionary": draw(st.booleans()),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "data_page_size": 1,
        "write_batch_size": draw(st.integers(1, 6)),
        "write_statistics": draw(st.booleans()),
        "write_page_checksum": draw(st.booleans()),
        "store_decimal_as_integer": draw(st.booleans()),
    }
    mode = draw(st.sampled_from(["full", "truncate(16)", "truncate(1)", "truncate(5)", "counts", "none"]))
    return Case(kinds, list(zip(*cells, strict=True)), options, mode)


def order(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (value, math.copysign(1.0, value))
    return value


def written(kind: Type, value: Any, *, width: int) -> bytes:
    """A value as it stands in a footer: plain, a text or bytes without their length."""
    match kind:
        case PrimitiveType(Kind.BOOLEAN):
            return bytes([value])
        case PrimitiveType(Kind.FLOAT):
            return struct.pack("<f", value)
        case PrimitiveType(Kind.DOUBLE):
            return struct.pack("<d", value)
        case PrimitiveType(Kind.STRING):
            return str(value).encode()
        case DecimalType(_, scale):
            return unscaled(value, scale).to_bytes(abs(width), "little" if width < 0 else "big", signed=True)
        case PrimitiveType(Kind.INT | Kind.DATE):
            return int(value).to_bytes(4, "little", signed=True)
    return int(value).to_bytes(8, "little", signed=True)


def unscaled(value: Decimal, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    assert exponent == -scale
    number = int("".join(map(str, digits)))
    return -number if sign else number


def ends(kind: Type, found: Sequence[Any], width: int) -> Ends:
    """The least and the greatest as a file may say them, or none: where readers do not agree on them."""
    present = [value for value in found if value is not None]
    if not present or isinstance(kind, FixedType) or kind in (PrimitiveType(Kind.UUID), PrimitiveType(Kind.BINARY)):
        return None
    if any(isinstance(value, float) and math.isnan(value) for value in present):
        return None
    low, high = min(present, key=order), max(present, key=order)
    if isinstance(low, float):
        low, high = -0.0 if low == 0 else low, 0.0 if high == 0 else high
    both = written(kind, low, width=width), written(kind, high, width=width)
    return None if kind == PrimitiveType(Kind.STRING) and max(map(len, both)) > LONGEST else both


def numbers(fields: Struct) -> dict[int, Any]:
    return {number: value for number, _, value in fields}


def judge_chunk(
    case: Case, data: bytes, chunk: Struct, at: int, first: int, rows: int, wanted: Ends, width: int
) -> int:
    """Holds all that is said of a chunk to its values; gives the bytes of its pages."""
    said, own = numbers(chunk), numbers(metadata_of(chunk))
    found = case.column(at, first, rows)
    nulls = sum(value is None for value in found)
    assert said.keys() <= {2, 3, 4, 5, 6, 7}  # no copy of anything, nothing encrypted
    assert own.keys() <= {1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 13}  # no bloom filter, histogram, key or value
    assert own[5] == rows
    statistics = numbers(own[12])
    expected: dict[int, Any] = {3: nulls}
    if wanted is not None:
        expected |= {5: wanted[1], 6: wanted[0], 7: True, 8: True}
    assert statistics == expected
    places = judge_pages(case, data, own, at, first, rows)
    judge_indexes(case, data, said, at, first, rows, places, width)
    return sum(size for _, size, _ in places) + int(own[9] - own.get(11, own[9]))


def judge_pages(
    case: Case, data: bytes, own: dict[int, Any], at: int, first: int, rows: int
) -> list[tuple[int, int, int]]:
    """Page headers one after another; place, size and rows of each data page."""
    place = own.get(11, own[9])
    places, encodings = list[tuple[int, int, int]](), dict[tuple[int, int], int]()
    seen_rows = uncompressed = 0
    while seen_rows < rows:
        header, body = parse(data, place)
        fields = numbers(header)
        kind, inner = fields[1], numbers(next(fields[each] for each in (5, 7, 8) if each in fields))
        assert fields.keys() == {1, 2, 3, {0: 5, 2: 7, 3: 8}[kind]}  # no checksum
        end = body + fields[3]
        encoding = inner[4] if kind == 3 else inner[2]
        encodings[kind, encoding] = encodings.get((kind, encoding), 0) + 1
        uncompressed += body - place + fields[2]
        if kind == 2:
            assert (place, set(inner)) == (own[11], {1, 2})
        else:
            assert place == own[9] or places
            part = case.column(at, first + seen_rows, inner[1])
            if kind == 3:
                assert (inner[2], inner[3]) == (sum(value is None for value in part), inner[1])
                assert inner.keys() <= {1, 2, 3, 4, 5, 6, 7}
            else:
                assert inner.keys() == {1, 2, 3, 4}  # no statistics
            places.append((place, end - place, inner[1]))
            seen_rows += inner[1]
        place = end
    assert seen_rows == rows
    assert own[7] == place - own.get(11, own[9])
    assert own[6] == uncompressed
    assert {(numbers(each)[1], numbers(each)[2]): numbers(each)[3] for each in own[13][1]} == encodings
    assert set(own[2][1]) == {encoding for _, encoding in encodings} | {3}
    return places


def judge_indexes(
    case: Case,
    data: bytes,
    said: dict[int, Any],
    at: int,
    first: int,
    rows: int,
    places: Sequence[tuple[int, int, int]],
    width: int,
) -> None:
    offsets, end = parse(data, said[4])
    assert end - said[4] == said[5]
    listed = [numbers(each) for each in get(offsets, 1)[1]]
    starts = [sum(count for _, _, count in places[:before]) for before in range(len(places))]
    assert listed == [{1: place, 2: size, 3: start} for (place, size, _), start in zip(places, starts, strict=True)]
    assert numbers(offsets).keys() == {1}
    parts = [case.column(at, first + start, count) for start, (_, _, count) in zip(starts, places, strict=True)]
    wanted = [ends(case.kinds[at], part, width) for part in parts]
    empty = [all(value is None for value in part) for part in parts]
    if any(each is None and not is_null for each, is_null in zip(wanted, empty, strict=True)):
        assert 6 not in said
        return
    index, end = parse(data, said[6])
    assert end - said[6] == said[7]
    assert numbers(index) == {
        1: (numbers(index)[1][0], empty),
        2: (8, [b"" if each is None else each[0] for each in wanted]),
        3: (8, [b"" if each is None else each[1] for each in wanted]),
        4: 0,
        5: (6, [sum(value is None for value in part) for part in parts]),
    }


def judge(case: Case, data: bytes, entry: DataFile) -> None:
    _, footer = split_footer(data)
    said = numbers(footer)
    assert said.keys() == {1, 2, 3, 4, 6, 7}
    assert said[3] == len(case.rows)
    assert [numbers(each) for each in said[7][1]] == [{1: []}] * len(case.kinds)  # the order of the type
    first, sizes = 0, dict.fromkeys(range(1, len(case.kinds) + 1), 0)
    starts, chunks = [], []
    for number, group in enumerate(groups(footer)):
        fields = numbers(group)
        assert fields.keys() == {1, 2, 3, 5, 6, 7}  # nothing is said to be sorted
        assert (fields[7], fields[6]) == (number, sum(numbers(metadata_of(each))[7] for each in columns(group)))
        assert fields[2] == sum(numbers(metadata_of(each))[6] for each in columns(group))
        firsts = [numbers(metadata_of(each)) for each in columns(group)]
        assert fields[5] == firsts[0].get(11, firsts[0][9])
        starts.append(fields[5])
        chunks += [(number, at, chunk, first, fields[3]) for at, chunk in enumerate(columns(group))]
        first += fields[3]
    assert first == len(case.rows)
    for at, kind in enumerate(case.kinds):
        mine = [(chunk, start, rows) for _, place, chunk, start, rows in chunks if place == at]
        width = decimal_width(said[2][1], at, kind)
        wanted = [ends(kind, case.column(at, start, rows), width) for _, start, rows in mine]
        filled = [any(value is not None for value in case.column(at, start, rows)) for _, start, rows in mine]
        if any(each is None and is_filled for each, is_filled in zip(wanted, filled, strict=True)):
            wanted = [None] * len(wanted)
        for (chunk, start, rows), each in zip(mine, wanted, strict=True):
            sizes[at + 1] += judge_chunk(case, data, chunk, at, start, rows, each, width)
    assert list(entry.split_offsets or ()) == starts
    assert entry.file_size_in_bytes == len(data)
    assert entry.record_count == len(case.rows)
    kept = {} if case.mode == "none" or not case.rows else sizes
    assert dict(entry.column_sizes or {}) == kept


def decimal_width(elements: Sequence[Struct], at: int, kind: Type) -> int:
    """How many bytes a decimal of the column has; less than none where the least comes first."""
    if not isinstance(kind, DecimalType):
        return 0
    fields = numbers(elements[at + 1])
    return int({1: -4, 2: -8}.get(fields[1], fields.get(2, 0)))


@pytest.mark.usefixtures("kernel")
@given(case=cases())
def test_all_that_a_published_file_says_is_exact_or_absent(case: Case) -> None:
    fields = [column(at + 1, f"c{at}", type_to_iceberg(kind)) for at, kind in enumerate(case.kinds)]
    table = metadata(*fields, properties={"write.metadata.metrics.default": case.mode}, version=3)
    made = [{f"c{at}": plain(value) for at, value in enumerate(row)} for row in case.rows]
    staged = parquet(table_of(to_model(table.current_schema), made), **case.options)
    found = observe_file(staged, table, rewrite=True)
    assert found.findings == ()
    assert found.recipe is not None
    assert found.data_file is not None
    judge(case, splice(found.recipe, staged), found.data_file)
