"""Manifests: what is written is read back, bounds contain their values, and any bytes are read or refused."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pvdm.errors import InputError
from pvdm.lake.format.avro.container import AvroLimits, read_avro, write_avro
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, IdMap, ManifestEntry
from pvdm.lake.format.manifest.manifest import inherit, read_manifest
from pvdm.lake.format.manifest.manifest_list import ListHeader, read_manifest_list
from pvdm.lake.format.manifest.write import write_manifest, write_manifest_list
from pvdm.lake.format.partition_spec import PartitionSpec
from pvdm.lake.format.schema.bounds import compare, decode_bound, lower_bound, upper_bound
from pvdm.lake.format.schema.single_value import decode_value, encode_value, from_unscaled
from pvdm.model.schema import DecimalType, FixedType, Kind, PrimitiveType, Type
from tests.support.lake.manifests import container, entry, existing_entry, header, lies_within, listed, write_again

pytestmark = pytest.mark.property

# Refusals are quick: more of them are tried than of the rest, in every profile.
MANY = settings().max_examples * 5

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
COUNT = st.integers(0, 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def decimals(kind: DecimalType) -> st.SearchStrategy[Decimal]:
    most = 10**kind.precision - 1
    return st.integers(-most, most).map(lambda number: from_unscaled(kind, number))


SIMPLE: dict[str, tuple[Type, st.SearchStrategy[Any]]] = {
    "boolean": (PrimitiveType(Kind.BOOLEAN), st.booleans()),
    "int": (PrimitiveType(Kind.INT), INT32),
    "long": (PrimitiveType(Kind.LONG), INT64),
    "float": (PrimitiveType(Kind.FLOAT), st.floats(width=32, allow_nan=False)),
    "double": (PrimitiveType(Kind.DOUBLE), st.floats(allow_nan=False)),
    "date": (PrimitiveType(Kind.DATE), INT32),
    "time": (PrimitiveType(Kind.TIME), st.integers(0, 86_399_999_999)),
    "timestamp": (PrimitiveType(Kind.TIMESTAMP), INT64),
    "timestamptz": (PrimitiveType(Kind.TIMESTAMPTZ), INT64),
    "timestamp_ns": (PrimitiveType(Kind.TIMESTAMP_NS), INT64),
    "timestamptz_ns": (PrimitiveType(Kind.TIMESTAMPTZ_NS), INT64),
    "string": (PrimitiveType(Kind.STRING), TEXT),
    "uuid": (PrimitiveType(Kind.UUID), st.uuids()),
    "binary": (PrimitiveType(Kind.BINARY), st.binary()),
    "fixed[5]": (FixedType(5), st.binary(min_size=5, max_size=5)),
    "decimal(9, 2)": (DecimalType(9, 2), decimals(DecimalType(9, 2))),
    "decimal(38, 20)": (DecimalType(38, 20), decimals(DecimalType(38, 20))),
}
TYPED = st.sampled_from(sorted(SIMPLE)).flatmap(
    lambda name: st.tuples(st.just(SIMPLE[name][0]), SIMPLE[name][1], SIMPLE[name][1])
)


@given(TYPED)
def test_a_value_is_the_value_of_its_bytes(typed: tuple[Type, Any, Any]) -> None:
    kind, value, _ = typed
    found = decode_value(kind, encode_value(kind, value))
    assert (found, repr(found)) == (value, repr(value))


@given(TYPED)
def test_two_values_are_equal_exactly_if_their_bytes_are(typed: tuple[Type, Any, Any]) -> None:
    kind, first, second = typed
    assert (compare(kind, first, second) == 0) == (encode_value(kind, first) == encode_value(kind, second))


@given(TYPED)
def test_the_order_of_values_is_antisymmetric(typed: tuple[Type, Any, Any]) -> None:
    kind, first, second = typed
    assert compare(kind, first, second) == -compare(kind, second, first)


@given(TYPED)
def test_bounds_contain_what_they_are_made_of(typed: tuple[Type, Any, Any]) -> None:
    kind, value, _ = typed
    assert lies_within(kind, value, lower_bound(kind, value), upper_bound(kind, value))


LONG_TEXT = st.text(st.sampled_from("a\ud7ff\uffff\U0010ffffé"), min_size=17, max_size=40)


@given(LONG_TEXT)
def test_bounds_of_a_long_text_have_at_most_sixteen_code_points_and_contain_it(text: str) -> None:
    kind = PrimitiveType(Kind.STRING)
    lower, upper = lower_bound(kind, text), upper_bound(kind, text)
    for bound in (lower, upper):
        assert bound is None or len(decode_bound(kind, bound)) <= 16
    assert lies_within(kind, text, lower, upper)
    assert (upper is None) == (set(text[:16]) == {"\U0010ffff"})


@given(st.binary(min_size=17, max_size=40) | st.integers(17, 20).map(lambda size: b"\xff" * size))
def test_bounds_of_long_bytes_have_at_most_sixteen_and_contain_them(value: bytes) -> None:
    kind = PrimitiveType(Kind.BINARY)
    lower, upper = lower_bound(kind, value), upper_bound(kind, value)
    assert all(bound is None or len(bound) <= 16 for bound in (lower, upper))
    assert lies_within(kind, value, lower, upper)
    assert (upper is None) == (value[:16] == b"\xff" * 16)


def id_maps(values: st.SearchStrategy[Any]) -> st.SearchStrategy[IdMap[Any] | None]:
    return st.none() | st.dictionaries(INT32, values, max_size=4).map(lambda found: IdMap(found.items()))


@st.composite
def manifests(draw: st.DrawFn) -> tuple[Any, list[ManifestEntry]]:
    """A header of any format with any partition types, and entries that may be written under it."""
    version = draw(st.sampled_from([1, 2, 3]))
    names = draw(st.lists(st.sampled_from(sorted(SIMPLE)), max_size=3))
    columns = [{"id": at, "name": f"c{at}", "required": False, "type": name} for at, name in enumerate(names, 1)]
    spec = [
        {"name": draw(TEXT.filter(bool)) + str(at), "transform": "identity", "source-id": at, "field-id": 999 + at}
        for at, _ in enumerate(names, 1)
    ]
    head = header(
        version,
        schema_text=json.dumps({"type": "struct", "schema-id": 0, "fields": columns}),
        schema_id=0,
        spec=PartitionSpec.from_text(3, json.dumps(spec)),
    )
    return head, [draw(entries(version, names)) for _ in range(draw(st.integers(0, 4)))]


@st.composite
def entries(draw: st.DrawFn, version: int, names: list[str]) -> ManifestEntry:
    status = draw(st.sampled_from(EntryStatus))
    partition = IdMap([(999 + at, draw(st.none() | SIMPLE[name][1])) for at, name in enumerate(names, 1)])
    explicit = version > 1 and status is not EntryStatus.ADDED
    file = DataFile(
        file_path=draw(TEXT.filter(bool)),
        file_format=draw(st.sampled_from(["PARQUET", "orc", "AVRO"])),
        record_count=draw(COUNT),
        file_size_in_bytes=draw(COUNT),
        partition=partition,
        column_sizes=draw(id_maps(COUNT)),
        value_counts=draw(id_maps(COUNT)),
        null_value_counts=draw(id_maps(COUNT)),
        nan_value_counts=draw(id_maps(COUNT)),
        lower_bounds=draw(id_maps(st.binary())),
        upper_bounds=draw(id_maps(st.binary())),
        key_metadata=draw(st.none() | st.binary()),
        split_offsets=draw(st.none() | st.lists(INT64, max_size=3).map(tuple)),
        sort_order_id=draw(st.none() | INT32),
        first_row_id=draw(st.none() | COUNT) if version == 3 and explicit else None,
        block_size_in_bytes=draw(INT64) if version == 1 else None,
    )
    return ManifestEntry(
        status=status,
        data_file=file,
        snapshot_id=draw(INT64 if version == 1 else st.none() | INT64),
        sequence_number=draw(COUNT) if explicit else None,
        file_sequence_number=draw(COUNT) if explicit else None,
    )


@settings(max_examples=MANY // 10)
@given(manifests())
def test_a_manifest_is_read_as_it_was_written(example: tuple[Any, list[ManifestEntry]]) -> None:
    head, written = example
    first = write_manifest(head, written)
    found = read_manifest(first.data)
    assert found.entries == tuple(written)
    assert (found.header.spec, found.header.schema_text) == (head.spec, head.schema_text)
    assert read_manifest(write_again(found.file)).file.records == found.file.records
    assert write_manifest(head, written).data == first.data


@given(
    st.lists(st.tuples(st.sampled_from(EntryStatus), st.integers(0, 9), st.none() | st.integers(0, 99)), max_size=8),
    st.none() | st.integers(0, 10_000),
)
def test_row_ids_are_those_of_the_specification(
    facts: list[tuple[EntryStatus, int, int | None]], first_row_id: int | None
) -> None:
    """The rule, implemented again: the manifest's first row id, plus the rows of earlier files without an own id."""
    base = existing_entry().data_file
    rows = [
        existing_entry(
            replace(base, record_count=count, first_row_id=None if status is EntryStatus.ADDED else row_id),
            status=status,
        )
        for status, count, row_id in facts
    ]
    found = inherit(read_manifest(write_manifest(header(3), rows).data), listed(first_row_id=first_row_id))
    for at, each in enumerate(rows):
        own = each.data_file.first_row_id
        if first_row_id is None:
            expected = None
        elif own is None and each.status is not EntryStatus.DELETED:
            before = [row for row in rows[:at] if row.data_file.first_row_id is None and row.is_live]
            expected = first_row_id + sum(row.data_file.record_count for row in before)
        else:
            expected = own
        assert found[at].data_file.first_row_id == expected


PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": INT32,
    "long": INT64,
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=8),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
}
Typed = tuple[Callable[[str], Any], st.SearchStrategy[Any]]


def _optional(inner: Typed, null_first: bool) -> Typed:
    def schema(name: str) -> Any:
        return ["null", inner[0](name)] if null_first else [inner[0](name), "null"]

    return schema, st.none() | inner[1]


def _record(parts: list[Typed]) -> Typed:
    def schema(name: str) -> Any:
        fields = [{"name": f"f{at}", "type": part[0](f"{name}_{at}")} for at, part in enumerate(parts)]
        return {"type": "record", "name": name, "fields": fields}

    return schema, st.tuples(*(part[1] for part in parts))


def _fixed(size: int) -> Typed:
    return lambda name: {"type": "fixed", "name": name, "size": size}, st.binary(min_size=size, max_size=size)


def _array(inner: Typed) -> Typed:
    return lambda name: {"type": "array", "items": inner[0](name)}, st.lists(inner[1], max_size=3).map(tuple)


def _map(inner: Typed) -> Typed:
    pairs = st.dictionaries(PRIMITIVES["string"], inner[1], max_size=3).map(lambda found: tuple(found.items()))
    return lambda name: {"type": "map", "values": inner[0](name)}, pairs


LEAVES = st.sampled_from(sorted(PRIMITIVES)).map(lambda name: (lambda _: name, PRIMITIVES[name]))
TYPES: st.SearchStrategy[Any] = st.recursive(
    LEAVES | st.integers(1, 4).map(_fixed),
    lambda inner: st.one_of(
        inner.map(_array),
        inner.map(_map),
        st.lists(inner, max_size=3).map(_record),
        st.tuples(
            inner.filter(lambda each: each[0]("n") != "null" and not isinstance(each[0]("n"), list)), st.booleans()
        ).map(lambda pair: _optional(*pair)),
    ),
    max_leaves=6,
)


def plain(schema: Any, value: Any) -> Any:
    """A value as fastavro gives it."""
    match schema:
        case ["null", inner] | [inner, "null"]:
            return None if value is None else plain(inner, value)
        case {"type": "record", "fields": fields}:
            return {field["name"]: plain(field["type"], each) for field, each in zip(fields, value, strict=True)}
        case {"type": "array", "items": items}:
            return [plain(items, each) for each in value]
        case {"type": "map", "values": values}:
            return {key: plain(values, each) for key, each in value}
        case _:
            return value


@given(st.data(), st.lists(TYPES, min_size=1, max_size=4), st.sampled_from(["null", "deflate"]))
def test_files_of_any_schema_are_read_as_fastavro_reads_them(data: st.DataObject, types: list[Any], codec: str) -> None:
    schema, values = _record(types)
    tree = schema("root")
    records = data.draw(st.lists(values, max_size=4))
    written = write_avro(json.dumps(tree), [("k", b"v")], records, codec=codec)
    assert read_avro(written).records == tuple(records)
    theirs = list(fastavro.reader(io.BytesIO(written)))
    assert theirs == [plain(tree, each) for each in records]


def compressed(data: bytes, codec: str) -> bytes:
    """The same file in another codec."""
    return write_again(replace(read_avro(data), codec=codec))


GOOD = [
    compressed(write_manifest(header(version), [entry(), existing_entry() if version > 1 else entry()]).data, codec)
    for version in (1, 2, 3)
    for codec in ("null", "deflate")
]
_LIST = write_manifest_list(ListHeader(format_version=2, snapshot_id=55, sequence_number=4), [listed()]).data
LISTS = [compressed(_LIST, codec) for codec in ("null", "deflate")]
SMALL = AvroLimits(file_size_max_bytes=100_000, content_size_max_bytes=100_000, records_max=1_000, values_max=20_000)


@st.composite
def spoiled(draw: st.DrawFn, honest: list[bytes]) -> bytes:
    """A good file with some bytes changed, taken out, put in, doubled or cut off."""
    data = bytearray(draw(st.sampled_from(honest)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["change", "insert", "remove", "repeat", "cut"])):
            case "change" if at < len(data):
                data[at] = draw(st.integers(0, 255))
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=12))
            case "remove":
                del data[at : at + draw(st.integers(1, 40))]
            case "repeat":
                data[at:at] = data[at : at + draw(st.integers(1, 400))]
            case _:
                del data[at:]
    return bytes(data)


def require_read_or_refused(read: Callable[..., object], data: bytes) -> None:
    """Any error other than an InputError fails the test by itself."""
    try:
        read(data, limits=SMALL)
    except InputError as error:
        assert error.reason  # noqa: PT017


@settings(max_examples=MANY)
@given(spoiled(GOOD))
def test_a_spoiled_manifest_is_read_or_refused(data: bytes) -> None:
    require_read_or_refused(read_manifest, data)


@settings(max_examples=MANY // 2)
@given(spoiled(LISTS))
def test_a_spoiled_list_is_read_or_refused(data: bytes) -> None:
    require_read_or_refused(read_manifest_list, data)


@settings(max_examples=MANY // 2)
@given(st.binary(max_size=400), st.booleans())
def test_random_bytes_are_read_or_refused(data: bytes, with_magic: bool) -> None:
    require_read_or_refused(read_avro, b"Obj\x01" + data if with_magic else data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from([*PRIMITIVES, "record", "array", "r", "x.y", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "name", "fields", "items", "values", "size", "namespace", "field-id", "logicalType"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=MANY // 2)
@given(JSON, st.binary(max_size=60), st.integers(-3, 2**62), st.booleans())
def test_a_random_schema_over_random_bytes_is_read_or_refused(
    schema: Any, block: bytes, count: int, nested: bool
) -> None:
    outer = {"type": "record", "name": "r", "fields": [{"name": "f", "type": schema}]} if nested else schema
    require_read_or_refused(read_avro, container(outer, (count, block)))


@given(st.data(), st.lists(TYPES, min_size=1, max_size=4), st.binary(max_size=60), st.booleans())
def test_random_bytes_under_an_honest_schema_are_read_or_refused(
    data: st.DataObject, types: list[Any], block: bytes, squeezed: bool
) -> None:
    count = data.draw(st.integers(-1, 3) | st.integers(0, 2**62))
    stored = zlib.compress(block)[2:-4] if squeezed else block
    require_read_or_refused(
        read_avro, container(_record(types)[0]("root"), (count, stored), codec="deflate" if squeezed else "null")
    )
