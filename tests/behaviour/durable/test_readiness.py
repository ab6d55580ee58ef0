"""A Steward whose folders are gone or full is not ready, and says which; it is again when they are back."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from pvdm import Committed, Coordinator
from pvdm.lake.stores import writable
from pvdm.lake.stores.stores import place_of
from tests.shop import ROWS, Shop, contract, shop_at, table_of


def published(shop: Shop) -> None:
    shop.make("sales.orders")
    shop.protect(contract("sales.orders"))
    with Coordinator(shop.steward) as coordinator:
        outcome = coordinator.execute_workload("orders-1", lambda _s, _c: table_of(ROWS), table="sales.orders")
        assert isinstance(outcome, Committed)


@pytest.mark.parametrize("name", ["metadata", "vault"])
def test_a_folder_that_was_moved_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(writable, "_KEPT_SECONDS", 0.0)
    with shop_at(tmp_path) as shop:
        published(shop)
        assert shop.steward.readiness().ready
        catalog = shop.steward.notary.config.catalog
        assert catalog is not None
        folder = place_of(getattr(catalog, name)).local
        folder.rename(folder.with_name("elsewhere"))
        found = shop.steward.readiness()
        assert (found.ready, [each.code for each in found.reasons]) == (False, ["steward_folder_missing"])
        assert httpx.get(f"{shop.steward.url}/readyz", trust_env=False).status_code == 503
        folder.with_name("elsewhere").rename(folder)
        assert shop.steward.readiness().ready
