"""Files that PyArrow, DuckDB, Polars and DataFusion write with many options. All their claims are true."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from pvdm.lake.format.table.metadata import TableMetadata
from tests.support.lake.metadata import Doc, column
from tests.support.parquet.edit import I32, Struct, edit_footer, get, put
from tests.support.parquet.field_ids import FooterField, SchemaField
from tests.support.verify.staged import metadata, parquet

UTC = datetime.UTC
ROWS = 500
START = datetime.datetime(2026, 11, 14, 12, tzinfo=UTC)

PLACE: Doc = {"type": "struct", "fields": [column(3, "floor", "int"), column(4, "hall", "string")]}
TAGS: Doc = {"type": "list", "element-id": 6, "element": "string", "element-required": False}
COUNTS: Doc = {"type": "map", "key-id": 8, "key": "string", "value-id": 9, "value": "long", "value-required": False}
STOPS: Doc = {
    "type": "list",
    "element-id": 11,
    "element": {"type": "struct", "fields": [column(12, "begun", "timestamptz"), column(13, "price", "decimal(9, 2)")]},
    "element-required": False,
}
FLAT = (
    column(1, "id"),
    column(2, "flag", "boolean"),
    column(3, "small", "int"),
    column(4, "ratio", "float"),
    column(5, "amount", "double"),
    column(6, "price", "decimal(9, 2)"),
    column(7, "sum", "decimal(28, 6)"),
    column(8, "day", "date"),
    column(9, "made", "timestamp"),
    column(10, "seen", "timestamptz"),
    column(11, "town", "string"),
    column(12, "code", "binary"),
    column(13, "cents", "decimal(16, 2)"),
)
NESTED = (column(1, "id"), column(2, "place", PLACE), column(5, "tags", TAGS), column(10, "stops", STOPS))
MAPPED = (*NESTED, column(7, "counts", COUNTS))
STAMP, PRICE = pa.timestamp("us", "UTC"), pa.decimal128(9, 2)
ARROW: Mapping[str, pa.DataType] = {
    "id": pa.int64(),
    "flag": pa.bool_(),
    "small": pa.int32(),
    "ratio": pa.float32(),
    "amount": pa.float64(),
    "price": PRICE,
    "sum": pa.decimal128(28, 6),
    "day": pa.date32(),
    "made": pa.timestamp("us"),
    "seen": STAMP,
    "town": pa.string(),
    "code": pa.binary(),
    "cents": pa.decimal128(16, 2),
    "place": pa.struct([("floor", pa.int32()), ("hall", pa.string())]),
    "tags": pa.list_(pa.field("element", pa.string())),
    "stops": pa.list_(pa.field("element", pa.struct([("begun", STAMP), ("price", PRICE)]))),
    "counts": pa.map_(pa.string(), pa.int64()),
}


def flat_row(at: int) -> dict[str, Any]:
    """Row number `at`, without nested columns. One row in eleven has only an id."""
    is_empty = at % 11 == 3
    row = {
        "id": at * 7919 - 100_000,
        "flag": at % 3 == 0,
        "small": (at * 2_654_435_761) % 2**32 - 2**31,
        "ratio": at / 8 - 20,
        "amount": {7: -0.0, 8: 0.0}.get(at % 50, at * 1.1e10),
        "price": Decimal(at * 37 - 5_000).scaleb(-2),
        "sum": Decimal(at * 10**20 - 5).scaleb(-6),
        "day": START.date() + datetime.timedelta(days=at - 200),
        "made": (START + datetime.timedelta(seconds=at * 61, microseconds=at)).replace(tzinfo=None),
        "seen": START - datetime.timedelta(hours=at * 1_000),
        "town": f"Castrop-Rauxel an der Ruhr, Haus {at // 3 % 40}" if at % 5 else "",
        "code": bytes([at % 256]) * (at % 7),
        "cents": Decimal(at * 10**10).scaleb(-2),
    }
    return {name: None if is_empty and name != "id" else value for name, value in row.items()}


def nested_row(at: int) -> dict[str, Any]:
    """Row number `at`, with nested columns."""
    flat = flat_row(at)
    stop = {"begun": flat["seen"], "price": flat["price"]}
    return {
        "id": at,
        "place": None if at % 7 == 1 else {"floor": at % 4 or None, "hall": f"h{at % 9}"},
        "tags": None if at % 6 == 1 else [f"t{each}" if each % 3 else None for each in range(at % 5)],
        "stops": None if at % 8 == 1 else [stop, None][: at % 3],
        "counts": None if at % 9 == 1 else [(f"k{each}", each + at if each != 1 else None) for each in range(at % 4)],
    }


def table_of(fields: Sequence[Doc], rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The rows as an Arrow table with these columns."""
    schema = pa.schema([(str(each["name"]), ARROW[str(each["name"])]) for each in fields])
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema)


def null_rows(fields: Sequence[Doc]) -> list[dict[str, Any]]:
    """Twenty rows with only nulls."""
    return [{str(each["name"]): None for each in fields}] * 20


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows to write, and the columns of their Iceberg table."""

    fields: tuple[Doc, ...]
    rows: pa.Table

    @property
    def table(self) -> TableMetadata:
        return metadata(*self.fields)


def samples(nested: tuple[Doc, ...], *, null_structs: bool = True) -> dict[str, Sample]:
    """Four samples by name. `nested` are the columns of the nested rows that the writer can write."""
    rows = [nested_row(at) for at in range(ROWS)]
    for row in rows if not null_structs else ():
        row["stops"] = row["stops"] and [each for each in row["stops"] if each]
    return {
        "flat": Sample(FLAT, table_of(FLAT, [flat_row(at) for at in range(ROWS)])),
        "nested": Sample(nested, table_of(nested, rows)),
        "nulls": Sample(FLAT, table_of(FLAT, null_rows(FLAT))),
        "no rows": Sample(nested, table_of(nested, [])),
    }


SAMPLES = samples(MAPPED)
# Polars has no maps. DuckDB gives a wrong null_count for lists with null structs, so it gets none of these: such a file
# is refused (docs/parquet.md).
SAMPLES_BY_WRITER = {"Polars": samples(NESTED), "DuckDB": samples(MAPPED, null_structs=False)}


@dataclass(frozen=True, slots=True)
class Case:
    """One file: its writer, the writer's options, and the name of the sample."""

    writer: str
    options: tuple[tuple[str, Any], ...]
    sample: str

    def __str__(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.options)
        return f"{self.writer}: {options or 'plain'}; {self.sample}"


def cases_of(writer: str, options: Sequence[Mapping[str, Any]]) -> Iterator[Case]:
    """Every sample with every set of options."""
    for each, sample in itertools.product(options, SAMPLES):
        yield Case(writer, tuple(each.items()), sample)


CODECS = ("none", "snappy", "gzip", "zstd", "lz4")
PYARROW: tuple[Mapping[str, Any], ...] = (
    {},
    *({"compression": codec} for codec in CODECS),
    *({"compression": codec, "data_page_version": "2.0"} for codec in CODECS),
    *({"version": version} for version in ("1.0", "2.4", "2.6")),
    {"use_dictionary": False},
    {"use_dictionary": False, "data_page_version": "2.0"},
    {"use_dictionary": False, "use_byte_stream_split": ["ratio", "amount", "id"]},
    {"write_statistics": False},
    {"write_statistics": False, "write_page_index": True},
    {"write_page_index": True},
    {"write_page_index": True, "data_page_size": 300},
    {"write_page_index": True, "data_page_size": 300, "use_dictionary": False, "data_page_version": "2.0"},
    {"data_page_size": 64, "write_batch_size": 7},
    {"row_group_size": 37},
    {"row_group_size": 37, "write_page_index": True, "data_page_size": 64},
    {"dictionary_pagesize_limit": 64},
    {"dictionary_pagesize_limit": 64, "write_page_index": True, "data_page_size": 128},
    {"store_schema": False},
    {"store_decimal_as_integer": True},
    {"store_decimal_as_integer": True, "use_dictionary": False, "write_page_index": True},
    {"bloom": True},
    {"bloom": True, "row_group_size": 100},
    {"write_page_checksum": True},
    {"sorting_columns": True},
    {"delta": True},
    {"delta": True, "write_page_index": True, "data_page_size": 256},
    {"delta": True, "data_page_version": "2.0", "compression": "zstd"},
    {"large": True},
    {"large": True, "store_schema": False},
    {"max_rows_per_page": 11, "write_page_index": True},
    {"use_compliant_nested_type": False},
)
DUCKDB: tuple[Mapping[str, Any], ...] = (
    {},
    *({"compression": codec} for codec in ("uncompressed", "snappy", "gzip", "zstd", "lz4_raw")),
    *({"parquet_version": version} for version in ("v1", "v2")),
    *({"parquet_version": "v2", "compression": codec} for codec in ("uncompressed", "gzip", "zstd")),
    *({"parquet_version": version, "dictionary_size_limit": 1} for version in ("v1", "v2")),
    {"row_group_size": 100},
    {"row_group_size": 100, "parquet_version": "v2"},
    {"row_group_size": 100, "dictionary_size_limit": 20},
    {"bloom_filter_false_positive_ratio": 0.5},
    {"write_bloom_filter": False},
    {"string_dictionary_page_size_limit": 128},
    {"compression": "zstd", "compression_level": 19},
)
POLARS: tuple[Mapping[str, Any], ...] = (
    {},
    *({"compression": codec} for codec in ("uncompressed", "snappy", "gzip", "zstd")),
    {"statistics": False},
    {"statistics": True},
    {"statistics": "full"},
    {"row_group_size": 41},
    {"row_group_size": 41, "statistics": "full", "data_page_size": 200},
    {"data_page_size": 64},
    {"data_page_size": 64, "compression": "uncompressed", "statistics": "full"},
    {"use_pyarrow": True},
    {"compression": "zstd", "compression_level": 19},
    {"lazy": True},
)
DATAFUSION: tuple[Mapping[str, Any], ...] = (
    {},
    *({"compression": codec} for codec in ("uncompressed", "snappy", "gzip(6)", "zstd(3)", "lz4_raw")),
    *({"writer_version": version} for version in ("1.0", "2.0")),
    {"writer_version": "2.0", "compression": "uncompressed"},
    {"writer_version": "2.0", "dictionary_enabled": False},
    {"dictionary_enabled": False},
    {"dictionary_page_size_limit": 64},
    *({"statistics_enabled": level} for level in ("none", "chunk", "page")),
    {"bloom_filter_on_write": True},
    {"bloom_filter_on_write": True, "bloom_filter_fpp": 0.2, "bloom_filter_ndv": 100},
    {"bloom_filter_on_write": True, "writer_version": "2.0", "max_row_group_size": 90},
    {"max_row_group_size": 90},
    {"data_page_row_count_limit": 17, "write_batch_size": 17},
    {"data_pagesize_limit": 100, "write_batch_size": 8},
    {"skip_arrow_metadata": True},
    {"column_index_truncate_length": 4, "statistics_truncate_length": 4},
    {"created_by": "somebody"},
)
CASES: tuple[Case, ...] = (
    *cases_of("PyArrow", PYARROW),
    *cases_of("DuckDB", DUCKDB),
    *cases_of("Polars", POLARS),
    *cases_of("DataFusion", DATAFUSION),
)


def sample_of(case: Case) -> Sample:
    """The sample that the case's writer can write."""
    return SAMPLES_BY_WRITER.get(case.writer, SAMPLES)[case.sample]


def write_file(case: Case, folder: Path) -> bytes:
    """The bytes of the file. Field ids are added where the writer cannot write them."""
    sample, options = sample_of(case), dict(case.options)
    match case.writer:
        case "PyArrow":
            return with_ids(_write_with_pyarrow(sample, options), sample)
        case "DuckDB":
            return _write_with_duckdb(sample, options, folder / "duckdb.parquet")
        case "Polars":
            return with_ids(_write_with_polars(sample, options, folder / "polars.parquet"), sample)
        case _:
            return with_ids(_write_with_datafusion(sample, options, folder / "datafusion.parquet"), sample)


def _write_with_pyarrow(sample: Sample, options: dict[str, Any]) -> bytes:
    rows, names = sample.rows, sample.rows.schema.names
    leaves = [each for each in names if not pa.types.is_nested(ARROW[each])]
    if options.pop("bloom", False):
        options["bloom_filter_options"] = {each: True for each in leaves if each != "flag" and not _is_decimal(each)}
    if options.pop("sorting_columns", False):
        import pyarrow.parquet as pq

        options["sorting_columns"] = [pq.SortingColumn(0)]
    if options.pop("delta", False):
        encodings = {"id": "DELTA_BINARY_PACKED", "small": "DELTA_BINARY_PACKED", "town": "DELTA_BYTE_ARRAY"}
        encodings |= {"code": "DELTA_LENGTH_BYTE_ARRAY", "price": "DELTA_BYTE_ARRAY"}
        chosen = {name: encoding for name, encoding in encodings.items() if name in names}
        options |= {"use_dictionary": False, "column_encoding": chosen}
    if options.pop("large", False):
        large = {pa.string(): pa.large_string(), pa.binary(): pa.binary_view()}
        fields = [pa.field(each.name, large.get(each.type, each.type)) for each in rows.schema]
        rows = rows.cast(pa.schema(fields))
    if "use_byte_stream_split" in options:
        options["use_byte_stream_split"] = [each for each in options["use_byte_stream_split"] if each in names]
    return parquet(rows, **options)


def _is_decimal(name: str) -> bool:
    return pa.types.is_decimal(ARROW[name])


def _write_with_duckdb(sample: Sample, options: dict[str, Any], path: Path) -> bytes:
    ids = ", ".join(f'"{each["name"]}": {_duckdb_ids(each)}' for each in sample.fields)
    given = "".join(f", {name} {value!r}" for name, value in options.items())
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.register("given", sample.rows)
        connection.execute(f"copy (from given) to '{path}' (format parquet, field_ids {{{ids}}}{given})")
    return path.read_bytes()


def _duckdb_ids(column: Mapping[str, Any]) -> str:
    """The column's field id and those inside it, in DuckDB's syntax."""
    inside = _columns_inside(column["type"])
    own = column["id"]
    if not inside:
        return str(own)
    named = ", ".join(f"{each['name']}: {_duckdb_ids(each)}" for each in inside)
    return f"{{__duckdb_field_id: {own}, {named}}}"


def _columns_inside(column_type: Any) -> list[Doc]:
    """The columns inside a type, with the names that Parquet uses. A type without columns inside has none."""
    if isinstance(column_type, str):
        return []
    if column_type["type"] == "struct":
        return list(column_type["fields"])
    if column_type["type"] == "list":
        return [column(column_type["element-id"], "element", column_type["element"])]
    key = column(column_type["key-id"], "key", column_type["key"])
    return [key, column(column_type["value-id"], "value", column_type["value"])]


def _write_with_polars(sample: Sample, options: dict[str, Any], path: Path) -> bytes:
    import polars as pl

    frame = pl.from_arrow(sample.rows)
    assert isinstance(frame, pl.DataFrame)
    if options.pop("lazy", False):
        frame.lazy().sink_parquet(path, **options)
    else:
        frame.write_parquet(path, **options)
    return path.read_bytes()


def _write_with_datafusion(sample: Sample, options: dict[str, Any], path: Path) -> bytes:
    from datafusion import ParquetWriterOptions, SessionContext

    path.unlink(missing_ok=True)
    frame = SessionContext().from_arrow(sample.rows)
    frame.write_parquet_with_options(path, ParquetWriterOptions(**options))
    return path.read_bytes()


def with_ids(data: bytes, sample: Sample) -> bytes:
    """The file with the table's field ids, which are found by the columns' names."""

    def edit(footer: Struct) -> None:
        elements = iter(get(footer, FooterField.SCHEMA)[1])
        root = next(elements)
        for _ in range(get(root, SchemaField.NUM_CHILDREN)):
            _put_ids(elements, sample.fields)

    return edit_footer(data, edit)


def _put_ids(elements: Iterator[Struct], known: Sequence[Mapping[str, Any]], *, by_place: int | None = None) -> None:
    """Set the field ids of the next schema element and of the elements inside it.

    `by_place` is the position in `known` of a list's or map's inner element, whose name depends on the writer.
    """
    element = next(elements)
    if by_place is None:
        found = next(each for each in known if str(each["name"]).encode() == get(element, SchemaField.NAME))
    else:
        found = known[by_place]
    put(element, SchemaField.FIELD_ID, I32, found["id"])
    inside = _columns_inside(found["type"])
    if not inside:
        return
    # A list or map has a repeated group between itself and its elements.
    has_repeated_group = not isinstance(found["type"], str) and found["type"]["type"] != "struct"
    if has_repeated_group:
        element = next(elements)
        assert get(element, SchemaField.NUM_CHILDREN) == len(inside)
    for at in range(get(element, SchemaField.NUM_CHILDREN)):
        _put_ids(elements, inside, by_place=at if has_repeated_group else None)
