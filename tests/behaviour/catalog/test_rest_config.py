"""The `[catalog]` part of `steward.toml`: where tables lie, where the Steward's own files lie, and what is refused."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from pvdm.errors import InputError
from pvdm.steward.config.steward import StewardConfig, load_config
from pvdm.steward.embedded import embedded

BASE = """
notary = "steward-one"
origin = "steward-one/log"
isolation = "{isolation}"
ledger = "sqlite:///ledger.sqlite"
outside = "outside/checkpoint"

[keys]
home = "file"
path = "keys"
"""


def config(folder: Path, catalog: str = "", isolation: str = "process") -> StewardConfig:
    path = folder / "steward.toml"
    path.write_text(BASE.format(isolation=isolation) + catalog)
    return load_config(path)


@pytest.mark.parametrize("isolation", ["process", "embedded"])
def test_a_steward_has_its_catalog_in_its_folder_by_default(tmp_path: Path, isolation: str) -> None:
    found = config(tmp_path, isolation=isolation).catalog
    assert (found.name, found.warehouse) == ("lake", f"file://{tmp_path}/warehouse")
    assert found.metadata == tmp_path / "catalog"


def test_places_of_the_catalog_are_relative_to_the_file_unless_they_are_addresses(tmp_path: Path) -> None:
    text = '[catalog]\nname = "shop"\nwarehouse = "file:///lake/shop"\nmetadata = "own"\n'
    found = config(tmp_path, text).catalog
    assert found is not None
    assert (found.name, found.warehouse, found.metadata) == ("shop", "file:///lake/shop", tmp_path / "own")


@pytest.mark.parametrize("places", [("w", "w"), ("w", "w/own"), ("own/w", "own")])
def test_a_metadata_folder_that_overlaps_the_warehouse_is_refused(tmp_path: Path, places: tuple[str, str]) -> None:
    with pytest.raises(InputError) as caught:
        config(tmp_path, f'[catalog]\nwarehouse = "{places[0]}"\nmetadata = "{places[1]}"\n')
    assert caught.value.reason == "config_invalid"


@pytest.mark.parametrize("line", ['surprise = "x"', 'name = "A B"', 'warehouse = ""', 'warehouse = "../x/.."'])
def test_an_invalid_catalog_section_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(InputError):
        config(tmp_path, f"[catalog]\n{line}\n")


def test_an_embedded_steward_serves_its_catalog(tmp_path: Path) -> None:
    from pvdm.model.role import Role

    with embedded.start(tmp_path / "steward") as steward:
        token = steward.token_for(Role.CONSUMER, "sales").reveal().decode()
        headers = {"authorization": f"Bearer {token}"}
        response = httpx.get(f"{steward.url}/catalog/v1/namespaces", headers=headers, trust_env=False)
    assert (response.status_code, response.json()) == (200, {"namespaces": []})
