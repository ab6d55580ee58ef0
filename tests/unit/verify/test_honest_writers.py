"""Honest files of four writers with odd options: every one of them passes, also where its own footer is published."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.honest_files import CASES, Case, kind_of, written
from tests.staged_examples import seen

pytestmark = pytest.mark.usefixtures("kernel")

FILES_MIN = 300


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_file_of_an_honest_writer_passes(case: Case, tmp_path: Path) -> None:
    data = written(case, tmp_path)
    found = seen(data, kind_of(case).table, footer_published=True)
    assert [(each.code, each.message, each.expected, each.got) for each in found.findings] == []
    assert found.rows == len(kind_of(case).rows)


def test_there_are_at_least_300_files_of_four_writers() -> None:
    count = Counter(case.writer for case in CASES)
    assert len(set(map(str, CASES))) == len(CASES) >= FILES_MIN
    assert set(count) == {"PyArrow", "DuckDB", "Polars", "DataFusion"}
    assert min(count.values()) >= 60
