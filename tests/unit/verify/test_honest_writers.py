"""Honest files of four writers with odd options: every one of them passes.

Where the footer is published as it is, all pass but those with a bloom filter of bytes, which DuckDB reads wrongly.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.lake.metadata import column
from tests.support.parquet.edit import I64, Struct, columns, edited, get, groups, put, split, told
from tests.support.parquet.honest_files import CASES, Case, kind_of, written
from tests.support.verify.staged import NAME, metadata, observe_file, parquet

pytestmark = pytest.mark.usefixtures("kernel")

FILES_MIN = 300
BLOOM_OFFSET = 14


def has_filter_of_bytes(data: bytes) -> bool:
    _, footer = split(data)
    chunks = [told(chunk) for group in groups(footer) for chunk in columns(group)]
    return any(get(chunk, 3)[1] == [b"code"] and any(each[0] == BLOOM_OFFSET for each in chunk) for chunk in chunks)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_file_of_an_honest_writer_passes(case: Case, tmp_path: Path) -> None:
    data = written(case, tmp_path)
    found = observe_file(data, kind_of(case).table, footer_published=not has_filter_of_bytes(data))
    assert [(each.code, each.message, each.expected, each.got) for each in found.findings] == []
    assert found.data_file is not None
    assert found.data_file.record_count == len(kind_of(case).rows)


def test_there_are_at_least_300_files_of_four_writers() -> None:
    count = Counter(case.writer for case in CASES)
    assert len(set(map(str, CASES))) == len(CASES) >= FILES_MIN
    assert set(count) == {"PyArrow", "DuckDB", "Polars", "DataFusion"}
    assert min(count.values()) >= 60


@pytest.mark.parametrize(("told_bytes", "codes"), [(1, []), (100, []), (101, ["parquet_statistics_lie"])])
def test_sizes_of_texts_as_differences_may_be_short_and_never_long(told_bytes: int, codes: list[str]) -> None:
    """PyArrow leaves out a text that is a start of the one before it: 1 for the same letter a hundred times."""
    field = pa.field("a", pa.string(), metadata={NAME: "1"})
    rows = pa.table({"a": ["x"] * 100}, schema=pa.schema([field]))
    made = parquet(rows, use_dictionary=False, column_encoding={"a": "DELTA_BYTE_ARRAY"})

    def edit(footer: Struct) -> None:
        put(get(told(columns(groups(footer)[0])[0]), 16), 1, I64, told_bytes)

    found = observe_file(edited(made, edit), metadata(column(1, "a", "string")))
    assert [each.code for each in found.findings] == codes
