"""Avro files: pvdm and other libraries read what pvdm writes, and every invalid file is refused with its own reason."""

from __future__ import annotations

import io
import json
import tracemalloc
import zlib
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from pvdm.lake.format.avro.container import AvroLimits, decompress, encode_long, read_avro, write_avro
from tests.support.for_each import for_each
from tests.support.lake.manifests import SYNC, container, extra_of, record, refused, text

SCHEMA = json.dumps(record("int", "string", ["null", "long"], {"type": "array", "items": "bytes"}))
RECORDS = [(1, "a", None, ()), (-7, "ß𝄞", 2**63 - 1, (b"", b"\x00\xff"))]


def test_a_written_file_is_read_back() -> None:
    found = read_avro(write_avro(SCHEMA, [("k", b"\xff")], RECORDS))
    assert (found.records, found.schema_text, extra_of(found)) == (tuple(RECORDS), SCHEMA, (("k", b"\xff"),))


def test_equal_input_gives_equal_bytes() -> None:
    assert write_avro(SCHEMA, [("k", b"v")], RECORDS) == write_avro(SCHEMA, [("k", b"v")], RECORDS)


def test_other_input_gives_another_marker() -> None:
    first, second = (read_avro(write_avro(SCHEMA, [], RECORDS[:count])) for count in (1, 2))
    assert first.sync != second.sync


def test_a_given_marker_is_used() -> None:
    assert read_avro(write_avro(SCHEMA, [], RECORDS, sync=SYNC)).sync == SYNC


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_fastavro_reads_what_we_write(codec: str) -> None:
    rows: list[Any] = list(fastavro.reader(io.BytesIO(write_avro(SCHEMA, [], RECORDS, codec=codec))))
    assert [tuple(row.values()) for row in rows] == [(1, "a", None, []), (-7, "ß𝄞", 2**63 - 1, [b"", b"\x00\xff"])]


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_we_read_what_fastavro_writes(codec: str) -> None:
    target = io.BytesIO()
    rows = [{"f0": one, "f1": two, "f2": three, "f3": list(four)} for one, two, three, four in RECORDS]
    fastavro.writer(target, json.loads(SCHEMA), rows, codec=codec)
    assert read_avro(target.getvalue()).records == tuple(RECORDS)


def test_many_records_are_written_in_blocks_of_bounded_size() -> None:
    rows = [(at, "x" * 1_000, None, ()) for at in range(200)]
    data = write_avro(SCHEMA, [], rows, codec="null", sync=SYNC)
    assert (data.count(SYNC), read_avro(data).records) == (5, tuple(rows))


def test_array_blocks_with_and_without_their_size_are_read() -> None:
    items = encode_long(-2) + encode_long(2) + b"\x02\x04" + encode_long(1) + b"\x06" + b"\x00"
    assert read_avro(container(record({"type": "array", "items": "int"}), (1, items))).records == (((1, 2, 3),),)


def test_a_snappy_block_is_read_with_its_checksum() -> None:
    content = b"\x02\x04"
    stored = pa.Codec("snappy").compress(content, asbytes=True) + zlib.crc32(content).to_bytes(4, "big")
    assert read_avro(container(record("int", "int"), (1, stored), codec="snappy")).records == ((1, 2),)


def test_a_zstandard_block_is_read() -> None:
    stored = pa.Codec("zstd").compress(b"\x02\x04", asbytes=True)
    assert read_avro(container(record("int", "int"), (1, stored), codec="zstandard")).records == ((1, 2),)


def test_a_deflate_block_may_end_in_part_of_its_checksum() -> None:
    stored = zlib.compress(b"\x02")[2:-1]
    assert read_avro(container(record("int"), (1, stored), codec="deflate")).records == ((1,),)


def test_a_named_type_may_be_used_again() -> None:
    fixed = {"type": "fixed", "name": "two", "size": 2}
    assert read_avro(container(record(fixed, "two"), (1, b"abcd"))).records == ((b"ab", b"cd"),)


def bomb() -> bytes:
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    return b"".join([*(deflater.compress(bytes(1_000_000)) for _ in range(50)), deflater.flush()])


def test_a_deflate_bomb_is_left_off_at_the_limit() -> None:
    data = container(record("bytes"), (1, bomb()), codec="deflate")
    tracemalloc.start()
    with refused("avro_content_too_large"):
        read_avro(data, AvroLimits(content_size_max_bytes=1_000_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000


def test_the_limit_of_content_holds_over_all_blocks() -> None:
    data = container(record("bytes"), *[(1, text(bytes(600)))] * 2)
    with refused("avro_content_too_large"):
        read_avro(data, AvroLimits(content_size_max_bytes=1_000))


def test_a_snappy_bomb_is_left_off_too() -> None:
    with refused("avro_content_too_large"):
        decompress("snappy", pa.Codec("snappy").compress(bytes(50_000_000), asbytes=True) + bytes(4), 1_000_000)


def test_a_zstandard_bomb_is_left_off_too() -> None:
    with refused("avro_content_too_large"):
        decompress("zstandard", pa.Codec("zstd").compress(bytes(50_000_000), asbytes=True), 1_000_000)


DEEP = '{"type":"array","items":' * 40 + '"int"' + "}" * 40
PAIRS = {"type": "array", "items": {**record("int", "long"), "name": "pair"}}
TREE = {"type": "record", "name": "r", "fields": [{"name": "next", "type": ["null", "r"]}]}


def doubling(levels: int) -> dict[str, Any]:
    """A small schema with very many values: each record contains the one before twice."""
    inner: Any = {"type": "record", "name": "e0", "fields": []}
    for at in range(1, levels):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"e{at - 1}"}]
        inner = {"type": "record", "name": f"e{at}", "fields": fields}
    return record(inner)


@for_each(
    ("reason", "data"),
    [
        ("avro_magic_missing", b""),
        ("avro_magic_missing", b"PAR1"),
        ("avro_truncated", b"Obj\x01"),
        ("avro_truncated", container(record("int"))[:-1]),
        ("avro_schema_missing", b"Obj\x01\x00" + SYNC),
        ("avro_header_keys_refused", b"Obj\x01\x04" + (text("a") + text("b")) * 2 + b"\x00" + SYNC),
        ("avro_header_keys_refused", container(record("int"), extra={f"k{at}": b"" for at in range(1_000)})),
        ("avro_header_not_utf8", b"Obj\x01\x02" + text("avro.schema") + text(b"\xff") + b"\x00" + SYNC),
        ("avro_text_not_utf8", b"Obj\x01\x02" + text(b"\xff") + text("") + b"\x00" + SYNC),
        ("avro_length_negative", b"Obj\x01\x02" + encode_long(-5) + b"abcdef"),
        ("avro_codec_unknown", container(record("int"), (1, b"\x02"), codec="bzip2")),
        ("avro_sync_mismatch", container(record("int"), (1, b"\x02"))[:-1] + b"?"),
        ("avro_block_count_lies", container(record("int"), (1, b"\x02\x02"))),
        ("avro_truncated", container(record("int"), (2, b"\x02"))),
        ("avro_length_negative", container(record("int"), (-1, b"\x02"))),
        ("avro_block_corrupt", container(record("int"), (1, b"\xff\xff"), codec="deflate")),
        ("avro_block_corrupt", container(record("int"), (1, zlib.compress(b"\x02")[2:-6]), codec="deflate")),
        ("avro_block_corrupt", container(record("int"), (1, zlib.compress(b"\x02")[2:-4] + b"?"), codec="deflate")),
        ("avro_block_corrupt", container(record("int"), (1, b"\x01\x00\x02\x00\x00\x00\x00"), codec="snappy")),
        ("avro_block_corrupt", container(record("int"), (1, b""), codec="snappy")),
        ("avro_block_corrupt", container(record("int"), (1, b"\x00\x01\x02"), codec="zstandard")),
        ("avro_number_invalid", container(record("long"), (1, b"\x80" * 10 + b"\x01"))),
        ("avro_number_invalid", container(record("long"), (1, b"\xff" * 9 + b"\x7f"))),
        ("avro_number_invalid", container(record("int"), (1, encode_long(2**31)))),
        ("avro_boolean_invalid", container(record("boolean"), (1, b"\x02"))),
        ("avro_branch_unknown", container(record(["null", "int"]), (1, b"\x04\x02"))),
        ("avro_branch_unknown", container(record(["null", "int"]), (1, b"\x01"))),
        ("avro_length_negative", container(record("bytes"), (1, b"\x01abcdef"))),
        ("avro_truncated", container(record("bytes"), (1, encode_long(2**40) + b"abc"))),
        ("avro_truncated", container(record("double"), (1, b"abc"))),
        ("avro_text_not_utf8", container(record("string"), (1, text(b"\xed\xa0\x80")))),
        ("avro_count_lies", container(record({"type": "array", "items": "int"}), (1, encode_long(2**60)))),
        ("avro_count_lies", container(record({"type": "array", "items": "int"}), (1, encode_long(-(2**63)) + b"\x02"))),
        (
            "avro_block_size_lies",
            container(record({"type": "array", "items": "int"}), (1, b"\x01\x04\x02\x00")),
        ),
        (
            "avro_map_key_repeated",
            container(record({"type": "map", "values": "int"}), (1, b"\x04\x02a\x02\x02a\x02\x00")),
        ),
        ("avro_too_many_values", container(record({"type": "array", "items": "null"}), (1, encode_long(2**60)))),
        ("avro_too_many_records", container(record(), (2**60, b""))),
        ("lake_json_malformed", container('{"type":"record"', (1, b""))),
        ("lake_json_key_duplicate", container('{"type":"int","type":"record"}', (1, b""))),
        ("lake_json_number_invalid", container('{"type":"fixed","name":"f","size":NaN}', (1, b""))),
        ("lake_json_number_invalid", container('{"type":"fixed","name":"f","size":' + "9" * 5_000 + "}", (1, b""))),
        ("lake_json_too_deep", container("[" * 100_000, (1, b""))),
        ("avro_schema_unsupported", container(json.dumps(record("int") | {"namespace": "n" * 1_024}), (1, b""))),
        ("avro_schema_too_deep", container(DEEP, (1, b""))),
        ("avro_schema_recursive", container(TREE, (1, b"\x02" * 100_000))),
        ("avro_schema_too_many_nodes", container(doubling(20), (1, b""))),
        ("avro_union_unsupported", container(record(["int", "string"]), (1, b"\x00\x02"))),
        ("avro_union_unsupported", container(record(["null", "int", "string"]), (1, b"\x00"))),
        ("avro_union_unsupported", container(record(["null", "null"]), (1, b"\x00"))),
        ("avro_fixed_too_large", container(record({"type": "fixed", "name": "f", "size": 2**40}), (1, b""))),
        ("avro_fixed_too_large", container(record({"type": "fixed", "name": "f", "size": -1}), (1, b""))),
        (
            "avro_field_repeated",
            container({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}] * 2}),
        ),
        ("avro_schema_unsupported", container('"int"', (1, b"\x02"))),
        ("avro_schema_unsupported", container(record("missing"), (1, b"\x02"))),
        ("avro_schema_unsupported", container(record({"type": "enum", "name": "e", "symbols": ["A"]}), (1, b"\x00"))),
        ("avro_schema_unsupported", container(record(["null", ["null", "int"]]), (1, b"\x00"))),
        ("avro_schema_unsupported", container("{}", (1, b""))),
        *[
            ("avro_schema_unsupported", container(record(kind), (1, b"")))
            for kind in (
                5,
                {"type": "record", "name": "x"},
                {"type": "record", "name": "x", "fields": [1]},
                {"type": "record", "name": "", "fields": []},
                {"type": "fixed", "name": "r", "size": 1},
                {"type": "fixed", "name": "x", "size": "1"},
                {"type": "array"},
                {"type": "array", "items": "int", "element-id": -1},
                {"type": "int", "logicalType": 1},
                {"type": "long", "adjust-to-utc": "yes"},
            )
        ],
        ("avro_truncated", container(record(PAIRS), (1, encode_long(2) + b"\x02\x04\x80\x80"))),
        ("avro_truncated", container(record(PAIRS), (1, encode_long(1) + b"\x82\x01"))),
        ("avro_number_invalid", container(record(PAIRS), (1, encode_long(1) + encode_long(2**31) + b"\x02"))),
    ],
)
def test_an_invalid_file_is_refused(reason: str, data: bytes) -> None:
    with refused(reason):
        read_avro(data)


@for_each(
    ("reason", "limits"),
    [
        ("avro_file_too_large", AvroLimits(file_size_max_bytes=100)),
        ("avro_header_too_large", AvroLimits(header_size_max_bytes=20)),
        ("avro_too_many_records", AvroLimits(records_max=1)),
        ("avro_too_many_blocks", AvroLimits(blocks_max=1)),
        ("avro_too_many_values", AvroLimits(values_max=3)),
        ("avro_content_too_large", AvroLimits(content_size_max_bytes=1)),
    ],
)
def test_a_file_above_a_limit_is_refused(reason: str, limits: AvroLimits) -> None:
    data = container(record("int"), (1, b"\x02"), (1, b"\x04"))
    assert len(read_avro(data).records) == 2
    with refused(reason):
        read_avro(data, limits)


def test_a_schema_that_is_too_large_is_refused() -> None:
    with refused("avro_schema_too_large"):
        read_avro(container({**record("int"), "doc": "x" * 5_000_000}, (1, b"\x02")))


def test_two_fields_with_one_id_are_refused() -> None:
    fields = [{"name": name, "type": "int", "field-id": 5} for name in "ab"]
    with refused("avro_field_repeated"):
        read_avro(container({"type": "record", "name": "r", "fields": fields}))


@for_each(
    ("kind", "value"),
    [
        ("int", 2**31),
        ("int", True),
        ("long", 2**63),
        ("string", "\ud800"),
        ("string", b"a"),
        ("bytes", "a"),
        ("boolean", 1),
        ("double", 1),
        ("float", 1),
        ("float", 1e300),
        ("null", 0),
        ({"type": "fixed", "name": "f", "size": 2}, b"a"),
        ({"type": "array", "items": "int"}, [1]),
        ({"type": "map", "values": "int"}, (("a", 1), ("a", 2))),
        ({"type": "map", "values": "int"}, ((1, 1),)),
        (record("int"), (1, 2)),
    ],
)
def test_writing_a_value_of_another_type_is_refused(kind: Any, value: Any) -> None:
    outer = {"type": "record", "name": "outer", "fields": [{"name": "f", "type": kind}]}
    with refused("avro_value_invalid"):
        write_avro(json.dumps(outer), [], [(value,)])


def test_writing_a_marker_of_another_size_is_refused() -> None:
    with refused("avro_marker_invalid"):
        write_avro(SCHEMA, [], RECORDS, sync=b"short")


def test_writing_a_header_key_twice_is_refused() -> None:
    with refused("avro_header_key_repeated"):
        write_avro(SCHEMA, [("avro.codec", b"null")], RECORDS)
