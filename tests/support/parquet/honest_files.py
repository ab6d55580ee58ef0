"""Files as PyArrow, DuckDB, Polars and DataFusion write them with odd options: every one of them is honest."""

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
from tests.support.parquet.edit import I32, Struct, edited, get, put
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
    empty = at % 11 == 3
    found = {
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
    return {name: None if empty and name != "id" else value for name, value in found.items()}


def nested_row(at: int) -> dict[str, Any]:
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
    schema = pa.schema([(str(each["name"]), ARROW[str(each["name"])]) for each in fields])
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema)


def nothing(fields: Sequence[Doc]) -> list[dict[str, Any]]:
    return [{str(each["name"]): None for each in fields}] * 20


@dataclass(frozen=True, slots=True)
class Kind:
    """Rows, and the columns of the table that they are for."""

    fields: tuple[Doc, ...]
    rows: pa.Table

    @property
    def table(self) -> TableMetadata:
        return metadata(*self.fields)


def kinds(nested: tuple[Doc, ...], *, null_structs: bool = True) -> dict[str, Kind]:
    """The same four kinds of rows for every writer, as far as it can write them."""
    rows = [nested_row(at) for at in range(ROWS)]
    for row in rows if not null_structs else ():
        row["stops"] = row["stops"] and [each for each in row["stops"] if each]
    return {
        "flat": Kind(FLAT, table_of(FLAT, [flat_row(at) for at in range(ROWS)])),
        "nested": Kind(nested, table_of(nested, rows)),
        "nulls": Kind(FLAT, table_of(FLAT, nothing(FLAT))),
        "no rows": Kind(nested, table_of(nested, [])),
    }


KINDS = kinds(MAPPED)
# Polars has no maps, and DuckDB counts every struct of a list as null where one is: refused, see docs/parquet.md.
KINDS_OF = {"Polars": kinds(NESTED), "DuckDB": kinds(MAPPED, null_structs=False)}


@dataclass(frozen=True, slots=True)
class Case:
    """One file: who writes it, how, and what."""

    writer: str
    options: tuple[tuple[str, Any], ...]
    kind: str

    def __str__(self) -> str:
        return f"{self.writer}: {', '.join(f'{name}={value}' for name, value in self.options) or 'plain'}; {self.kind}"


def varied(writer: str, options: Sequence[Mapping[str, Any]]) -> Iterator[Case]:
    for each, kind in itertools.product(options, KINDS):
        yield Case(writer, tuple(each.items()), kind)


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
    *varied("PyArrow", PYARROW),
    *varied("DuckDB", DUCKDB),
    *varied("Polars", POLARS),
    *varied("DataFusion", DATAFUSION),
)


def kind_of(case: Case) -> Kind:
    return KINDS_OF.get(case.writer, KINDS)[case.kind]


def written(case: Case, folder: Path) -> bytes:
    """The file's bytes; ids of columns are added where the writer has no means to."""
    kind, options = kind_of(case), dict(case.options)
    match case.writer:
        case "PyArrow":
            return with_ids(_by_pyarrow(kind, options), kind)
        case "DuckDB":
            return _by_duckdb(kind, options, folder / "duckdb.parquet")
        case "Polars":
            return with_ids(_by_polars(kind, options, folder / "polars.parquet"), kind)
        case _:
            return with_ids(_by_datafusion(kind, options, folder / "datafusion.parquet"), kind)


def _by_pyarrow(kind: Kind, options: dict[str, Any]) -> bytes:
    rows, names = kind.rows, kind.rows.schema.names
    leaves = [each for each in names if not pa.types.is_nested(ARROW[each])]
    if options.pop("bloom", False):
        options["bloom_filter_options"] = {each: True for each in leaves if each != "flag" and not _is_decimal(each)}
    if options.pop("sorting_columns", False):
        import pyarrow.parquet as pq

        options["sorting_columns"] = [pq.SortingColumn(0)]
    if options.pop("delta", False):
        known = {"id": "DELTA_BINARY_PACKED", "small": "DELTA_BINARY_PACKED", "town": "DELTA_BYTE_ARRAY"}
        known |= {"code": "DELTA_LENGTH_BYTE_ARRAY", "price": "DELTA_BYTE_ARRAY"}
        chosen = {name: encoding for name, encoding in known.items() if name in names}
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


def _by_duckdb(kind: Kind, options: dict[str, Any], path: Path) -> bytes:
    ids = ", ".join(f'"{each["name"]}": {_duckdb_ids(each)}' for each in kind.fields)
    given = "".join(f", {name} {value!r}" for name, value in options.items())
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.register("given", kind.rows)
        connection.execute(f"copy (from given) to '{path}' (format parquet, field_ids {{{ids}}}{given})")
    return path.read_bytes()


def _duckdb_ids(column: Mapping[str, Any]) -> str:
    inside = _ids_inside(column["type"])
    own = column["id"]
    if not inside:
        return str(own)
    named = ", ".join(f"{each['name']}: {_duckdb_ids(each)}" for each in inside)
    return f"{{__duckdb_field_id: {own}, {named}}}"


def _ids_inside(kind: Any) -> list[Doc]:
    """The columns inside a nested one, as Parquet names them."""
    if isinstance(kind, str):
        return []
    if kind["type"] == "struct":
        return list(kind["fields"])
    if kind["type"] == "list":
        return [column(kind["element-id"], "element", kind["element"])]
    return [column(kind["key-id"], "key", kind["key"]), column(kind["value-id"], "value", kind["value"])]


def _by_polars(kind: Kind, options: dict[str, Any], path: Path) -> bytes:
    import polars as pl

    frame = pl.from_arrow(kind.rows)
    assert isinstance(frame, pl.DataFrame)
    if options.pop("lazy", False):
        frame.lazy().sink_parquet(path, **options)
    else:
        frame.write_parquet(path, **options)
    return path.read_bytes()


def _by_datafusion(kind: Kind, options: dict[str, Any], path: Path) -> bytes:
    from datafusion import ParquetWriterOptions, SessionContext

    path.unlink(missing_ok=True)
    frame = SessionContext().from_arrow(kind.rows)
    frame.write_parquet_with_options(path, ParquetWriterOptions(**options))
    return path.read_bytes()


def with_ids(data: bytes, kind: Kind) -> bytes:
    """The file with the table's ids at its columns, by their names."""

    def edit(footer: Struct) -> None:
        elements = iter(get(footer, 2)[1])
        root = next(elements)
        for _ in range(get(root, 5)):
            _put_ids(elements, kind.fields)

    return edited(data, edit)


def _put_ids(elements: Iterator[Struct], known: Sequence[Mapping[str, Any]], *, by_place: int | None = None) -> None:
    element = next(elements)
    if by_place is None:
        found = next(each for each in known if str(each["name"]).encode() == get(element, 4))
    else:
        found = known[by_place]
    put(element, 9, I32, found["id"])
    inside = _ids_inside(found["type"])
    if not inside:
        return
    between = not isinstance(found["type"], str) and found["type"]["type"] != "struct"
    if between:
        element = next(elements)
        assert get(element, 5) == len(inside)
    for at in range(get(element, 5)):
        _put_ids(elements, inside, by_place=at if between else None)
