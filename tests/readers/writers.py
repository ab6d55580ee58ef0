"""Honest Parquet files of the suite's rows, by each writer with several of its options."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tests.readers.rows import NAMES, NESTED, arrow_rows, rows_of_case
from tests.support.lake.scans import NAME
from tests.support.parquet.edit import I32, Struct, edit_footer, get, put
from tests.support.parquet.field_ids import FooterField, SchemaField

UNFILTERED: Final = ("flag", "nothing", "code", "mark", "key")
"""Columns without bloom filters: DuckDB finds no row by equality in honest filters of bytes."""
FILTERED: Final = tuple(name for name in NAMES if name not in NESTED and name not in UNFILTERED)
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Write = Callable[[pa.Table], bytes]


@dataclass(frozen=True)
class Writer:
    """An engine with options: the bytes of the honest file of a case, and the columns that it does not write."""

    name: str
    write: Write
    lacks: Collection[str] = field(default_factory=tuple)

    @property
    def engine(self) -> str:
        return self.name.partition(" ")[0]

    def file(self, case: int, without: Collection[str] = ()) -> bytes:
        return self.write(arrow_rows(rows_of_case(case), without, self.lacks))


def pyarrow(**options: Any) -> Write:
    def write(table: pa.Table) -> bytes:
        sink = io.BytesIO()
        filters = options.get("bloom_filter_options")
        wanted = {} if filters is None else {"bloom_filter_options": _options_of_existing(filters, table)}
        encodings = options.get("column_encoding")
        wanted |= {} if encodings is None else {"column_encoding": _options_of_existing(encodings, table)}
        pq.write_table(table, sink, **{"row_group_size": 12, "max_rows_per_page": 6, **options, **wanted})
        return sink.getvalue()

    return write


def _options_of_existing(options: Mapping[str, Any], table: pa.Table) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name.partition(".")[0] in table.column_names}


def duck(**options: str) -> Write:
    def write(table: pa.Table) -> bytes:
        with tempfile.TemporaryDirectory() as folder, duckdb.connect(config={"threads": "1"}) as connection:
            path = Path(folder) / "a.parquet"
            connection.execute("set timezone = 'UTC'")
            given = _uuid_as_text(table)
            connection.register("given_rows", given)
            listed = ", ".join('"key"::uuid as "key"' if name == "key" else f'"{name}"' for name in table.column_names)
            words = ", ".join(f"{key} {value}" for key, value in options.items())
            connection.execute(f"copy (select {listed} from given_rows) to '{path}' ({words})")
            return with_field_ids(path.read_bytes(), table.schema)

    return write


def _uuid_as_text(table: pa.Table) -> pa.Table:
    if "key" not in table.column_names:
        return table
    values = [None if each is None else _uuid_text(each) for each in table["key"].to_pylist()]
    return table.set_column(table.column_names.index("key"), "key", pa.array(values, pa.string()))


def _uuid_text(value: bytes) -> str:
    text = value.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def polars(**options: Any) -> Write:
    def write(table: pa.Table) -> bytes:
        sink = io.BytesIO()
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        frame.write_parquet(sink, row_group_size=12, **options)
        return with_field_ids(sink.getvalue(), table.schema)

    return write


def rust(*, filtered: bool = False, **options: Any) -> Write:
    """The writer of Rust's `parquet`, called through DataFusion; `filtered` adds bloom filters."""

    def write(table: pa.Table) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.parquet"
            given: dict[str, Any] = {
                "max_row_group_size": 12,
                "data_page_row_count_limit": 6,
                "write_batch_size": 6,
                "skip_arrow_metadata": True,
                **options,
            }
            if filtered:
                wanted = datafusion.ParquetColumnOptions(bloom_filter_enabled=True, bloom_filter_ndv=24)
                names = [name for name in FILTERED if name in table.column_names]
                given["column_specific_options"] = dict.fromkeys(names, wanted)
            frame = _datafusion().from_arrow(table)
            frame.write_parquet_with_options(str(path), datafusion.ParquetWriterOptions(**given))
            return path.read_bytes()

    return write


@cache
def _datafusion() -> datafusion.SessionContext:
    return datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))


def with_field_ids(data: bytes, schema: pa.Schema) -> bytes:
    """The file with the schema's field ids, for writers that write none."""

    def change(footer: Struct) -> None:
        elements: list[Struct] = get(footer, FooterField.SCHEMA)[1]
        at = 1
        for _ in range(get(elements[0], SchemaField.NUM_CHILDREN)):
            at = _set_ids(elements, at, schema.field(get(elements[at], SchemaField.NAME).decode()))

    return edit_footer(data, change)


def _set_ids(elements: list[Struct], at: int, given: Any) -> int:
    """Set the ids of the element at `at` and of those inside it; returns the position after them."""
    put(elements[at], SchemaField.FIELD_ID, I32, int(given.metadata[NAME.encode()]))
    kind = given.type
    if pa.types.is_struct(kind):
        inner, at = [kind.field(place) for place in range(kind.num_fields)], at + 1
    elif pa.types.is_list(kind):
        inner, at = [kind.value_field], at + 2  # the list and its repeated group
    elif pa.types.is_map(kind):
        inner, at = [kind.key_field, kind.item_field], at + 2  # the map and its repeated group
    else:
        inner, at = [], at + 1
    for each in inner:
        at = _set_ids(elements, at, each)
    return at


FILTERS: Final[dict[str, Any]] = {name: {"ndv": 24, "fpp": 0.01} for name in FILTERED}
DELTAS: Final = {
    "id": "DELTA_BINARY_PACKED",
    "small": "DELTA_BINARY_PACKED",
    "day": "DELTA_BINARY_PACKED",
    "town": "DELTA_BYTE_ARRAY",
    "code": "DELTA_LENGTH_BYTE_ARRAY",
    "ratio": "BYTE_STREAM_SPLIT",
    "amount": "BYTE_STREAM_SPLIT",
    "flag": "RLE",
}
POLARS_LACKS: Final = ("mark", "key", "seen", "clock")
"""Polars has no fixed-length bytes, its times have nanoseconds, and verification refuses its timestamps with a zone."""
WRITERS: Final[tuple[Writer, ...]] = (
    Writer("pyarrow defaults", pyarrow(write_page_index=True)),
    Writer(
        "pyarrow plain",
        pyarrow(
            use_dictionary=False,
            compression="none",
            store_schema=False,
            store_decimal_as_integer=True,
            bloom_filter_options=FILTERS,
            write_page_index=True,
        ),
    ),
    Writer(
        "pyarrow v2",
        pyarrow(
            data_page_version="2.0",
            use_dictionary=False,
            column_encoding=DELTAS,
            compression="zstd",
            store_schema=False,
        ),
    ),
    Writer("pyarrow headers", pyarrow(write_page_checksum=True, sorting_columns=[pq.SortingColumn(0)])),
    Writer("duckdb v1", duck(parquet_version="v1"), ("mark",)),
    Writer("duckdb v2", duck(parquet_version="v2", compression="zstd"), ("mark",)),
    Writer("polars defaults", polars(), POLARS_LACKS),
    Writer("polars plain", polars(compression="uncompressed", data_page_size=64), POLARS_LACKS),
    Writer("datafusion defaults", rust(filtered=True)),
    Writer("datafusion v2", rust(writer_version="2.0", compression="snappy")),
)


def spark_writers(session: SparkSession) -> tuple[Writer, ...]:
    """Spark's own writer, with pages of both versions; the long suite has a session."""
    return (
        Writer("spark defaults", spark_write(session), ("clock", "mark", "key")),
        Writer(
            "spark v2",
            spark_write(
                session,
                **{
                    "parquet.writer.version": "v2",
                    "parquet.bloom.filter.enabled#id": "true",
                    "parquet.bloom.filter.expected.ndv#id": "24",
                },
            ),
            ("clock", "mark", "key"),
        ),
    )


def spark_write(session: SparkSession, **options: str) -> Write:
    """A file as Spark writes it; the bytes of one case are those of another but for the case's number."""

    def write(table: pa.Table) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
            session.conf.set("spark.sql.session.timeZone", "UTC")
            schema = pa.schema([each.remove_metadata() for each in table.schema])
            frame = session.createDataFrame(pa.Table.from_arrays(table.columns, schema=schema)).coalesce(1)
            frame = frame.withColumn("made", frame["made"].cast("timestamp_ntz"))
            options_all = {"parquet.page.row.count.limit": "6", "parquet.page.size.row.check.min": "1", **options}
            frame.write.options(**options_all).mode("overwrite").parquet(folder)
            (path,) = Path(folder).glob("*.parquet")
            return with_field_ids(path.read_bytes(), table.schema)

    return write
