"""Files that lie about their own values: which engines they fool on an open table, and that none is ever published."""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

import pvdm
from pvdm import Committed, Coordinator
from pvdm.model.role import Role
from tests.support.oracles.engines import Engines, Question, consumer_catalog, metadata_location
from tests.support.parquet.edit import (
    BINARY,
    COLUMN_INDEX,
    I32,
    LIST,
    columns,
    edit_footer,
    edit_page_index,
    get,
    groups,
    join_footer,
    metadata_of,
    parse,
    put,
    split_footer,
    statistics,
)
from tests.support.parquet.field_ids import (
    ColumnField,
    ColumnIndexField,
    Encoding,
    EncodingStatsField,
    PageType,
    StatisticsField,
)
from tests.support.steward.shop import Row, Shop, contract, shop_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# PyIceberg's own.
pytestmark = [
    pytest.mark.usefixtures("compiled_queries"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg"),
]
ALL = frozenset({"spark", "duckdb", "pyiceberg"})
DAY = datetime.date(2026, 11, 14)
ROWS: tuple[Row, ...] = tuple((at, DAY.isoformat(), f"town {at:0100}") for at in range(2_000))
LAST = 1_999
QUESTIONS = (
    Question(f"id = {LAST}", f"id = {LAST}", f"id = {LAST}", lambda row: row["id"] == LAST),
    Question(f"town = '{ROWS[LAST][2]}'", f"town = '{ROWS[LAST][2]}'", f"town = '{ROWS[LAST][2]}'", lambda _: False),
)
ID, TOWN = 0, 2
write: Callable[..., None] = pq.write_table


def honest(table: pa.Table, **more: Any) -> bytes:
    """An honest file with every kind of claim: statistics, page index, bloom filter, dictionary."""
    sink = io.BytesIO()
    options: dict[str, Any] = {
        "compression": "zstd",
        "store_schema": False,
        "write_page_index": True,
        "max_rows_per_page": 500,
        "write_batch_size": 100,
        "dictionary_pagesize_limit": 2_000,
        "use_dictionary": ["town"],
        "bloom_filter_options": {"id": {"ndv": 4_000, "fpp": 0.01}},
        **more,
    }
    write(table, sink, **options)
    return sink.getvalue()


def statistics_lie(data: bytes) -> bytes:
    return edit_footer(
        data, lambda footer: put(statistics(footer, ID), StatisticsField.MAX_VALUE, BINARY, (100).to_bytes(8, "little"))
    )


def page_index_lies(data: bytes) -> bytes:
    def change(found: Any) -> None:
        get(found, ColumnIndexField.MAX_VALUES)[1][-1] = (1_600).to_bytes(8, "little")

    return edit_page_index(data, COLUMN_INDEX, ID, change)


def bloom_filter_lies(data: bytes) -> bytes:
    body, footer = split_footer(data)
    fields = metadata_of(columns(groups(footer)[0])[ID])
    at, length = get(fields, ColumnField.BLOOM_FILTER_OFFSET), get(fields, ColumnField.BLOOM_FILTER_LENGTH)
    _, start = parse(body, at)
    return join_footer(body[:start] + b"\0" * (at + length - start) + body[at + length :], footer)


def encodings_lie(data: bytes) -> bytes:
    def change(footer: Any) -> None:
        fields = metadata_of(columns(groups(footer)[0])[TOWN])
        put(fields, ColumnField.ENCODINGS, LIST, (I32, [Encoding.PLAIN_DICTIONARY, Encoding.RLE]))
        stats = get(fields, ColumnField.ENCODING_STATS)[1]
        assert len(stats) == 3, stats
        stats[:] = [
            each
            for each in stats
            if get(each, EncodingStatsField.PAGE_TYPE) == PageType.DICTIONARY_PAGE
            or get(each, EncodingStatsField.ENCODING) != Encoding.PLAIN
        ]

    return edit_footer(data, change)


@dataclass(frozen=True, slots=True)
class Family:
    """How a file lies, how it is refused, and which engines do not see the last row by the question."""

    lie: Callable[[bytes], bytes]
    code: str
    question: Question
    fooled: frozenset[str]

    def file(self, table: pa.Table) -> bytes:
        return self.lie(honest(table))


FAMILIES: Mapping[str, Family] = {
    "statistics": Family(statistics_lie, "parquet_statistics_lie", QUESTIONS[0], ALL),
    "page_index": Family(page_index_lies, "parquet_page_index_lies", QUESTIONS[0], frozenset()),
    "bloom_filter": Family(
        bloom_filter_lies, "parquet_bloom_filter_lies", QUESTIONS[0], frozenset({"spark", "duckdb"})
    ),
    "encodings": Family(encodings_lie, "parquet_encodings_lie", QUESTIONS[1], frozenset({"spark"})),
}


@contextmanager
def writing(make: Callable[[pa.Table], bytes]) -> Iterator[None]:
    """Inside the block the small stager writes files that `make` makes: PyArrow's `write_table` is replaced."""

    def write_made(table: pa.Table, where: Any, **_: Any) -> None:
        where.write(make(table))

    with patch.object(pq, "write_table", write_made):
        yield


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The source, and for each lie an open table that has it."""
    with shop_at(tmp_path_factory.mktemp("lies")) as made:
        made.make("raw.things")
        made.write(ROWS, "raw.things")
        for name, family in FAMILIES.items():
            made.make(f"sales.open_{name}")
            with writing(family.file):
                made.write(ROWS, f"sales.open_{name}")
        yield made


@contextmanager
def engines(shop: Shop, spark: SparkSession, name: str) -> Iterator[Engines]:
    lake = f"lies_{shop.steward.url.rpartition(':')[2]}"
    pvdm.spark_session(shop.steward, Role.CONSUMER, "sales", name=lake)
    token = shop.steward.token_for(Role.CONSUMER, "sales").text
    table = consumer_catalog(shop.steward.url, token).load_table(("sales", name))
    made = Engines(spark, f"{lake}.sales.{name}", table, metadata_location(shop.steward.url, token, f"sales.{name}"))
    try:
        yield made
    finally:
        made.close()


def job(_: object, chunk: Any) -> pa.Table:
    arrays: list[Any] = [[row[0] for row in ROWS], [DAY] * len(ROWS), [row[2] for row in ROWS]]
    return pa.table({name: pa.array(values) for name, values in zip(("id", "day", "town"), arrays, strict=True)})


@pytest.mark.parametrize("name", FAMILIES)
def test_on_an_open_table_the_lie_hides_a_row_from_those_who_trust_it(
    name: str, shop: Shop, spark: SparkSession
) -> None:
    family = FAMILIES[name]
    with engines(shop, spark, f"open_{name}") as found:
        assert found.counts() == dict.fromkeys(ALL, len(ROWS))
        missed = {engine for engine, ids in found.ids(family.question).items() if ids != [LAST]}
    assert missed == family.fooled


def test_no_lie_is_published_and_the_honest_twin_reads_the_same_everywhere(shop: Shop, spark: SparkSession) -> None:
    shop.make("sales.things")
    shop.protect(contract("sales.things").replace("raw.orders", "raw.things"))
    with Coordinator(shop.steward) as coordinator:
        for name, family in FAMILIES.items():
            with writing(family.file):
                outcome = (
                    coordinator.execute_workload("one", job, table="sales.things")
                    if name == "statistics"
                    else coordinator.repair("one", job, reason="another try")
                )
            assert not isinstance(outcome, Committed), name
            assert family.code in repr(outcome), (name, outcome)
        assert shop.visible_rows("sales.things") == []
        with writing(honest):
            assert isinstance(coordinator.repair("one", job, reason="an honest file"), Committed)
    with engines(shop, spark, "things") as found:
        assert found.counts() == dict.fromkeys(ALL, len(ROWS))
        for question in QUESTIONS:
            assert found.ids(question) == {engine: [LAST] for engine in ALL}


@pytest.mark.parametrize(("codec", "read"), [("brotli", False), ("lz4", True), ("gzip", True), ("snappy", True)])
def test_of_four_codecs_spark_cannot_read_only_brotli(codec: str, read: bool, shop: Shop, spark: SparkSession) -> None:
    shop.make(f"sales.{codec}")
    with writing(lambda table: honest(table, compression=codec)):
        shop.write(ROWS, f"sales.{codec}")
    lake = f"codecs_{shop.steward.url.rpartition(':')[2]}"
    pvdm.spark_session(shop.steward, Role.CONSUMER, "sales", name=lake)
    frame = spark.sql(f"select sum(id) as n from {lake}.sales.{codec}")
    if read:
        assert frame.collect()[0]["n"] == sum(range(len(ROWS)))
    else:
        with pytest.raises(Py4JJavaError, match=r"(?i)brotli"):
            frame.collect()
