"""How strict a verification is depends on whose footer consumers read: the producer's (`open`) or the Steward's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.lake.format.manifest.entry import DataFile
from tests.support.parquet.edit import I64, Struct, edit_footer, groups, put
from tests.support.verify.attempts import ROWS, bench_at

pytest.importorskip("pvdm_kernel")


def with_other_file_offset(file: DataFile) -> DataFile:
    """The staged file with an offset by which Trino loses its row group."""

    def edit(footer: Struct) -> None:
        put(groups(footer)[0], 5, I64, 1 << 40)

    path = Path(file.file_path.removeprefix("file://"))
    path.write_bytes(edit_footer(path.read_bytes(), edit))
    return replace(file, file_size_in_bytes=path.stat().st_size)


@pytest.mark.parametrize(("storage", "codes"), [("open", ["parquet_ambiguous"]), ("copied", [])])
def test_a_footer_that_one_engine_reads_differently_is_a_finding_only_if_it_is_published(
    tmp_path: Path, storage: str, codes: list[str]
) -> None:
    with bench_at(tmp_path, storage=storage) as bench:
        attempt, _ = bench.staged(ROWS, change=with_other_file_offset)
        bench.verify(attempt)
        assert bench.codes(attempt) == codes
