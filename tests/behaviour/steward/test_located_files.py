"""Wrong rows are located in the frozen bytes only, counted by file, and only if the verdict is about rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.model.statements.verdict import FailureClass
from tests.support import fault
from tests.support.verify.attempts import ROWS, Bench, bench_at, with_changed_row, write

pytest.importorskip("pvdm_kernel")


@pytest.fixture(scope="module")
def shared_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One Steward for all tests that publish nothing."""
    with bench_at(tmp_path_factory.mktemp("located-files")) as bench:
        yield bench


@pytest.mark.parametrize(("storage", "problem"), [("open", "file_changed"), ("copied", None)])
def test_rows_are_not_located_in_bytes_that_are_swapped_after_the_digest(
    tmp_path: Path, storage: str, problem: str | None
) -> None:
    """With storage `copied` the Steward reads its own copy, which the producer cannot swap."""
    with bench_at(tmp_path, storage=storage) as bench:
        attempt, (path,) = bench.staged(ROWS[1:])

        def swap() -> None:
            write(path, ROWS[50:])

        with fault.armed("verify.after_digests", fault.Call(swap)):
            assert bench.classes(attempt) == ("missing",)
        located = bench.record(attempt).located
        assert located is not None
        assert located.problem_code == problem
        assert located.rows(FailureClass.MISSING) == (1 if problem is None else 0)


def test_a_fail_without_wrong_rows_locates_nothing(shared_bench: Bench) -> None:
    attempt, _ = shared_bench.staged(ROWS, change=lambda file: replace(file, record_count=99))
    assert shared_bench.classes(attempt) == ("metadata",)
    assert shared_bench.record(attempt).located is None


def test_wrong_rows_are_counted_by_file(shared_bench: Bench) -> None:
    attempt, paths = shared_bench.staged(
        with_changed_row(ROWS[:50], 3, amount=1.25), [*ROWS[50:], ROWS[60], ROWS[61]], workload_id="by-file"
    )
    shared_bench.verify(attempt)
    located = shared_bench.record(attempt).located
    assert located is not None
    rows_by_file = {each.failure.value: [(file.name, file.rows) for file in each.files] for each in located.classes}
    assert rows_by_file == {"duplicated": [(f"file://{paths[1]}", 2)], "modified": [(f"file://{paths[0]}", 1)]}
