"""The structs of Parquet's metadata (parquet.thrift): the id, name and kind of every field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.support.parquet.edit import BINARY, BYTE, I16, I32, I64, LIST, STRUCT, TRUE

BOOL = TRUE  # the wire type of a boolean is its value, so one stands for both
KINDS: Final = {"bool": BOOL, "byte": BYTE, "i16": I16, "i32": I32, "i64": I64, "binary": BINARY}


@dataclass(frozen=True, slots=True)
class Slot:
    """A field: its name, its wire kind, the struct or kind inside it, and the values it may have if they are few."""

    name: str
    kind: int
    inner: str = ""
    values: tuple[int, ...] = ()


def _slot(text: str) -> Slot:
    name, _, kind = text.partition(":")
    kind, _, few = kind.partition("/")
    if kind.startswith("["):
        return Slot(name, LIST, kind[1:-1])
    values = tuple(range(int(few))) if few else ()
    return Slot(name, KINDS.get(kind, STRUCT), "" if kind in KINDS else kind, values)


def _struct(text: str) -> dict[int, Slot]:
    """Fields in order of their ids; `-` for an id that is not used.

    A field is `name:kind`, with `[kind]` for a list and `kind/8` for an enum of 8 values.
    """
    return {at: _slot(each) for at, each in enumerate(text.split(), 1) if each != "-"}


STRUCTS: Final[dict[str, dict[int, Slot]]] = {
    "FileMetaData": _struct(
        "version:i32 schema:[SchemaElement] num_rows:i64 row_groups:[RowGroup] key_value_metadata:[KeyValue]"
        " created_by:binary column_orders:[ColumnOrder] encryption_algorithm:Empty footer_signing_key_metadata:binary"
    ),
    "SchemaElement": _struct(
        "type:i32/8 type_length:i32 repetition_type:i32/3 name:binary num_children:i32 converted_type:i32/22 scale:i32"
        " precision:i32 field_id:i32 logicalType:LogicalType"
    ),
    "LogicalType": _struct(
        "STRING:Empty MAP:Empty LIST:Empty ENUM:Empty DECIMAL:DecimalType DATE:Empty TIME:TimeType TIMESTAMP:TimeType -"
        " INTEGER:IntType UNKNOWN:Empty JSON:Empty BSON:Empty UUID:Empty FLOAT16:Empty VARIANT:Empty GEOMETRY:Empty"
        " GEOGRAPHY:Empty"
    ),
    "Empty": {},
    "DecimalType": _struct("scale:i32 precision:i32"),
    "TimeType": _struct("isAdjustedToUTC:bool unit:TimeUnit"),
    "TimeUnit": _struct("MILLIS:Empty MICROS:Empty NANOS:Empty"),
    "IntType": _struct("bitWidth:byte isSigned:bool"),
    "RowGroup": _struct(
        "columns:[ColumnChunk] total_byte_size:i64 num_rows:i64 sorting_columns:[SortingColumn] file_offset:i64"
        " total_compressed_size:i64 ordinal:i16"
    ),
    "SortingColumn": _struct("column_idx:i32 descending:bool nulls_first:bool"),
    "ColumnChunk": _struct(
        "file_path:binary file_offset:i64 meta_data:ColumnMetaData offset_index_offset:i64 offset_index_length:i32"
        " column_index_offset:i64 column_index_length:i32 crypto_metadata:Empty encrypted_column_metadata:binary"
    ),
    "ColumnMetaData": _struct(
        "type:i32/8 encodings:[i32] path_in_schema:[binary] codec:i32/8 num_values:i64 total_uncompressed_size:i64"
        " total_compressed_size:i64 key_value_metadata:[KeyValue] data_page_offset:i64 index_page_offset:i64"
        " dictionary_page_offset:i64 statistics:Statistics encoding_stats:[PageEncodingStats] bloom_filter_offset:i64"
        " bloom_filter_length:i32 size_statistics:SizeStatistics geospatial_statistics:Empty"
    ),
    "Statistics": _struct(
        "max:binary min:binary null_count:i64 distinct_count:i64 max_value:binary min_value:binary"
        " is_max_value_exact:bool is_min_value_exact:bool nan_count:i64"
    ),
    "PageEncodingStats": _struct("page_type:i32/4 encoding:i32/10 count:i32"),
    "SizeStatistics": _struct(
        "unencoded_byte_array_data_bytes:i64 repetition_level_histogram:[i64] definition_level_histogram:[i64]"
    ),
    "KeyValue": _struct("key:binary value:binary"),
    "ColumnOrder": _struct("TYPE_ORDER:Empty IEEE_754_TOTAL_ORDER:Empty"),
    "PageHeader": _struct(
        "type:i32/4 uncompressed_page_size:i32 compressed_page_size:i32 crc:i32 data_page_header:DataPageHeader"
        " index_page_header:Empty dictionary_page_header:DictionaryPageHeader data_page_header_v2:DataPageHeaderV2"
    ),
    "DataPageHeader": _struct(
        "num_values:i32 encoding:i32/10 definition_level_encoding:i32/5 repetition_level_encoding:i32/5"
        " statistics:Statistics"
    ),
    "DictionaryPageHeader": _struct("num_values:i32 encoding:i32/10 is_sorted:bool"),
    "DataPageHeaderV2": _struct(
        "num_values:i32 num_nulls:i32 num_rows:i32 encoding:i32/10 definition_levels_byte_length:i32"
        " repetition_levels_byte_length:i32 is_compressed:bool statistics:Statistics"
    ),
    "ColumnIndex": _struct(
        "null_pages:[bool] min_values:[binary] max_values:[binary] boundary_order:i32/3 null_counts:[i64]"
        " repetition_level_histograms:[i64] definition_level_histograms:[i64] nan_counts:[i64]"
    ),
    "OffsetIndex": _struct("page_locations:[PageLocation] unencoded_byte_array_data_bytes:[i64]"),
    "PageLocation": _struct("offset:i64 compressed_page_size:i32 first_row_index:i64"),
    "BloomFilterHeader": _struct("numBytes:i32 algorithm:BloomChoice hash:BloomChoice compression:BloomChoice"),
    "BloomChoice": _struct("FIRST:Empty SECOND:Empty"),
}
