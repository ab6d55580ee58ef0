"""What is located is what was frozen, counted in the files that hold it, and only where rows are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.model.statements.verdict import FailureClass
from tests.support import fault
from tests.support.verify.attempts import ROWS, Bench, altered, bench_at, write

pytest.importorskip("pvdm_kernel")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One Steward for those that publish nothing."""
    with bench_at(tmp_path_factory.mktemp("located-files")) as bench:
        yield bench


@pytest.mark.parametrize(("storage", "problem"), [("open", "file_changed"), ("copied", None)])
def test_bytes_that_are_swapped_after_the_digest_are_not_what_is_located(
    tmp_path: Path, storage: str, problem: str | None
) -> None:
    """With copies of the Steward's own nobody can swap them."""
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


def test_a_fail_about_something_else_locates_nothing(shared: Bench) -> None:
    attempt, _ = shared.staged(ROWS, change=lambda file: replace(file, record_count=99))
    assert shared.classes(attempt) == ("metadata",)
    assert shared.record(attempt).located is None


def test_rows_are_counted_in_the_files_that_hold_them(shared: Bench) -> None:
    attempt, paths = shared.staged(
        altered(ROWS[:50], 3, amount=1.25), [*ROWS[50:], ROWS[60], ROWS[61]], workload_id="by-file"
    )
    shared.verify(attempt)
    located = shared.record(attempt).located
    assert located is not None
    told = {each.failure.value: [(place.name, place.rows) for place in each.files] for each in located.classes}
    assert told == {"duplicated": [(f"file://{paths[1]}", 2)], "modified": [(f"file://{paths[0]}", 1)]}
