"""What runs on local files runs on an S3-compatible server: the demo, and the test modules in `SETS`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pvdm.cli.demo.demo import play
from pvdm.evaluation.scenes import SCRIPTS
from tests.support.stores.s3_server import S3Server, s3_server

__all__ = ["s3_server"]
pytestmark = pytest.mark.long
pytest.importorskip("pvdm_kernel")
ROOT = Path(__file__).parents[2]
SETS = (
    "tests/behaviour/gate",
    "tests/behaviour/steward/test_swapped_bytes.py",
    "tests/behaviour/steward/test_path.py",
    "tests/behaviour/steward/test_audit_desk.py",
    "tests/behaviour/steward/test_lying_manifests.py",
)


@pytest.mark.parametrize("tests", SETS)
def test_a_whole_set_passes_with_every_table_in_a_bucket(tests: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", tests],
        cwd=ROOT,
        env={**os.environ, "PVDM_TEST_STORE": "s3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8_000:]


# Py4J leaves its sockets to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_scenes_of_the_demo_end_as_scripted_on_an_object_store(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`play` itself raises if a scene, or the audit that hashes every file again, does not end as scripted."""
    bucket = s3_server.bucket()
    s3_server.lend_to(monkeypatch)
    store = bucket.store_file(tmp_path / "store.toml")
    scenes, report = play(tmp_path, rows=500, seed=7, show=lambda _: None, store=store)
    assert [scene.name for scene in scenes] == [script.name for script in SCRIPTS]
    assert report.holds
