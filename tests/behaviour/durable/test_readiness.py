"""A Steward whose folders were moved is not ready or does not start, until the folders are back."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import pvdm
from pvdm import Committed, Coordinator
from pvdm.errors import UnavailableError
from pvdm.lake.paths import parse_location
from pvdm.lake.stores import health
from pvdm.model.role import Role
from pvdm.steward.notary import open_notary
from tests.support.steward.shop import ROWS, Shop, contract, shop_at, table_of


def publish(shop: Shop) -> None:
    shop.make("sales.orders")
    shop.protect(contract("sales.orders"))
    with Coordinator(shop.steward) as coordinator:
        outcome = coordinator.execute_workload("orders-1", lambda _s, _c: table_of(ROWS), table="sales.orders")
        assert isinstance(outcome, Committed)


@pytest.mark.parametrize("name", ["metadata", "vault", "warehouse"])
def test_a_steward_is_not_ready_while_a_folder_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(health, "_RESULT_SECONDS", 0.0)
    with shop_at(tmp_path) as shop:
        publish(shop)
        assert shop.steward.readiness().ready
        catalog = shop.steward.notary.config.catalog
        folder = parse_location(str(getattr(catalog, name))).local
        folder.rename(folder.with_name("elsewhere"))
        found = shop.steward.readiness()
        assert (found.ready, [each.reason for each in found.reasons]) == (False, ["steward_folder_missing"])
        assert httpx.get(f"{shop.steward.url}/readyz", trust_env=False).status_code == 503
        folder.with_name("elsewhere").rename(folder)
        assert shop.steward.readiness().ready


def test_tables_without_a_file_leave_the_steward_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines make the warehouse folder with their first file, which may come long after the first table."""
    monkeypatch.setattr(health, "_RESULT_SECONDS", 0.0)
    with pvdm.Steward.embedded(tmp_path / "steward") as steward:
        shop = Shop(steward, tmp_path, tmp_path / "key.pem")
        shop.space("raw")
        shop.make("raw.orders")
        assert steward.readiness().ready


def test_a_steward_without_the_kernel_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with shop_at(tmp_path) as shop:
        assert shop.steward.readiness().ready
        monkeypatch.setitem(sys.modules, "pvdm.digest.kernel", None)
        found = shop.steward.readiness()
        assert (found.ready, [each.reason for each in found.reasons]) == (False, ["kernel_missing"])


def test_a_steward_that_was_moved_to_another_path_does_not_start(tmp_path: Path) -> None:
    with shop_at(tmp_path) as shop:
        publish(shop)
    old, new = tmp_path / "steward", tmp_path / "elsewhere"
    old.rename(new)
    with pytest.raises(UnavailableError) as caught, pvdm.Steward.embedded(new):
        pass
    found = caught.value
    assert (found.reason, found.expected, found.got) == (
        "steward_folders_moved",
        f"file://{old}/catalog",
        f"file://{new}/catalog",
    )
    assert found.hint is not None
    new.rename(old)
    with pvdm.Steward.embedded(old) as steward:
        assert steward.readiness().ready


@pytest.mark.parametrize("name", ["vault", "warehouse"])
def test_a_steward_with_one_moved_folder_does_not_start(tmp_path: Path, name: str) -> None:
    with shop_at(tmp_path) as shop:
        publish(shop)
        config = shop.steward.notary.config
    (tmp_path / "steward" / name).rename(tmp_path / "elsewhere")
    place: Any = str(parse_location(str(tmp_path / "elsewhere"))) if name == "warehouse" else tmp_path / "elsewhere"
    moved = replace(config, catalog=replace(config.catalog, **{name: place}))
    with pytest.raises(UnavailableError) as caught:
        open_notary(moved)
    assert (caught.value.reason, f"the {name} folder" in str(caught.value)) == ("steward_folders_moved", True)
    assert str(caught.value.expected).startswith("a folder that contains ") == (name == "warehouse")
    (tmp_path / "elsewhere").rename(tmp_path / "steward" / name)
    open_notary(config).close()


def test_a_table_whose_metadata_file_is_elsewhere_is_answered_with_503_and_the_next_step(tmp_path: Path) -> None:
    with shop_at(tmp_path) as shop:
        publish(shop)
        files = shop.steward.notary.catalog.states._files
        files._root = parse_location(str(tmp_path / "elsewhere"))
        token = shop.steward.token_for(Role.OPERATOR)
        found = httpx.get(
            f"{shop.steward.url}/catalog/v1/namespaces/sales/tables/orders",
            headers={"authorization": f"Bearer {token.text}"},
            trust_env=False,
        )
        error = found.json()["error"]
        assert (found.status_code, error["pvdm-code"]) == (503, "metadata_file_foreign")
        assert "Bring the folder back to its old path" in error["message"]
