"""Runs segments of one chunk each as plain spark-submit jobs, as docs/schedulers.md shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from pvdm.lake.spark import ICEBERG_RUNTIME
from pvdm.model.role import Role
from tests.support.steward.pipeline import BY_DAY
from tests.support.steward.shop import ROWS, Shop, contract, shop_at

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]
SCRIPT = "import sys\n\nfrom pvdm.cli import main\n\nsys.exit(main(sys.argv[1:]))\n"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


def test_applications_that_stage_one_chunk_each_publish_every_chunk(shop: Shop, tmp_path: Path) -> None:
    table = "sales.submitted"
    shop.make(table)
    shop.protect(contract(table, BY_DAY))
    with shop.client() as client:
        client.open_workload("run-1", table, {})
    (tmp_path / "segment.py").write_text(SCRIPT, "utf-8")
    assert SCRIPT in (ROOT / "docs" / "schedulers.md").read_text("utf-8").replace("# segment.py\n", "")
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    packages = ["--packages", ICEBERG_RUNTIME]
    assert " ".join(packages) in (ROOT / "docs" / "schedulers.md").read_text("utf-8")
    words = ["segment.py", "resume", "run-1", "--max-chunks", "1", "--json"]
    command = [str(submit), "--master", "local[1]", *packages, *words]
    env = {
        **os.environ,
        "PVDM_URL": shop.steward.url,
        "PVDM_TOKEN": shop.steward.token_for(Role.PRODUCER, "sales").text,
        "PYSPARK_PYTHON": sys.executable,
    }
    ends = [
        subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False) for _ in range(2)
    ]
    assert [each.returncode for each in ends] == [8, 0], ends[0].stderr[-2000:]
    documents = [json.loads(each.stdout[each.stdout.index("{") :]) for each in ends]
    assert [each.get("error", {}).get("reason") for each in documents] == ["segment_ended", None]
    assert [len(each["chunks"]) for each in documents] == [1, 2]
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)
