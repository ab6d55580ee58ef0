"""`pvdm run` against a Steward with a certificate of a private authority: Spark's Java trusts it by --ca-file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from pvdm.model.role import Role
from tests.support.servers.certificates import Authority
from tests.support.services import require
from tests.support.steward.shop import ROWS, contract, shop_at

QUIET = ("spark.ui.enabled=false", "spark.driver.memory=1g", "spark.driver.host=127.0.0.1", "spark.log.level=ERROR")


def test_spark_reaches_a_steward_behind_a_private_authority(tmp_path: Path) -> None:
    """In a process of its own: what Java trusts is fixed when it starts."""
    require(os.environ.get("JAVA_HOME") or shutil.which("java"), "Java 17 is not installed, so Spark cannot start")
    authority = Authority.create(tmp_path)
    with shop_at(tmp_path) as shop:
        shop.make("sales.orders")
        shop.protect(contract("sales.orders"))
        with authority.serve(shop.steward.url) as url:
            words = ["run", "sales.orders", "--workload-id", "tls-1", "--master", "local[1]", "--json"]
            words += ["--url", url, "--ca-file", str(authority.certificate)]
            words += [word for each in QUIET for word in ("--conf", each)]
            ran = subprocess.run(
                [sys.executable, "-m", "pvdm.cli", *words],
                capture_output=True,
                text=True,
                check=False,
                cwd=tmp_path,
                env={**os.environ, "PVDM_TOKEN": shop.steward.token_for(Role.PRODUCER, "sales").text},
            )
        assert ran.returncode == 0, ran.stdout
        assert (json.loads(ran.stdout)["outcome"], len(shop.visible_rows("sales.orders"))) == ("COMMITTED", len(ROWS))
