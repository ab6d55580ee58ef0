"""Spark on tables in an object store, with vended credentials alone: made, filled, staged, published and read there."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.catalog.rest import RestCatalog

from pvdm.client.table import TableClient
from pvdm.evaluation.scenes import SCRIPTS, play
from pvdm.evaluation.shop import DOMAIN, ORDERS, open_demo_lake
from pvdm.lake.paths import parse_location
from pvdm.lake.stores.s3 import S3Store
from pvdm.model.role import Role
from pvdm.steward.embedded.embedded import EmbeddedSteward
from tests.support.stores.s3_server import S3Server, s3_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pvdm_kernel")
__all__ = ["s3_server"]


@pytest.mark.long  # tests/behaviour/stores has Spark on an object store in smaller parts
def test_a_day_is_published_in_an_object_store_and_engines_read_it_alike(
    spark: SparkSession, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = s3_server.bucket()
    s3_server.lend_to(monkeypatch)
    with open_demo_lake(tmp_path, rows=200, seed=7, store=bucket.store_file(tmp_path / "store.toml")) as shop:
        first = next(iter(play(shop)))
        seen = shop.consumer_totals(ORDERS)
        assert (first.result.outcome, seen.rows > 0) == (SCRIPTS[0].outcome, True)
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
        # The command line starts a Spark of its own, which has to find its way into the store as well.
        command = run_by_command(shop.steward, "2026-11-15")
        assert command.returncode == 0, command.stderr
        assert shop.consumer_totals(ORDERS).rows == 200


def run_by_command(steward: EmbeddedSteward, day: str) -> subprocess.CompletedProcess[str]:
    """`pvdm run` without a job and without credentials of the store."""
    token = steward.token_for(Role.PRODUCER, DOMAIN).text
    env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    env |= {"PVDM_URL": steward.url, "PVDM_TOKEN": token, "AWS_EC2_METADATA_DISABLED": "true"}
    words = ["run", ORDERS, "--workload-id", f"by-command-{day}", "--param", f"day={day}", "--master", "local[1]"]
    command = [sys.executable, "-m", "pvdm.cli", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)
