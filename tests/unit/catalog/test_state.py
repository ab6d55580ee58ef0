"""The cache of parsed metadata documents: it keeps up to a limit in bytes, and other documents are parsed again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.catalog import state
from pvdm.lake.format.table.metadata import TableMetadata
from tests.support.catalog.core import Core, core_in


@pytest.fixture
def core(tmp_path: Path, migrated_file: Path) -> Iterator[Core]:
    with core_in(tmp_path, migrated_file) as core:
        yield core


def record_parsing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which the size of every document is added that is parsed from now on."""
    sizes: list[int] = []
    parse_document = TableMetadata.parse

    def parse(data: bytes) -> TableMetadata:
        sizes.append(len(data))
        return parse_document(data)

    monkeypatch.setattr(TableMetadata, "parse", parse)
    return sizes


def test_the_least_recently_used_document_is_parsed_again_above_the_limit(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = max(len(core.table(name, shown=False).metadata.to_bytes()) for name in ("one", "two", "three"))
    monkeypatch.setattr(state, "DOCUMENTS_KEPT_MAX_BYTES", 2 * size)
    fresh, sizes = core.fresh(), record_parsing(monkeypatch)
    for name in ("one", "two", "one", "three", "one"):
        fresh.get(name)
    assert len(sizes) == 3
    fresh.get("two")
    assert len(sizes) == 4


def test_a_document_that_is_larger_than_all_that_may_be_kept_is_served_and_not_kept(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    core.table("one", shown=False)
    monkeypatch.setattr(state, "DOCUMENTS_KEPT_MAX_BYTES", 10)
    fresh, sizes = core.fresh(), record_parsing(monkeypatch)
    assert fresh.get("one") == fresh.get("one")
    assert len(sizes) == 2


def test_a_document_that_is_kept_again_counts_once(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    table = core.table("one", shown=False)
    size = len(table.metadata.to_bytes())
    monkeypatch.setattr(state, "DOCUMENTS_KEPT_MAX_BYTES", size)
    fresh, sizes = core.fresh(), record_parsing(monkeypatch)
    for _ in range(3):
        fresh.states.cache_document(table.row.pointer.sha256, table.metadata)
    fresh.get("one")
    assert sizes == []
