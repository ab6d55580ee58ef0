"""One wrong row among sixty million is found by its key, in bounded memory and no more than twice the verification."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.locate import MEMORY_MAX_MB, RATIO_MAX, Faults, measure_in_new_process

pytestmark = pytest.mark.long
pytest.importorskip("pvdm_kernel")


@pytest.mark.parametrize(
    "faults",
    [Faults(), Faults(rows=60_000_000, missing=0, doubled=0, modified=1)],
    ids=["six-million", "one-row-in-sixty-million"],
)
def test_wrong_rows_are_found_by_their_keys_in_bounded_time_and_memory(tmp_path: Path, faults: Faults) -> None:
    """The process that measures also checks that the keys and fields found are those that were changed."""
    figures = measure_in_new_process(faults, tmp_path)
    assert figures.peak_memory_mb < MEMORY_MAX_MB, figures
    assert figures.ratio < RATIO_MAX, figures
