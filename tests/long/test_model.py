"""The TLA+ model of publication, checked with TLC (spec/model/README.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.services import require
from tools.check_model import ModelError, Size, check, fetch_tlc, list_guards

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def tlc() -> Path:
    try:
        return fetch_tlc()
    except ModelError as error:
        require(False, str(error))
        raise


def test_no_invariant_is_violated(tlc: Path) -> None:
    found = check(tlc, Size())
    assert (found.violated, (found.states or 0) > 100_000) == (None, True)


@pytest.mark.parametrize("guard", list_guards())
def test_every_guard_is_needed(tlc: Path, guard: str) -> None:
    assert check(tlc, Size(), guard).violated is not None


def test_every_guard_is_in_the_table_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "spec" / "model" / "README.md").read_text("utf-8")
    assert [guard for guard in list_guards() if f"`{guard}`" not in page] == []
