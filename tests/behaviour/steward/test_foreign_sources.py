"""Sources that name files of another domain are refused: the Steward could read them, and its answers show rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.errors import NotAllowedError
from pvdm.lake.paths import parse_location
from pvdm.lake.vault import VaultKind
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.model.contract import parse_contract
from pvdm.model.role import Role
from tests.support.verify.attempts import RAW, ROWS, SALES, Bench, bench_at, contract, write

pytest.importorskip("pvdm_kernel")
RISK: Levels = ("risk",)
TARGET = "5f0f1c9e-1111-4c55-8a1f-6a1c0a7d4e22"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with bench_at(tmp_path) as made:
        made.scene.make("secrets", levels=RISK)
        yield made


def folder_of(bench: Bench, name: str, levels: Levels) -> Path:
    return Path(parse_location(bench.state(name, levels).metadata.location).local)


def foreign_folders(bench: Bench) -> dict[str, Path]:
    """Folders whose files belong neither to the source nor to its domain."""
    config = bench.scene.stand.config.catalog
    assert config is not None
    secrets, vault = folder_of(bench, "secrets", RISK), Path(parse_location(str(config.vault)).local)
    uuid = bench.state().row.table_uuid
    return {
        "another domain's table": secrets / "data",
        "another domain's folder": secrets.parent / "new",
        "copies of another table": vault / uuid / VaultKind.DATA.value / "a",
        "what failed": vault / uuid / VaultKind.QUARANTINE.value / "a",
    }


@pytest.mark.parametrize(
    "place", ["another domain's table", "another domain's folder", "copies of another table", "what failed"]
)
def test_a_source_with_files_of_another_domain_or_of_the_vault_is_refused(bench: Bench, place: str) -> None:
    file = write(foreign_folders(bench)[place] / "x.parquet", ROWS[:5])
    bench.write_snapshot("orders", RAW, "main", [file], role=Role.PRODUCER)
    with pytest.raises(NotAllowedError) as caught:
        bench.attempt()
    assert caught.value.reason == "source_file_foreign"


@pytest.mark.parametrize("place", ["another domain's table", "copies of another table"])
def test_a_source_with_a_link_to_a_folder_of_another_domain_is_refused(bench: Bench, place: str) -> None:
    foreign = foreign_folders(bench)[place]
    foreign.mkdir(parents=True, exist_ok=True)
    link = folder_of(bench, "orders", RAW) / "data" / "way"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(foreign)
    bench.write_snapshot("orders", RAW, "main", [write(link / "x.parquet", ROWS[:5])], role=Role.PRODUCER)
    with pytest.raises(NotAllowedError) as caught:
        bench.attempt()
    assert caught.value.reason == "source_file_foreign"


def test_a_source_with_files_of_another_domains_dropped_table_is_refused(bench: Bench) -> None:
    file = write(folder_of(bench, "secrets", RISK) / "data" / "x.parquet", ROWS[:5])
    bench.scene.notary.catalog.tables.drop(bench.scene.grant(), RISK, "secrets")
    bench.write_snapshot("orders", RAW, "main", [file], role=Role.PRODUCER)
    with pytest.raises(NotAllowedError) as caught:
        bench.attempt()
    assert caught.value.reason == "source_file_foreign"


@pytest.mark.parametrize("by_link", [False, True], ids=["by its path", "by a link"])
def test_a_source_manifest_with_files_of_another_domain_is_refused(bench: Bench, tmp_path: Path, by_link: bool) -> None:
    path = folder_of(bench, "secrets", RISK) / "data" / "x.parquet"
    write(path, ROWS[:5])
    if by_link:
        (tmp_path / "way").symlink_to(path.parent)
        path = tmp_path / "way" / path.name
    listed = {"path": str(path), "size": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    fields = [{"id": 1, "name": "id", "required": False, "type": "long"}]
    schema = {"type": "struct", "schema-id": 0, "fields": fields}
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({"kind": "pvdm/source-files/v1", "schema": schema, "files": [listed]}))
    text = contract().replace("table: raw.orders", f"files: {{manifest: {manifest}}}")
    with pytest.raises(NotAllowedError) as caught:
        bench.sources.pin(parse_contract(text.encode()).bind({}), TARGET)
    assert caught.value.reason == "source_file_foreign"


def test_files_of_its_own_domain_or_of_no_domain_are_read(bench: Bench, tmp_path: Path) -> None:
    others = [folder_of(bench, "sums", SALES) / "data" / "x.parquet", tmp_path / "landing" / "y.parquet"]
    files = [write(path, ROWS[:1]) for path in others]
    bench.write_snapshot("orders", RAW, "main", files, role=Role.PRODUCER)
    attempt, _ = bench.staged([*ROWS, ROWS[0], ROWS[0]])
    assert bench.verify(attempt).verdict.passed
