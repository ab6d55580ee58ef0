"""JSON that is written as it was read, and JSON that is refused."""

from __future__ import annotations

import gzip

import pytest

from pvdm.errors import InputError
from pvdm.lake.format import json_document
from pvdm.lake.format.json_document import (
    JSON_DEPTH_MAX,
    Json,
    Number,
    comparison_text,
    decompress_gzip,
    dump_json,
    parse_json,
)
from tests.support.for_each import for_each


@for_each(
    "text",
    [
        "1.50",
        "1E3",
        "-0",
        "-0.0",
        "1e-400",
        "9223372036854775807",
        "123456789012345678901234567890",
        "0.1000000000000000055",
    ],
)
def test_a_number_keeps_its_spelling(text: str) -> None:
    data = f'{{"x":[{text},{{"y":{text}}}]}}'.encode()
    assert dump_json(parse_json(data)) == data


def test_a_document_without_odd_numbers_keeps_order_and_text() -> None:
    data = '{"z":1,"a":[true,null,"ä\\n\\"\\u0001"],"m":{"é":"😀"}}'.encode()
    assert dump_json(parse_json(data)) == data


def test_odd_numbers_do_not_change_how_text_is_written() -> None:
    data = '{"z":1.0,"a":[true,false,null,"ä\\n\\"\\u0001",7],"é":{"😀":[]}}'.encode()
    assert dump_json(parse_json(data)) == data


def test_keys_are_sorted_only_for_comparison() -> None:
    assert (comparison_text({"b": 1, "a": Number("1.0")}), dump_json({"b": 1, "a": 2})) == (
        '{"a":1.0,"b":1}',
        b'{"b":1,"a":2}',
    )


def test_true_and_one_are_compared_as_different() -> None:
    assert comparison_text(True) != comparison_text(1)


@for_each(
    ("data", "reason"),
    [
        (b'{"a":1,"b":2,"a":3}', "lake_json_key_duplicate"),
        (b'{"a":{"b":1,"b":1}}', "lake_json_key_duplicate"),
        (b'{"a":NaN}', "lake_json_number_invalid"),
        (b'{"a":-Infinity}', "lake_json_number_invalid"),
        (b'{"a":1} x', "lake_json_malformed"),
        (b"", "lake_json_malformed"),
        (b'{"a":"\xff"}', "lake_json_malformed"),
        (b'\xef\xbb\xbf{"a":1}', "lake_json_malformed"),
        (b'{"a":"\\ud800"}', "lake_json_text_invalid"),
        (b'{"\\udfff":1}', "lake_json_text_invalid"),
        (b'[["\\ud800"]]', "lake_json_text_invalid"),
        (b"[" * (JSON_DEPTH_MAX + 1) + b"]" * (JSON_DEPTH_MAX + 1), "lake_json_too_deep"),
        (b'{"a":' * (JSON_DEPTH_MAX + 1) + b"1" + b"}" * (JSON_DEPTH_MAX + 1), "lake_json_too_deep"),
        (b"[" * 100_000, "lake_json_too_deep"),
    ],
)
def test_invalid_or_ambiguous_json_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_json(data)
    assert caught.value.reason == reason


def test_a_surrogate_pair_is_one_character() -> None:
    assert parse_json(b'"\\ud83d\\ude00"') == "😀"


def test_brackets_in_text_are_not_depth() -> None:
    text = "[" * 1_000 + '\\"' + "{" * 1_000
    assert parse_json(f'["{text}"]'.encode()) == ["[" * 1_000 + '"' + "{" * 1_000]


def test_the_largest_depth_is_accepted() -> None:
    assert parse_json(b"[" * JSON_DEPTH_MAX + b"]" * JSON_DEPTH_MAX)


def test_a_document_above_the_limit_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        parse_json(b'"1234"', size_max_bytes=5)
    assert caught.value.reason == "lake_json_too_large"


@pytest.mark.parametrize("other", [1, Number("1.0")])
def test_writing_a_value_that_json_does_not_have_is_refused(other: Json) -> None:
    with pytest.raises(InputError) as caught:
        dump_json({"x": other, "a": b"bytes"})
    assert caught.value.reason == "lake_json_malformed"


def test_gzip_is_decompressed() -> None:
    assert decompress_gzip(gzip.compress(b"{}")) == b"{}"


def test_plain_bytes_are_returned_as_they_are() -> None:
    assert decompress_gzip(b'{"a":1}') == b'{"a":1}'


@for_each(
    "data",
    [
        b"\x1f\x8bnot gzip",
        gzip.compress(b"{}", mtime=0)[:-3],
        gzip.compress(b"{}", mtime=0) + b"tail",
        b"\x1f\x8b",
        gzip.compress(b"", mtime=0) + gzip.compress(b"{}", mtime=0),
    ],
    ids=["no gzip", "cut", "more", "magic only", "two streams"],
)
def test_broken_gzip_is_refused(data: bytes) -> None:
    with pytest.raises(InputError) as caught:
        decompress_gzip(data)
    assert caught.value.reason == "lake_gzip_malformed"


def test_gzip_that_decompresses_above_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError) as caught:
        decompress_gzip(gzip.compress(b" " * 10_000_000), size_max_bytes=1_000)
    assert caught.value.reason == "lake_json_too_large"


def test_the_limit_of_metadata_files_is_128_mib() -> None:
    assert json_document.METADATA_SIZE_MAX_BYTES == 128 * 1024 * 1024
