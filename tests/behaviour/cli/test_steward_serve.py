"""`pvdm steward serve`: it answers, stops on a signal, and has an SQLite ledger for itself."""

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
from tests.behaviour.cli.test_steward import made as made  # noqa: PLC0414 - the fixture


@pytest.fixture
def serving(pvdm: Run, made: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`pvdm steward serve` in a process of its own, and its address."""
    pin = make_root(pvdm, made)
    pvdm("steward", "trust", "root-1.json", *CONFIGURED, "--root-sha256", pin)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.Popen(
        [sys.executable, "-m", "pvdm.cli", "steward", "serve", *CONFIGURED],
        cwd=made,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert run.stderr is not None
        yield run, _address(run.stderr.readline())
    finally:
        run.kill()
        run.communicate()


def _address(line: str) -> str:
    return str(json.loads(line)["address"])


def test_a_served_steward_answers_and_stops_when_it_is_told(
    pvdm: Run, made: Path, serving: tuple[subprocess.Popen[str], str]
) -> None:
    run, url = serving
    issue(pvdm)
    status = pvdm("status", "--url", url, "--token-file", "ruth.token", "--json")
    assert (status.code, status.json["readiness"]["ready"]) == (0, True)
    run.send_signal(signal.SIGTERM)
    out, _ = run.communicate(timeout=60)
    assert (run.returncode, out) == (0, "the Steward steward-one has stopped\n")


def test_a_second_service_on_one_sqlite_ledger_is_refused_until_the_first_has_ended(
    pvdm: Run, made: Path, serving: tuple[subprocess.Popen[str], str]
) -> None:
    first, url = serving
    refused = pvdm("steward", "serve", *CONFIGURED, "--json")
    assert (refused.code, refused.error) == (4, "ledger_served")
    assert f"got process {first.pid}" in refused.json["error"]["message"]
    assert issue(pvdm).code == 0, "commands beside the service still work"
    assert pvdm("status", "--url", url, "--token-file", "ruth.token").code == 0
    first.kill()
    first.wait(60)
    with serve_alone(open_ledger(f"sqlite:///{made}/ledger.db")):
        pass  # the system has released the lock of the killed process


def test_a_restore_is_refused_while_the_service_runs(
    pvdm: Run, made: Path, serving: tuple[subprocess.Popen[str], str]
) -> None:
    words = ("--operator", "ruth", "--reason", "the disk failed", "--yes", "--json")
    refused = pvdm("steward", "restore", *CONFIGURED, *words)
    assert (refused.code, refused.error) == (4, "ledger_served")


def test_a_token_that_was_revoked_on_the_host_is_refused_at_once(
    pvdm: Run, made: Path, serving: tuple[subprocess.Popen[str], str]
) -> None:
    _, url = serving
    token_id = issue(pvdm).json["token_id"]
    reach = ("--url", url, "--token-file", "ruth.token", "--json")
    assert pvdm("keys", "list", *reach).code == 0
    pvdm("steward", "token", "revoke", token_id, *CONFIGURED)
    assert pvdm("keys", "list", *reach).code == 5
