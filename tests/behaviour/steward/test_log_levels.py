"""Levels of log lines: problems for an operator are warnings or errors, and each change of readiness is one line."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.errors import Code, UnavailableError
from pvdm.steward.http import app
from pvdm.steward.notary import Notary
from tests.support.ledger.databases import memory_folder
from tests.support.steward.http import REASON, served
from tests.support.steward.log_lines import LogLines, collected_lines
from tests.support.steward.pipeline import Line, line_at
from tools.proof_kit import SECOND

WAIT_SECONDS = 30.0
YEAR = 365 * 86_400 * SECOND


@pytest.fixture
def lines() -> Iterator[LogLines]:
    with collected_lines() as made:
        yield made


@pytest.fixture
def line(lines: LogLines) -> Iterator[Line]:
    del lines
    with memory_folder() as folder, line_at(folder) as made:
        made.served.stand.time.pass_by(SECOND)
        made.protect()
        yield made


def wait_until(done: Callable[[], bool]) -> None:
    ends = time.monotonic() + WAIT_SECONDS
    while not done():
        assert time.monotonic() < ends
        time.sleep(0.02)


@pytest.mark.parametrize(("code", "level"), [("vault_unavailable", "WARNING"), (Code.WORK_HELD, "INFO")])
def test_a_job_that_waits_is_a_warning_unless_another_steward_holds_its_work(
    line: Line, lines: LogLines, monkeypatch: pytest.MonkeyPatch, code: str, level: str
) -> None:
    def raise_unavailable(_: str) -> None:
        raise UnavailableError(code, "not now")

    monkeypatch.setattr(line.notary.jobs, "_tasks", replace(line.notary.jobs._tasks, verify=raise_unavailable))
    with line.client() as producer:
        _, attempt = line.attempt(producer)
        producer.staged(attempt.attempt_id)
    wait_until(lambda: bool(lines.select("job_waits")))
    assert {each["level"] for each in lines.select("job_waits")} == {level}


def test_the_loss_and_the_return_of_readiness_are_one_line_each(
    tmp_path: Path, lines: LogLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "READINESS_LOG_SECONDS", 0.05)
    with served(tmp_path) as steward:
        headers = steward.headers()
        time.sleep(0.2)
        assert lines.select("not_ready", "ready") == []
        steward.stand.time.jump(YEAR)
        wait_until(lambda: bool(lines.select("not_ready")))
        steward.stand.time.jump(-YEAR)
        steward.http.post("/v1/clock/confirm", json=REASON, headers=headers)
        wait_until(lambda: bool(lines.select("ready")))
        time.sleep(0.2)
    logged = [(each["event"], each["level"], each.get("code")) for each in lines.select("not_ready", "ready")]
    assert logged == [("not_ready", "ERROR", "clock_jumped"), ("ready", "INFO", None)]


def test_an_unexpected_error_ends_no_repeated_work_and_is_logged(
    tmp_path: Path, lines: LogLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Counter[str]()

    def fail_once(name: str) -> tuple[()]:
        calls[name] += 1
        if calls[name] == 1:
            raise KeyError(name)
        return ()

    monkeypatch.setattr(app, "TIDY_SECONDS", 0.01)
    monkeypatch.setattr(app, "READINESS_LOG_SECONDS", 0.01)
    for name in ("tidy", "readiness"):
        monkeypatch.setattr(Notary, name, lambda _, name=name: fail_once(name))
    with served(tmp_path):
        wait_until(lambda: min(calls["tidy"], calls["readiness"]) > 1)
    logged = lines.select("not_tidied", "readiness_not_checked")
    assert sorted((each["event"], each["level"], each["type"]) for each in logged) == [
        ("not_tidied", "ERROR", "KeyError"),
        ("readiness_not_checked", "ERROR", "KeyError"),
    ]


def test_a_jumped_clock_at_the_start_is_logged_as_an_error(tmp_path: Path, lines: LogLines) -> None:
    with served(tmp_path) as steward:
        steward.stand.time.jump(YEAR)
        app._warn_of_clock(steward.stand.notary)
    assert [each["level"] for each in lines.select("clock_jumped")] == ["ERROR"]
