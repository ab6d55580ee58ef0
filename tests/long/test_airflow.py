"""The Airflow operator in a real Airflow, which is installed into a separate environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.model.role import Role
from tests.support.steward.shop import ROWS, Shop, contract, shop_at
from tests.support.waiting import eventually

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]
HOME = ROOT / "build" / "airflow"
# Airflow does not work with the newer Pydantic that this project is tested with.
AIRFLOW = ("apache-airflow-core==3.3.2", "apache-airflow-task-sdk==1.3.2", "pydantic==2.12.5")

# A DAG of one task. The job `slow_at_first` hangs at its first call, so the segment of the first try times out.
DAG = """
import json, sys
from datetime import timedelta
from airflow.sdk import DAG
from pvdm.durable.airflow import WorkloadOperator
settings = json.loads(open("settings.json").read())
with DAG("backfill", schedule=None) as dag:
    WorkloadOperator(
        task_id="publish", segment_timeout=timedelta(seconds=10), retries=2, retry_delay=timedelta(0), **settings
    )
if __name__ == "__main__":
    run = dag.test()
    task = run.get_task_instances()[0]
    print("RESULT", json.dumps({"state": run.state, "tries": task.try_number}))
"""
JOBS = """
import datetime, json, pathlib, time
import pyarrow as pa
def rows():
    ids, days, towns = zip(*json.loads(pathlib.Path("rows.json").read_text()))
    days = pa.array([datetime.date.fromisoformat(day) for day in days], pa.date32())
    return pa.table({"id": pa.array(ids, pa.int64()), "day": days, "town": pa.array(towns, pa.string())})
def slow_at_first(_spark, _chunk):
    called = pathlib.Path("called")
    if not called.exists():
        called.touch()
        time.sleep(600)
    return rows()
def wrong(_spark, _chunk):
    return rows().slice(1)
"""


@pytest.fixture(scope="module")
def airflow() -> Path:
    """The Python of an environment with Airflow, which can also import the packages of this environment."""
    python = HOME / "bin" / "python"
    if not (HOME / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", HOME], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *AIRFLOW], check=True)
        packages = sysconfig.get_paths()["purelib"]
        target = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        (Path(target) / "pvdm_under_test.pth").write_text(f"{ROOT / 'src'}\n{packages}\n", "utf-8")
        (HOME / "ready").touch()
    return python


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


def run_dag(shop: Shop, airflow: Path, folder: Path, table: str, job: str) -> tuple[dict[str, object], str]:
    """Protect a new table, and run the DAG for it. Returns state and number of tries, and what Airflow printed."""
    shop.make(table)
    shop.protect(contract(table))
    token_file = folder / "token"
    token_file.write_text(shop.steward.token_for(Role.PRODUCER, "sales").text, "utf-8")
    token_file.chmod(0o600)
    settings = {
        "url": shop.steward.url,
        "token_file": str(token_file),
        "workload_id": "run-1" + table,
        "table": table,
        "job": f"airflow_jobs:{job}",
    }
    for name, text in {
        "settings.json": json.dumps(settings),
        "rows.json": json.dumps(ROWS),
        "airflow_jobs.py": JOBS,
        "dag.py": DAG,
    }.items():
        (folder / name).write_text(text, "utf-8")
    env = {
        **os.environ,
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder),
        "PYTHONPATH": str(folder),
    }
    subprocess.run([airflow, "-m", "airflow", "db", "migrate"], cwd=folder, env=env, check=True, capture_output=True)
    ran = subprocess.run(
        [airflow, "dag.py"], cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    lines = [line for line in ran.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, ran.stdout + ran.stderr
    result: dict[str, object] = json.loads(lines[-1].removeprefix("RESULT "))
    return result, ran.stdout + ran.stderr


def test_a_task_whose_segment_times_out_is_finished_by_the_next_try(shop: Shop, airflow: Path, tmp_path: Path) -> None:
    result, output = run_dag(shop, airflow, tmp_path, "sales.flow", "slow_at_first")
    assert result == {"state": "success", "tries": 2}, output
    assert shop.visible_rows("sales.flow") == sorted(ROWS, key=repr)
    assert eventually(lambda: shop.branches("sales.flow") == set() and shop.staged_files("sales.flow") == [])


def test_a_task_whose_verdict_is_fail_is_not_tried_again(shop: Shop, airflow: Path, tmp_path: Path) -> None:
    result, output = run_dag(shop, airflow, tmp_path, "sales.wrong", "wrong")
    assert result == {"state": "failed", "tries": 1}
    assert "nothing was published: the verdict is FAIL" in output
    assert shop.visible_rows("sales.wrong") == []
