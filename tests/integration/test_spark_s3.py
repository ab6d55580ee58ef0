"""Spark on tables in an object store, with vended credentials alone: made, filled, staged, published and read there."""

from __future__ import annotations

import warnings
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.catalog.rest import RestCatalog

from pvdm.client.table import TableClient
from pvdm.evaluation.scenes import SCRIPTS, play
from pvdm.evaluation.shop import DOMAIN, ORDERS, open_shop
from pvdm.lake.paths import parse_location
from pvdm.lake.stores.s3 import S3Store
from pvdm.model.role import Role
from tests.s3_server import S3Server, s3_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pvdm_kernel")
__all__ = ["s3_server"]


def test_a_day_is_published_in_an_object_store_and_engines_read_it_alike(
    spark: SparkSession, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = s3_server.bucket()
    s3_server.lend_to(monkeypatch)
    with open_shop(tmp_path, rows=200, seed=7, store=bucket.store_file(tmp_path / "store.toml")) as shop:
        first = next(iter(play(shop)))
        seen = shop.seen(ORDERS)
        assert (first.played.outcome, seen.rows > 0) == (SCRIPTS[0].outcome, True)
        token = shop.steward.token_for(Role.CONSUMER, DOMAIN)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            catalog = RestCatalog("lake", uri=f"{shop.steward.url}/catalog", token=token.text)
            amounts = catalog.load_table(ORDERS).scan().to_arrow().column("amount").to_pylist()
        assert (len(amounts), sum(amounts, Decimal("0.00"))) == (seen.rows, seen.amount)
        with shop.steward.as_role(Role.CONSUMER, DOMAIN) as consumer:
            own = S3Store(TableClient(consumer, ("sales",), "orders").storage())
        with pytest.raises(PermissionError):
            own.remove(parse_location(f"{bucket.root}/warehouse/x"))
