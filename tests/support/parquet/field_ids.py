"""Ids of the fields in the structs of a Parquet file, by the names that `parquet.thrift` gives them."""

from __future__ import annotations

from enum import IntEnum


class FooterField(IntEnum):
    """FileMetaData."""

    VERSION = 1
    SCHEMA = 2
    NUM_ROWS = 3
    ROW_GROUPS = 4
    KEY_VALUE_METADATA = 5
    CREATED_BY = 6
    COLUMN_ORDERS = 7


class SchemaField(IntEnum):
    """SchemaElement."""

    TYPE = 1
    TYPE_LENGTH = 2
    NAME = 4
    NUM_CHILDREN = 5
    CONVERTED_TYPE = 6
    PRECISION = 8
    FIELD_ID = 9
    LOGICAL_TYPE = 10


class GroupField(IntEnum):
    """RowGroup."""

    COLUMNS = 1
    TOTAL_BYTE_SIZE = 2
    NUM_ROWS = 3
    SORTING_COLUMNS = 4
    FILE_OFFSET = 5
    TOTAL_COMPRESSED_SIZE = 6
    ORDINAL = 7


class ChunkField(IntEnum):
    """ColumnChunk."""

    FILE_OFFSET = 2
    META_DATA = 3
    OFFSET_INDEX_OFFSET = 4
    OFFSET_INDEX_LENGTH = 5
    COLUMN_INDEX_OFFSET = 6
    COLUMN_INDEX_LENGTH = 7


class ColumnField(IntEnum):
    """ColumnMetaData."""

    TYPE = 1
    ENCODINGS = 2
    PATH_IN_SCHEMA = 3
    CODEC = 4
    NUM_VALUES = 5
    TOTAL_UNCOMPRESSED_SIZE = 6
    TOTAL_COMPRESSED_SIZE = 7
    DATA_PAGE_OFFSET = 9
    INDEX_PAGE_OFFSET = 10
    DICTIONARY_PAGE_OFFSET = 11
    STATISTICS = 12
    ENCODING_STATS = 13
    BLOOM_FILTER_OFFSET = 14
    BLOOM_FILTER_LENGTH = 15
    SIZE_STATISTICS = 16
    GEOSPATIAL_STATISTICS = 17


class StatisticsField(IntEnum):
    """Statistics. `MAX` and `MIN` are deprecated; `MAX_VALUE` and `MIN_VALUE` replace them."""

    MAX = 1
    MIN = 2
    NULL_COUNT = 3
    DISTINCT_COUNT = 4
    MAX_VALUE = 5
    MIN_VALUE = 6
    IS_MAX_VALUE_EXACT = 7
    IS_MIN_VALUE_EXACT = 8


class EncodingStatsField(IntEnum):
    """PageEncodingStats: how many pages of a type have an encoding."""

    PAGE_TYPE = 1
    ENCODING = 2
    COUNT = 3


class SizeStatisticsField(IntEnum):
    """SizeStatistics."""

    UNENCODED_BYTE_ARRAY_DATA_BYTES = 1
    REPETITION_LEVEL_HISTOGRAM = 2
    DEFINITION_LEVEL_HISTOGRAM = 3


class PageField(IntEnum):
    """PageHeader. A page has the header of its type: one of the last three fields."""

    TYPE = 1
    UNCOMPRESSED_PAGE_SIZE = 2
    COMPRESSED_PAGE_SIZE = 3
    DATA_PAGE_HEADER = 5
    DICTIONARY_PAGE_HEADER = 7
    DATA_PAGE_HEADER_V2 = 8


class DataPageField(IntEnum):
    """DataPageHeader, of version 1."""

    NUM_VALUES = 1
    ENCODING = 2
    DEFINITION_LEVEL_ENCODING = 3
    REPETITION_LEVEL_ENCODING = 4
    STATISTICS = 5


class DataPageV2Field(IntEnum):
    """DataPageHeaderV2."""

    NUM_VALUES = 1
    NUM_NULLS = 2
    NUM_ROWS = 3
    ENCODING = 4
    DEFINITION_LEVELS_BYTE_LENGTH = 5
    REPETITION_LEVELS_BYTE_LENGTH = 6
    IS_COMPRESSED = 7


class DictionaryPageField(IntEnum):
    """DictionaryPageHeader."""

    NUM_VALUES = 1
    ENCODING = 2
    IS_SORTED = 3


class ColumnIndexField(IntEnum):
    """ColumnIndex: a list with one element for each page, except for the order and the histograms."""

    NULL_PAGES = 1
    MIN_VALUES = 2
    MAX_VALUES = 3
    BOUNDARY_ORDER = 4
    NULL_COUNTS = 5
    REPETITION_LEVEL_HISTOGRAMS = 6
    DEFINITION_LEVEL_HISTOGRAMS = 7


class OffsetIndexField(IntEnum):
    """OffsetIndex."""

    PAGE_LOCATIONS = 1
    UNENCODED_BYTE_ARRAY_DATA_BYTES = 2


class PageLocationField(IntEnum):
    """PageLocation."""

    OFFSET = 1
    COMPRESSED_PAGE_SIZE = 2
    FIRST_ROW_INDEX = 3


class BloomFilterField(IntEnum):
    """BloomFilterHeader."""

    NUM_BYTES = 1
    ALGORITHM = 2
    HASH = 3


class PageType(IntEnum):
    """Values of the type in a page header."""

    DATA_PAGE = 0
    INDEX_PAGE = 1
    DICTIONARY_PAGE = 2
    DATA_PAGE_V2 = 3


class Encoding(IntEnum):
    """Values of encodings."""

    PLAIN = 0
    PLAIN_DICTIONARY = 2
    RLE = 3
    DELTA_BINARY_PACKED = 5
    RLE_DICTIONARY = 8
