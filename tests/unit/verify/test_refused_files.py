"""Files that the kernel refuses: each refusal becomes a finding with its class."""

from __future__ import annotations

import base64
import random
import struct
from collections.abc import Sequence
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pvdm.digest import Digester, Mode, Plan, kernel_engine
from pvdm.digest.file_facts import FileRequest
from pvdm.digest.parquet import read_batches
from pvdm.errors import VerificationError
from pvdm.lake.format.schema.logical import to_model
from pvdm.model.projection import ProjectionName, content
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.findings import Finding
from tests.support.for_each import for_each
from tests.support.lake.metadata import Doc, column
from tests.support.lake.scans import KEYS
from tests.support.parquet.edit import with_variants
from tests.support.verify.staged import NAME, codes, metadata, observe_file, parquet

pytestmark = pytest.mark.usefixtures("kernel")

TABLE = metadata(column(1, "id", required=True), column(2, "town", "string"))


def table_of(*columns: tuple[str, Any, int | None]) -> pa.Table:
    """A table of these columns, each given by its name, values and field id."""
    arrays = [pa.array(values) if isinstance(values, list) else values for _, values, _ in columns]
    fields: list[Any] = [
        pa.field(name, array.type, metadata=None if field_id is None else {NAME: str(field_id)})
        for (name, _, field_id), array in zip(columns, arrays, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


HONEST = table_of(("id", [1, 2, 3], 1), ("town", ["a", "b", None], 2))


def findings_of(data: bytes, table: Any = TABLE) -> Sequence[Finding]:
    found = observe_file(data, table, record_count=3)
    assert found.data_file is None or not found.findings
    return found.findings


def class_and_code(data: bytes, table: Any = TABLE) -> tuple[FailureClass, str]:
    (finding,) = findings_of(data, table)
    return finding.failure, finding.code


def test_an_honest_file_is_accepted() -> None:
    assert findings_of(parquet(HONEST)) == ()


@for_each(
    ("columns", "code"),
    [
        ([("id", [1, 2, 3], 1), ("town", ["a", "b", "c"], None)], "field_id_missing"),
        ([("id", [1, 2, 3], 1), ("town", ["a", "b", "c"], 9)], "field_id_unknown"),
        ([("id", [1, 2, 3], 1), ("more", [1, 2, 3], 3)], "field_id_unknown"),
        ([("id", [1, 2, 3], 1), ("pos", [1, 2, 3], 2_147_483_540)], "field_id_reserved"),
        ([("id", [1, 2, 3], 1), ("again", [1, 2, 3], 1)], "field_id_twice"),
        ([("town", ["a", "b", "c"], 2)], "field_required_missing"),
        ([("id", [1, None, 3], 1)], "null_in_required"),
        ([("id", ["1", "2", "3"], 1)], "cast_refused"),
        ([("id", pa.array([1, 2, 3], pa.uint64()), 1)], "cast_refused"),
        ([("id", [1.0, 2.0, 3.0], 1)], "cast_refused"),
    ],
)
def test_columns_that_differ_from_the_tables_are_refused(columns: list[tuple[str, Any, int | None]], code: str) -> None:
    assert class_and_code(parquet(table_of(*columns))) == (FailureClass.SCHEMA, code)


def test_a_column_with_another_name_and_the_right_id_is_accepted() -> None:
    assert findings_of(parquet(table_of(("other", [1, 2, 3], 1)))) == ()


INNER: Any = pa.field("value", pa.int32(), metadata={NAME: "99"})
MAP: Any = pa.map_


@pytest.mark.parametrize(
    ("arrow", "value", "iceberg"),
    [
        (pa.struct([INNER]), {"value": 1}, {"type": "struct", "fields": [column(3, "value", "int")]}),
        (pa.list_(INNER), [1], {"type": "list", "element-id": 3, "element": "int", "element-required": False}),
        (
            MAP(pa.field("key", pa.int32(), nullable=False, metadata={NAME: "3"}), INNER),
            [(1, 1)],
            {"type": "map", "key-id": 3, "key": "int", "value-id": 4, "value": "int", "value-required": False},
        ),
    ],
    ids=["struct", "list", "map"],
)
def test_an_unknown_id_is_found_at_any_depth(arrow: pa.DataType, value: Any, iceberg: Doc) -> None:
    fields: list[Any] = [pa.field("n", arrow, metadata={NAME: "2"})]
    arrays: list[Any] = [pa.array([value] * 3, arrow)]
    data = parquet(pa.Table.from_arrays(arrays, schema=pa.schema(fields)))
    assert class_and_code(data, metadata(column(2, "n", iceberg))) == (FailureClass.SCHEMA, "field_id_unknown")


def test_a_column_outside_of_every_projection_with_another_type_is_refused() -> None:
    schema = to_model(TABLE.current_schema)
    plan = Plan(schema, (content(schema, exclude={"town": "free text"}),), Mode.STORED)
    digester = Digester(plan, {ProjectionName.CONTENT: KEYS[ProjectionName.CONTENT]}, engine=kernel_engine())
    data = parquet(table_of(("id", [1, 2, 3], 1), ("town", [1, 2, 3], 2)))
    with pytest.raises(VerificationError) as caught:
        digester.read_parquet(data, FileRequest(schema))
    assert caught.value.reason == "cast_refused"


@for_each("data", [b"", b"PAR1", b"PAR1" + b"\0" * 8, b"PAR1\xff\xff\xff\x00PAR1", b"x" * 100])
def test_bytes_that_are_no_parquet_file_are_refused(data: bytes) -> None:
    assert class_and_code(data) == (FailureClass.PHYSICAL, "parquet_unreadable")


def test_a_file_that_is_cut_is_refused() -> None:
    data = parquet(HONEST)
    for size in range(0, len(data), 7):
        assert class_and_code(data[:size]) == (FailureClass.PHYSICAL, "parquet_unreadable")


def test_a_page_whose_checksum_is_wrong_is_refused() -> None:
    many = table_of(("id", list(range(1_000)), 1))
    data = bytearray(parquet(many, write_page_checksum=True, compression="none", use_dictionary=False))
    assert observe_file(bytes(data), TABLE, record_count=1_000).findings == ()
    at = data.index(struct.pack("<q", 500))
    data[at : at + 8] = struct.pack("<q", 501)
    found = observe_file(bytes(data), TABLE, record_count=1_000)
    assert [(each.failure, each.code) for each in found.findings] == [(FailureClass.PHYSICAL, "parquet_unreadable")]


def test_a_file_with_changed_bytes_is_read_or_refused_without_a_crash() -> None:
    data, rnd = parquet(HONEST), random.Random(6)
    for _ in range(1_000):
        changed = bytearray(data)
        for _ in range(rnd.randint(1, 4)):
            changed[rnd.randrange(len(changed))] = rnd.randrange(256)
        observe_file(bytes(changed), TABLE, record_count=3)


@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_an_encrypted_file_is_refused(plaintext_footer: bool) -> None:
    encryption = pytest.importorskip("pyarrow.parquet.encryption")

    class Kms(encryption.KmsClient):  # type: ignore[misc, name-defined]
        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
            return base64.b64encode(master_key_identifier.encode().ljust(4) + key_bytes)

        def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
            raise AssertionError(wrapped_key, master_key_identifier)

    config = encryption.EncryptionConfiguration(
        footer_key="foot", column_keys={"cols": ["town"]}, plaintext_footer=plaintext_footer
    )
    factory = encryption.CryptoFactory(lambda _: Kms())
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), config)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, HONEST.schema, encryption_properties=properties) as writer:
        writer.write_table(HONEST)
    assert class_and_code(sink.getvalue().to_pybytes()) == (FailureClass.PHYSICAL, "parquet_encrypted")


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def nested_footer(depth: int) -> bytes:
    """A file without rows whose schema has `depth` nested groups."""
    group = b"\x35\x00\x18\x01x\x15\x02\x00"  # optional, named x, one child
    leaf = b"\x15\x02\x25\x02\x18\x01x\x00"
    elements = [b"\x48\x01r\x15\x02\x00", *[group] * depth, leaf]
    schema = b"\x19" + (b"\xfc" + varint(len(elements))) + b"".join(elements)
    body = b"\x15\x02" + schema + b"\x16\x00\x19\x0c\x00"
    return b"PAR1" + body + struct.pack("<I", len(body)) + b"PAR1"


def test_a_schema_that_nests_very_deeply_is_refused_without_a_crash() -> None:
    assert class_and_code(nested_footer(90_000)) == (FailureClass.SCHEMA, "nesting_too_deep")


def test_a_schema_that_nests_a_little_is_parsed() -> None:
    assert class_and_code(nested_footer(3))[1] == "field_id_missing"


def test_a_footer_that_is_too_long_is_refused() -> None:
    data = b"PAR1" + b"\0" * 67_108_865 + struct.pack("<I", 67_108_865) + b"PAR1"
    assert class_and_code(data) == (FailureClass.PHYSICAL, "parquet_too_large")


def test_a_page_with_a_very_large_declared_size_is_refused() -> None:
    table = metadata(column(1, "v", "binary"))
    value = pa.array([b"\0" * 140_000_000])
    data = bytearray(
        parquet(table_of(("v", value, 1)), compression="zstd", use_dictionary=False, write_statistics=False)
    )
    at = 4 + 3  # after the magic bytes, the page's type and the field header of its uncompressed size
    assert (data[at - 1], data[at + 4] < 128) == (0x15, True)
    data[at : at + 5] = varint(2 * 1_073_741_825)
    (finding,) = observe_file(bytes(data), table, record_count=1).findings
    assert (finding.failure, finding.code) == (FailureClass.PHYSICAL, "parquet_too_large")


def test_nulls_of_a_very_wide_type_are_refused() -> None:
    table = metadata(column(1, "v", "fixed[1000000]"))
    nulls = pa.nulls(1_100, pa.binary(1_000_000))
    found = observe_file(parquet(table_of(("v", nulls, 1))), table, record_count=1_100)
    assert codes(found.findings) == ["parquet_too_large"]


@pytest.mark.parametrize("plain", [True, False])
def test_batches_stay_small_also_with_long_values(plain: bool) -> None:
    value = "x" * 1_000_000
    town = pa.DictionaryArray.from_arrays(pa.array([0] * 200, pa.int32()), pa.array([value]))
    values: Any = pa.array([value] * 200) if plain else town
    table = table_of(("id", list(range(200)), 1), ("town", values, 2))
    data = parquet(table, write_statistics=False, use_dictionary=not plain)
    sizes = [batch.nbytes for batch in read_batches(data, to_model(TABLE.current_schema))]
    assert sum(sizes) > 200_000_000
    assert max(sizes) < 70_000_000


def test_a_footer_with_another_row_count_than_the_pages_is_refused() -> None:
    data = bytearray(parquet(HONEST))
    # FileMetaData.num_rows comes after the schema: field 3, a zigzag 3.
    footer = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    at = data.index(b"\x16\x06\x19", footer)
    data[at + 1] = 8
    assert class_and_code(bytes(data)) == (FailureClass.PHYSICAL, "parquet_rows_lie")


def test_a_page_that_panics_the_decoder_is_a_finding() -> None:
    pvdm_kernel = pytest.importorskip("pvdm_kernel")
    with mock.patch.object(pvdm_kernel, "ParquetFile", side_effect=pvdm_kernel.PanicException("index out of bounds")):
        assert class_and_code(parquet(HONEST)) == (FailureClass.PHYSICAL, "parquet_unreadable")


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_every_codec_that_spark_reads_and_every_page_version_is_read(codec: str, version: str) -> None:
    data = parquet(HONEST, compression=codec, data_page_version=version)
    assert findings_of(data) == ()


def test_a_dropped_column_in_a_staged_file_is_refused() -> None:
    past: Doc = {"type": "struct", "schema-id": 0, "fields": [column(1, "id"), column(9, "old", "int")]}
    now: Doc = {"type": "struct", "schema-id": 1, "fields": [column(1, "id")]}
    changes: dict[str, Any] = {"schemas": [past, now], "current-schema-id": 1}
    table = metadata(**changes)
    data = parquet(table_of(("id", [1, 2, 3], 1), ("old", pa.array([1, 2, 3], pa.int32()), 9)))
    assert class_and_code(data, table) == (FailureClass.SCHEMA, "field_id_unknown")


VARIANT = metadata(column(1, "id"), column(2, "v", "variant"), version=3)


def file_of_variants(*, annotated: bool = True, **parts: Any) -> bytes:
    """A file of three variants with these parts, each an array and its field id, and with the variant annotation."""
    fields: list[Any] = [
        pa.field(name, array.type, metadata=None if field_id is None else {NAME: str(field_id)})
        for name, (array, field_id) in parts.items()
    ]
    values: Any = pa.StructArray.from_arrays([array for array, _ in parts.values()], fields=fields)
    data = parquet(table_of(("id", [1, 2, 3], 1), ("v", values, 2)), store_schema=False)
    return with_variants(data, "v") if annotated else data


EMPTY: dict[str, Any] = {"metadata": (pa.array([b"\1\0\0"] * 3), None), "value": (pa.array([b"\0"] * 3), None)}


def test_a_variant_of_metadata_and_value_is_accepted() -> None:
    assert findings_of(file_of_variants(**EMPTY), VARIANT) == ()


def test_a_variant_without_its_annotation_is_refused() -> None:
    """DuckDB reads it as a struct of its two parts."""
    data = file_of_variants(**EMPTY, annotated=False)
    assert class_and_code(data, VARIANT) == (FailureClass.PHYSICAL, "parquet_ambiguous")


def test_a_shredded_variant_is_refused() -> None:
    data = file_of_variants(**EMPTY, typed_value=(pa.array([1, 2, 3]), None))
    assert class_and_code(data, VARIANT) == (FailureClass.SCHEMA, "variant_shredded")


@pytest.mark.parametrize("part", EMPTY)
def test_an_id_inside_a_variant_is_refused(part: str) -> None:
    """A later column of the table could get the same id."""
    data = file_of_variants(**{**EMPTY, part: (EMPTY[part][0], 7)})
    assert class_and_code(data, VARIANT) == (FailureClass.SCHEMA, "field_id_unknown")
