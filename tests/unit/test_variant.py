"""The decoder of the Parquet variant encoding: every kind of value is read, and malformed bytes are refused."""

from __future__ import annotations

import struct

import pytest

from pvdm.digest.variant import Array, Node, Object, Scalar, decode
from pvdm.errors import InputError
from pvdm.model.schema import DecimalType, Kind, PrimitiveType
from tests.support.for_each import for_each

EMPTY = bytes((0x01, 0, 0))


def primitive(type_id: int, payload: bytes = b"") -> bytes:
    return bytes((type_id << 2,)) + payload


def short_string(text: bytes) -> bytes:
    return bytes((len(text) << 2 | 1,)) + text


def metadata_of(*strings: bytes, flags: int = 0x01) -> bytes:
    ends = [sum(map(len, strings[:count])) for count in range(len(strings) + 1)]
    return bytes((flags, len(strings), *ends)) + b"".join(strings)


def array_of(*values: bytes) -> bytes:
    ends = [sum(map(len, values[:count])) for count in range(len(values) + 1)]
    return bytes((0x03, len(values), *ends)) + b"".join(values)


def object_of(ids: list[int], starts: list[int], data: bytes) -> bytes:
    return bytes((0x02, len(ids), *ids, *starts, len(data))) + data


def scalar(kind: Kind, value: object) -> Node:
    return Scalar(PrimitiveType(kind), value)  # type: ignore[arg-type]


@for_each(
    ("value", "expected"),
    [
        (primitive(0), None),
        (primitive(1), scalar(Kind.BOOLEAN, True)),
        (primitive(2), scalar(Kind.BOOLEAN, False)),
        (primitive(3, b"\x80"), scalar(Kind.INT, -128)),
        (primitive(4, struct.pack("<h", -2)), scalar(Kind.INT, -2)),
        (primitive(5, struct.pack("<i", -3)), scalar(Kind.INT, -3)),
        (primitive(6, struct.pack("<q", -(2**63))), scalar(Kind.LONG, -(2**63))),
        (primitive(7, struct.pack("<d", -0.0)), scalar(Kind.DOUBLE, 1 << 63)),
        (primitive(11, struct.pack("<i", -1)), scalar(Kind.DATE, -1)),
        (primitive(12, struct.pack("<q", 5)), scalar(Kind.TIMESTAMPTZ, 5)),
        (primitive(13, struct.pack("<q", 5)), scalar(Kind.TIMESTAMP, 5)),
        (primitive(14, struct.pack("<I", 0x7FC00001)), scalar(Kind.FLOAT, 0x7FC00001)),
        (primitive(15, struct.pack("<I", 2) + b"\xff\x00"), scalar(Kind.BINARY, b"\xff\x00")),
        (primitive(16, struct.pack("<I", 1) + b"x"), scalar(Kind.STRING, b"x")),
        (primitive(17, struct.pack("<q", 86_399_999_999)), scalar(Kind.TIME, 86_399_999_999)),
        (primitive(18, struct.pack("<q", 7)), scalar(Kind.TIMESTAMPTZ_NS, 7)),
        (primitive(19, struct.pack("<q", 7)), scalar(Kind.TIMESTAMP_NS, 7)),
        (primitive(20, bytes(range(16))), scalar(Kind.UUID, bytes(range(16)))),
        (short_string(b"hello"), scalar(Kind.STRING, b"hello")),
    ],
)
def test_every_primitive_is_read_as_its_own_type(value: bytes, expected: Node) -> None:
    assert decode(EMPTY, value) == expected


@pytest.mark.parametrize(("type_id", "width", "digits"), [(8, 4, 9), (9, 8, 18), (10, 16, 38)])
def test_a_decimal_keeps_its_scale_at_every_width(type_id: int, width: int, digits: int) -> None:
    unscaled = -(10**digits) + 1
    value = primitive(type_id, b"\x26" + unscaled.to_bytes(width, "little", signed=True))
    assert decode(EMPTY, value) == Scalar(DecimalType(38, 38), unscaled)


def test_an_array_keeps_its_order() -> None:
    assert decode(EMPTY, array_of(short_string(b"b"), primitive(0), short_string(b"a"))) == Array(
        (scalar(Kind.STRING, b"b"), None, scalar(Kind.STRING, b"a"))
    )


def test_an_empty_object_differs_from_an_object_that_holds_null() -> None:
    assert decode(EMPTY, object_of([], [], b"")) == Object(())
    assert decode(metadata_of(b"a"), object_of([0], [0], primitive(0))) == Object((("a", None),))


def test_values_of_an_object_may_be_stored_in_another_order_than_its_names() -> None:
    data = primitive(0) + primitive(1)
    assert decode(metadata_of(b"b", b"a"), object_of([1, 0], [1, 0], data)) == Object(
        (("a", scalar(Kind.BOOLEAN, True)), ("b", None))
    )


def test_wide_offsets_and_counts_decode_to_the_same_value() -> None:
    four = bytes((0x01 | 0xC0,)) + struct.pack("<3I", 1, 0, 1) + b"a"
    large = bytes((0x02 | 0x1F << 2,)) + struct.pack("<4I", 1, 0, 0, 1) + primitive(0)
    assert decode(four, large) == decode(metadata_of(b"a"), object_of([0], [0], primitive(0)))


def test_an_unused_string_of_the_dictionary_does_not_change_the_value() -> None:
    value = object_of([0], [0], primitive(0))
    assert decode(metadata_of(b"a", b"zzz"), value) == decode(metadata_of(b"a"), value)


AB = metadata_of(b"a", b"b")
MALFORMED = {
    "metadata empty": (b"", primitive(0)),
    "metadata version 2": (metadata_of(flags=0x02), primitive(0)),
    "metadata cut off": (b"\x01\x01\x00", primitive(0)),
    "metadata left over": (EMPTY + b"x", primitive(0)),
    "metadata first offset not zero": (b"\x01\x01\x01\x02ab", primitive(0)),
    "metadata offsets descend": (b"\x01\x02\x00\x02\x01a", primitive(0)),
    "metadata not UTF-8": (metadata_of(b"\xff"), primitive(0)),
    "metadata claims to be sorted": (metadata_of(b"b", b"a", flags=0x11), primitive(0)),
    "metadata sorted with a string twice": (metadata_of(b"a", b"a", flags=0x11), primitive(0)),
    "value empty": (EMPTY, b""),
    "unknown primitive": (EMPTY, primitive(21)),
    "value cut off": (EMPTY, primitive(6, b"1234567")),
    "value left over": (EMPTY, primitive(0) + b"\x00"),
    "short string cut off": (EMPTY, bytes((5 << 2 | 1,)) + b"abcd"),
    "long string cut off": (EMPTY, primitive(16, struct.pack("<I", 9) + b"x")),
    "decimal scale 39": (EMPTY, primitive(8, b"\x27" + struct.pack("<i", 1))),
    "decimal4 of ten digits": (EMPTY, primitive(8, b"\x00" + struct.pack("<i", 10**9))),
    "decimal8 of nineteen digits": (EMPTY, primitive(9, b"\x00" + struct.pack("<q", -(10**18)))),
    "decimal16 of 39 digits": (EMPTY, primitive(10, b"\x00" + (10**38).to_bytes(16, "little", signed=True))),
    "time of 24 hours": (EMPTY, primitive(17, struct.pack("<q", 86_400_000_000))),
    "time below zero": (EMPTY, primitive(17, struct.pack("<q", -1))),
    "array offset out of bounds": (EMPTY, bytes((0x03, 1, 0, 9)) + primitive(0)),
    "array offsets descend": (EMPTY, bytes((0x03, 2, 0, 2, 1)) + primitive(0)),
    "array element of no bytes": (EMPTY, bytes((0x03, 2, 0, 0, 1)) + primitive(0)),
    "array bytes before the first element": (EMPTY, bytes((0x03, 1, 1, 2)) + primitive(0) * 2),
    "array bytes inside an element": (EMPTY, array_of(primitive(0) + b"\x00")),
    "array count larger than the input": (EMPTY, bytes((0x03 | 0x04 << 2, 255, 255, 255, 255))),
    "object field id outside the dictionary": (AB, object_of([2], [0], primitive(0))),
    "object names descend": (AB, object_of([1, 0], [0, 1], primitive(0) * 2)),
    "object name twice": (AB, object_of([0, 0], [0, 1], primitive(0) * 2)),
    "object fields share a value": (AB, object_of([0, 1], [0, 0], primitive(0))),
    "object fields overlap": (AB, object_of([0, 1], [0, 1], array_of(primitive(0)))),
    "object bytes that no field uses": (AB, object_of([0, 1], [0, 2], primitive(0) * 3)),
    "object offset out of bounds": (AB, object_of([0], [7], primitive(0))),
    "empty object with bytes": (AB, object_of([], [], primitive(0))),
}


@for_each(("metadata", "value"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_bytes_are_refused(metadata: bytes, value: bytes) -> None:
    with pytest.raises(InputError) as caught:
        decode(metadata, value)
    assert caught.value.reason == "variant_malformed"


def nested_arrays(levels: int) -> bytes:
    value = primitive(0)
    for _ in range(levels - 1):
        value = bytes((0x03 | 0x03 << 2, 1)) + struct.pack("<2I", 0, len(value)) + value
    return value


def test_a_variant_may_nest_up_to_the_limit() -> None:
    node = decode(EMPTY, nested_arrays(63))
    for _ in range(62):
        assert isinstance(node, Array)
        (node,) = node.elements
    assert node is None


def test_a_variant_that_nests_deeper_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        decode(EMPTY, nested_arrays(64))
    assert caught.value.reason == "nesting_too_deep"


def test_the_depth_of_the_column_counts_for_the_limit() -> None:
    with pytest.raises(InputError) as caught:
        decode(EMPTY, nested_arrays(63), depth=2)
    assert caught.value.reason == "nesting_too_deep"
