"""Checks the TLA+ model of publication with TLC (spec/model/README.md)."""

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
def test_without_a_guard_an_invariant_is_violated(tlc: Path, guard: str) -> None:
    assert check(tlc, Size(), guard).violated is not None


def test_the_models_page_names_every_guard() -> None:
    page = (Path(__file__).parents[2] / "spec" / "model" / "README.md").read_text("utf-8")
    assert [guard for guard in list_guards() if f"`{guard}`" not in page] == []
