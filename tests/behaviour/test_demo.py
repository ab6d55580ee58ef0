"""`pvdm demo` as a command, without Spark: options, output, and failure if a scene does not end as its script says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pvdm.cli import main
from pvdm.cli.demo.demo import audit_lines, begin_lines, mask, scene_lines
from pvdm.errors import PvdmError, UnavailableError
from pvdm.evaluation.scenes import SCRIPTS, Scene, SceneResult, Script, _read_java_error, require_as_scripted
from pvdm.evaluation.shop import CONTRACT_TEMPLATE, DAYS, SHOPS, Orders, OrderTotals, open_session
from pvdm.metadata.audit.report import ApprovalEntry, AuditedSnapshot, AuditReport, RehashCounts, Standing
from pvdm.model.contract import parse_contract
from pvdm.model.statements.table import TableRef
from tests.support.for_each import for_each

SEEN = OrderTotals(2_500, Decimal("1246477.04"))
REPORT = AuditReport(
    TableRef("lake", "0188c1f0-1111-7222-8333-944445555666", "sales.orders"),
    7,
    (AuditedSnapshot(1, None, 0, Standing.OK, 2_500, 0, 2, 0, workload_id="orders-1", proof_ids=("a", "b")),),
    (ApprovalEntry("protect", "c", 0, 1, "tom", "orders go live", "d"),),
    (),
    (),
    RehashCounts(2, 2, 99),
)


def refusal(code: str, check: int | None = None) -> PvdmError:
    """An error of that code; with `check` it names the gate's check that refused."""
    error = PvdmError(code, "it was refused")
    error.details |= {} if check is None else {"check": check}
    return error


def scene_as_scripted(script: Script) -> Scene:
    """A scene that ends just as its script says."""
    error = None if script.reason is None else refusal(script.reason, script.check)
    return Scene(script.name, script.title, script.table, SceneResult(script.outcome, script.classes, error, 2), SEEN)


@pytest.fixture
def scripted_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command starts no Spark: every scene ends as its script says."""

    def play(
        folder: Path, *, rows: int, seed: int, show: Callable[[Any], None], store: Path | None = None
    ) -> tuple[list[Scene], AuditReport]:
        (folder / "orders.yaml").write_text(f"{rows} {seed}")
        scenes = [scene_as_scripted(script) for script in SCRIPTS]
        show(begin_lines(rows))
        for number, scene in enumerate(scenes, 1):
            show(scene_lines(number, scene))
        show(audit_lines(REPORT))
        return scenes, REPORT

    monkeypatch.setattr("pvdm.cli.demo.demo.play", play)


@pytest.mark.usefixtures("scripted_scenes")
def test_json_is_one_document_with_every_scene_and_the_audit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--json", "--rows", "100", "--seed", "3"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["seed"], found["kept"], found["audit"]["holds"]) == (100, 3, None, True)
    assert [scene["name"] for scene in found["scenes"]] == [script.name for script in SCRIPTS]
    assert found["scenes"][5]["error"]["check"] == 5
    assert found["scenes"][0]["consumer"] == {"table": "sales.orders", "rows": 2_500, "amount": "1246477.04"}


@pytest.mark.usefixtures("scripted_scenes")
def test_the_text_has_every_scene_and_the_audit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if line.startswith("2. ")]
    assert "   VERIFICATION_FAILED (missing)" in printed
    assert "   error: it was refused (proof_wrong_table, check 5 of the gate)" in printed
    assert "   a consumer of sales.orders sees 2,500 orders, 1,246,477.04 in all" in printed
    assert "   +2,500 rows in 2 files by orders-1: ok, a receipt and 2 proofs" in printed


@pytest.mark.usefixtures("scripted_scenes")
def test_with_keep_the_files_are_in_the_given_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--keep", str(tmp_path / "new" / "demo")]) == 0
    assert [path.name for path in (tmp_path / "new" / "demo").iterdir()] == ["orders.yaml"]
    assert f"everything is in {tmp_path / 'new' / 'demo'}" in capsys.readouterr().out


@pytest.mark.usefixtures("scripted_scenes")
def test_without_keep_no_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["demo"]) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("scripted_scenes")
def test_a_folder_in_use_is_not_written_into(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert main(["demo", "--keep", str(tmp_path), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["reason"] == "folder_not_empty"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.usefixtures("scripted_scenes")
def test_a_folder_that_cannot_be_made_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["demo", "--keep", str(tmp_path / "file" / "demo"), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["reason"] == "folder_not_writable"


@pytest.mark.usefixtures("scripted_scenes")
def test_an_empty_keep_is_refused_and_does_not_mean_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--keep", ""]) == 2
    assert list(tmp_path.iterdir()) == []


def test_without_the_kernel_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> NoReturn:
        raise UnavailableError("kernel_missing", "no kernel")

    monkeypatch.setattr("pvdm.evaluation.shop.kernel_engine", missing)
    assert main(["demo", "--keep", str(tmp_path / "demo"), "--json"]) == 7
    assert json.loads(capsys.readouterr().out)["error"]["reason"] == "kernel_missing"
    assert list((tmp_path / "demo").iterdir()) == []


@pytest.mark.parametrize("java", [None, "exit 1", """echo 'openjdk version "11.0.22" 2024-01-16' >&2"""])
def test_without_java_17_the_hint_names_the_package(
    java: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "java"
    if java is not None:
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "java").write_text(f"#!/bin/sh\n{java}\n")
        (home / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setattr("pvdm.evaluation.shop.running_session", lambda: None)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    with pytest.raises(UnavailableError) as caught, open_session(tmp_path):
        pass
    assert caught.value.reason == "java_missing"
    assert "openjdk-17-jre-headless" in str(caught.value.hint)


def test_without_pyspark_the_hint_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pvdm.evaluation.shop.running_session", lambda: None)
    monkeypatch.setitem(__import__("sys").modules, "pyspark.sql", None)
    with pytest.raises(UnavailableError) as caught, open_session(tmp_path):
        pass
    assert (caught.value.reason, caught.value.hint) == ("spark_missing", "pip install 'pvdm[spark]'")


@pytest.mark.parametrize("log_lines", [[], ["one", "", "the last line"]])
def test_the_error_of_a_spark_that_does_not_start_has_the_last_line_of_its_log(
    log_lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object, **__: object) -> NoReturn:
        (tmp_path / "spark.log").write_text("\n".join(log_lines))
        raise RuntimeError("the gateway ended")

    monkeypatch.setattr("pvdm.evaluation.shop.running_session", lambda: None)
    monkeypatch.setattr("pvdm.evaluation.shop.spark_session", start)
    with pytest.raises(UnavailableError) as caught, open_session(tmp_path):
        pass
    assert (caught.value.reason, caught.value.got) == (
        "spark_not_started",
        "the gateway ended / the last line" if log_lines else "the gateway ended",
    )


@for_each("script", SCRIPTS, ids=lambda script: script.name)
def test_a_scene_that_does_not_end_as_its_script_says_fails_the_demo(script: Script) -> None:
    good = scene_as_scripted(script)
    require_as_scripted(script, good, SEEN)
    wrong = [
        replace(good, result=replace(good.result, outcome="accepted")),
        replace(good, result=replace(good.result, classes=("added",))),
        replace(good, result=replace(good.result, error=refusal("other", script.check))),
        replace(good, seen=replace(SEEN, rows=2_499)),
        replace(good, seen=replace(SEEN, amount=SEEN.amount + 1)),
    ]
    if script.check is not None and script.reason is not None:
        wrong.append(replace(good, result=replace(good.result, error=refusal(script.reason, 6))))
    for scene in wrong:
        with pytest.raises(PvdmError) as caught:
            require_as_scripted(script, scene, SEEN)
        assert (caught.value.reason, caught.value.exit_code) == ("demo_failed", 1)


def test_values_that_change_at_every_run_are_masked() -> None:
    uuid, sha = "0188c1f0-1111-7222-8333-944445555666", "ab" * 32
    text = f"expected 2210 bytes, SHA-256 {sha}, got {uuid} and {sha[:32]} at file:///tmp/x/a-1.parquet of 1250 rows"
    assert mask(text, {}) == "expected … bytes, SHA-256 …, got … and … at … of 1250 rows"
    assert mask(f"expected {uuid}", {uuid: "sales.orders"}) == "expected the UUID of sales.orders"


def test_a_java_error_is_read_by_its_class_and_message() -> None:
    java_error = "An error occurred in o1.\n: org.apache.iceberg.exceptions.ForbiddenException: Forbidden: no\n\tat"
    for text, expected in ((java_error, ("ForbiddenException", "Forbidden: no")), ("else\nat", ("unknown", "else"))):
        error = _read_java_error(text)
        assert (error.reason, error.message) == expected


def test_the_same_seed_makes_the_same_orders_and_each_is_of_one_of_two_days() -> None:
    orders = Orders(101, 3)
    assert orders.table == Orders(101, 3).table
    assert orders.table != Orders(101, 4).table
    assert sum(orders.totals(day).rows for day in DAYS) == 101
    ids = [number for day in DAYS for shop in SHOPS for number in orders.ids(day, shop)]
    assert sorted(ids) == list(range(1, 102))


def test_the_contract_template_of_the_demo_is_a_valid_contract() -> None:
    text = CONTRACT_TEMPLATE.format(product="orders", target="sales.orders")
    assert parse_contract(text.encode(), "orders.yaml").boundary.target == "sales.orders"
