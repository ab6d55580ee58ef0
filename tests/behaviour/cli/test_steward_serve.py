"""`pvdm steward serve`: it answers, stops on SIGTERM, and is the only service on its SQLite ledger."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.ledger import open_ledger
from pvdm.steward.locks import serve_alone
from tests.behaviour.cli.support import Run
from tests.behaviour.cli.test_steward import CONFIGURED, issue, make_root
from tests.behaviour.cli.test_steward import steward_folder as steward_folder  # noqa: PLC0414 - the fixture


@pytest.fixture
def served(pvdm: Run, steward_folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`pvdm steward serve` in a process of its own, and its address."""
    pin = make_root(pvdm, steward_folder)
    pvdm("steward", "trust", "root-1.json", *CONFIGURED, "--root-sha256", pin)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, "-m", "pvdm.cli", "steward", "serve", *CONFIGURED],
        cwd=steward_folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        yield process, _address(process.stderr.readline())
    finally:
        process.kill()
        process.communicate()


def _address(line: str) -> str:
    return str(json.loads(line)["address"])


def test_a_served_steward_answers_and_stops_on_sigterm(
    pvdm: Run, steward_folder: Path, served: tuple[subprocess.Popen[str], str]
) -> None:
    process, url = served
    issue(pvdm)
    status = pvdm("status", "--url", url, "--token-file", "ruth.token", "--json")
    assert (status.code, status.json["readiness"]["ready"]) == (0, True)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "the Steward steward-one has stopped\n")


def test_a_second_service_on_one_sqlite_ledger_is_refused_until_the_first_has_ended(
    pvdm: Run, steward_folder: Path, served: tuple[subprocess.Popen[str], str]
) -> None:
    first, url = served
    refused = pvdm("steward", "serve", *CONFIGURED, "--json")
    assert (refused.code, refused.error) == (4, "ledger_served")
    assert f"got process {first.pid}" in refused.json["error"]["message"]
    assert issue(pvdm).code == 0, "commands beside the service still work"
    assert pvdm("status", "--url", url, "--token-file", "ruth.token").code == 0
    first.kill()
    first.wait(60)
    with serve_alone(open_ledger(f"sqlite:///{steward_folder}/ledger.db")):
        pass  # the system has released the lock of the killed process


def test_a_restore_is_refused_while_the_service_runs(
    pvdm: Run, steward_folder: Path, served: tuple[subprocess.Popen[str], str]
) -> None:
    words = ("--operator", "ruth", "--reason", "the disk failed", "--yes", "--json")
    refused = pvdm("steward", "restore", *CONFIGURED, *words)
    assert (refused.code, refused.error) == (4, "ledger_served")


def test_a_token_that_was_revoked_on_the_host_is_refused_at_once(
    pvdm: Run, steward_folder: Path, served: tuple[subprocess.Popen[str], str]
) -> None:
    _, url = served
    token_id = issue(pvdm).json["token_id"]
    reach = ("--url", url, "--token-file", "ruth.token", "--json")
    assert pvdm("keys", "list", *reach).code == 0
    pvdm("steward", "token", "revoke", token_id, *CONFIGURED)
    assert pvdm("keys", "list", *reach).code == 5
