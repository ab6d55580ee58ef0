"""`pvdm quickstart`: what it creates, what a second run leaves alone, and that its job and notebook run as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import pvdm
from pvdm.cli import main
from pvdm.cli.demo.quickstart import FILES
from pvdm.errors import UnavailableError
from pvdm.model.contract import parse_contract

Capture = pytest.CaptureFixture[str]


def run(folder: Path, capsys: Capture) -> Any:
    """Run the command, which must end with 0; returns its JSON."""
    capsys.readouterr()
    assert main(["quickstart", str(folder), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def run_python(words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONWARNINGS": "error"}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the command has set up; tests may publish in it."""
    found = tmp_path_factory.mktemp("quickstart") / "first"
    assert main(["quickstart", str(found), "--json"]) == 0
    return found


def test_one_command_publishes_one_day_and_shows_another_that_is_refused(tmp_path: Path, capsys: Capture) -> None:
    found = run(tmp_path / "q", capsys)
    assert found["files"] == dict.fromkeys(("orders.yaml", "job.py", "notebook.ipynb"), "written")
    assert (found["published"]["outcome"], found["published"]["rows_added"]) == ("COMMITTED", "3")
    assert (found["refused"]["outcome"], found["refused"]["exit_code"]) == ("VERIFICATION_FAILED", 3)
    assert found["refused"]["error"]["got"] == "2 rows staged; first missing order_id: 4"
    assert found["rows"] == 3


def test_the_text_shows_both_days_and_a_second_run_publishes_nothing_again(tmp_path: Path, capsys: Capture) -> None:
    assert main(["quickstart", str(tmp_path / "q")]) == 0
    printed = capsys.readouterr()
    assert "COMMITTED  orders-2026-11-14: 1 chunk of sales.orders, +3 rows in 1 file" in printed.out
    assert "error: nothing was published: the verdict is FAIL: 1 row missing (verification_failed)" in printed.out
    assert "consumers of sales.orders see 3 rows" in printed.out
    assert f"  cd {tmp_path / 'q'}\n  python job.py 2026-11-15 " in printed.out
    assert printed.err.startswith("notice: created a development Steward in ")
    again = run(tmp_path / "q", capsys)
    assert (again["published"]["published"], again["refused"]["judged"], again["rows"]) == ("before", "before", 3)
    assert set(again["files"].values()) == {"unchanged"}


def test_a_second_run_keeps_an_edited_file_and_says_so(folder: Path, capsys: Capture) -> None:
    job, text = folder / "job.py", (folder / "job.py").read_text("utf-8")
    try:
        job.write_text("# mine\n", "utf-8")
        assert run(folder, capsys)["files"]["job.py"] == "edited"
        assert job.read_text("utf-8") == "# mine\n"
    finally:
        job.write_text(text, "utf-8")


def test_the_job_repairs_the_refused_day_and_the_command_then_shows_it(folder: Path, capsys: Capture) -> None:
    done = run_python(["job.py"], folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "COMMITTED  orders-2026-11-15: 1 chunk of sales.orders, +3 rows in 1 file\n"
    assert run_python(["job.py"], folder.parent).returncode == 2  # there is no such file there
    again = run_python([str(folder / "job.py")], folder.parent)
    assert (again.returncode, again.stdout.split("  ")[0]) == (0, "ALREADY PUBLISHED")
    assert main(["quickstart", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "2. 2026-11-15 was refused before and is repaired" in shown
    assert "repairs the refused day" not in shown
    assert "  python job.py 2026-11-16    publishes another day\n" in shown


def test_the_job_shows_a_wrong_date_as_an_error(folder: Path) -> None:
    day = "2026-13-16"
    done = run_python(["job.py", day], folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert day in done.stderr
    assert "Traceback" not in done.stderr


def test_the_cells_of_the_notebook_run_in_their_order(folder: Path) -> None:
    notebook = json.loads((folder / "notebook.ipynb").read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    done = run_python(["-c", "\n".join(cells)], folder)
    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout.splitlines()
    assert shown[0] == "COMMITTED  orders-2026-11-16: 1 chunk of sales.orders, +2 rows in 1 file"
    assert "  expected 2 rows as intended, got 1 row staged; first missing order_id: 9" in shown
    assert any("orders is protected" in line for line in shown)
    assert shown[-1] == "COMMITTED  orders-2026-11-17: 1 chunk of sales.orders, +2 rows in 1 file"


def test_a_folder_whose_steward_runs_elsewhere_is_refused(folder: Path, capsys: Capture) -> None:
    with pvdm.Steward.development(folder / "steward"):
        assert main(["quickstart", str(folder), "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["error"]["reason"] == "embedded_in_use"


def test_a_place_that_cannot_be_a_folder_is_refused(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    assert main(["quickstart", str(tmp_path / "file" / "q"), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["reason"] == "folder_not_writable"
    assert main(["quickstart", str(tmp_path / "file")]) == 2


def test_without_the_kernel_nothing_is_written(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> object:
        raise UnavailableError("kernel_missing", "the native kernel is not installed")

    monkeypatch.setattr("pvdm.digest.kernel_engine", missing)
    assert main(["quickstart", str(tmp_path / "q"), "--json"]) == 7
    assert json.loads(capsys.readouterr().out)["error"]["reason"] == "kernel_missing"
    assert not (tmp_path / "q").exists()


def test_the_contract_is_valid_and_every_file_has_a_purpose() -> None:
    assert parse_contract(FILES["orders.yaml"][0].encode()).boundary.target == "sales.orders"
    assert all(purpose for _, purpose in FILES.values())
