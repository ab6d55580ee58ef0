"""Honest files of four writers with unusual options are all accepted.

If their footer is published, those with a bloom filter of bytes are not: DuckDB reads such a filter wrongly.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.lake.metadata import column
from tests.support.parquet.edit import I64, Struct, columns, edit_footer, get, groups, metadata_of, put, split_footer
from tests.support.parquet.honest_files import CASES, Case, sample_of, write_file
from tests.support.verify.staged import NAME, metadata, observe_file, parquet

pytestmark = pytest.mark.usefixtures("kernel")

FILES_MIN = 300
BLOOM_OFFSET = 14


def has_filter_of_bytes(data: bytes) -> bool:
    _, footer = split_footer(data)
    chunks = [metadata_of(chunk) for group in groups(footer) for chunk in columns(group)]
    return any(get(chunk, 3)[1] == [b"code"] and any(each[0] == BLOOM_OFFSET for each in chunk) for chunk in chunks)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.long) if at % 4 else case for at, case in enumerate(CASES)], ids=str
)
def test_a_file_of_an_honest_writer_is_accepted(case: Case, tmp_path: Path) -> None:
    data = write_file(case, tmp_path)
    found = observe_file(data, sample_of(case).table, footer_published=not has_filter_of_bytes(data))
    assert [(each.code, each.message, each.expected, each.got) for each in found.findings] == []
    assert found.data_file is not None
    assert found.data_file.record_count == len(sample_of(case).rows)


def test_there_are_at_least_300_files_of_four_writers() -> None:
    count = Counter(case.writer for case in CASES)
    assert len(set(map(str, CASES))) == len(CASES) >= FILES_MIN
    assert set(count) == {"PyArrow", "DuckDB", "Polars", "DataFusion"}
    assert min(count.values()) >= 60


@pytest.mark.parametrize(("declared_bytes", "codes"), [(1, []), (100, []), (101, ["parquet_statistics_lie"])])
def test_the_declared_size_of_delta_encoded_texts_may_be_too_small(declared_bytes: int, codes: list[str]) -> None:
    """PyArrow does not count a text that is a prefix of the one before: it declares 1 for the same letter 100 times."""
    field = pa.field("a", pa.string(), metadata={NAME: "1"})
    rows = pa.table({"a": ["x"] * 100}, schema=pa.schema([field]))
    data = parquet(rows, use_dictionary=False, column_encoding={"a": "DELTA_BYTE_ARRAY"})

    def edit(footer: Struct) -> None:
        put(get(metadata_of(columns(groups(footer)[0])[0]), 16), 1, I64, declared_bytes)

    found = observe_file(edit_footer(data, edit), metadata(column(1, "a", "string")))
    assert [each.code for each in found.findings] == codes
