"""`pvdm demo` tells the truth, tells no digest, and the README shows what it really prints."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any, NoReturn

import pyarrow.parquet as pq
import pytest

from pvdm.cli import main
from pvdm.digest import Engine, Partial

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- demo:begin -->\n```console\n(.*?)```\n<!-- demo:end -->", re.DOTALL)


@pytest.fixture
def scenes(engine: Engine, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    assert main(["demo", "--rows", "500", "--engine", engine.name, "--json"]) == 0
    return {scene["name"]: scene for scene in json.loads(capsys.readouterr().out)["scenes"]}


def judged(scene: dict[str, Any]) -> tuple[object, ...]:
    return scene["rows_written"], scene["identity"], scene["content"], scene["verdict"], scene["class"]


def test_another_order_and_layout_passes(scenes: dict[str, dict[str, Any]]) -> None:
    assert judged(scenes["relaid"]) == (500, "equal", "equal", "PASS", None)


def test_dropped_rows_are_missing(scenes: dict[str, dict[str, Any]]) -> None:
    assert judged(scenes["dropped"]) == (494, "differs", "differs", "FAIL", "missing")


def test_a_doubled_chunk_is_added_rows(scenes: dict[str, dict[str, Any]]) -> None:
    assert judged(scenes["doubled"]) == (550, "differs", "differs", "FAIL", "added")


def test_a_changed_amount_is_seen_by_content_alone(scenes: dict[str, dict[str, Any]]) -> None:
    assert judged(scenes["changed"]) == (500, "equal", "differs", "FAIL", "modified")


def test_the_readme_shows_what_the_demo_prints(capsys: pytest.CaptureFixture[str]) -> None:
    block = BLOCK.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert block is not None
    command, _, shown = block[1].partition("\n")
    prompt, program, *words = shlex.split(command)
    assert (prompt, program, main(words)) == ("$", "pvdm", 0)
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("words", [[], ["--json"]], ids=["text", "json"])
def test_no_digest_is_shown(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sums: set[int] = set()
    judge = Partial.__post_init__

    def remember(partial: Partial) -> None:
        sums.add(partial.total)
        judge(partial)

    monkeypatch.setattr(Partial, "__post_init__", remember)
    main(["demo", "--rows", "50", *words])
    shown = "".join(capsys.readouterr())
    assert len(sums) > 2
    assert not [each for each in sums if each and (str(each) in shown or f"{each:064x}" in shown)]


def test_the_same_seed_makes_the_same_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        main(["demo", "--rows", "50", "--seed", "3", "--keep", str(tmp_path / name)])
    assert pq.read_table(tmp_path / "a" / "relaid-0.parquet") == pq.read_table(tmp_path / "b" / "relaid-0.parquet")


def test_kept_files_are_named_by_scene(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["demo", "--rows", "50", "--keep", str(tmp_path / "orders")])
    assert sorted(path.stem for path in (tmp_path / "orders").iterdir()) == [
        "changed",
        "doubled-0",
        "doubled-1",
        "dropped",
        "intended",
        "relaid-0",
        "relaid-1",
        "relaid-2",
        "relaid-3",
    ]


def test_a_folder_in_use_is_not_written_into(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert main(["demo", "--rows", "50", "--keep", str(tmp_path), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "folder_not_empty"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def interrupt(*_words: object, **_named: object) -> NoReturn:
    raise KeyboardInterrupt


def test_an_interrupted_demo_leaves_no_new_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pvdm.evaluation.scenes._changed", interrupt)
    assert main(["demo", "--rows", "50", "--keep", str(tmp_path / "new" / "orders")]) == 4
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_demo_leaves_an_empty_folder_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pvdm.evaluation.scenes._changed", interrupt)
    assert main(["demo", "--rows", "50", "--keep", str(tmp_path)]) == 4
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["demo", "--rows", "50", "--keep", str(tmp_path / "file" / "orders"), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "folder_not_writable"


def test_an_empty_name_is_not_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--rows", "50", "--keep", ""]) == 2
    assert list(tmp_path.iterdir()) == []


def test_the_reference_makes_fewer_orders_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    main(["demo", "--engine", "reference"])
    shown = capsys.readouterr()
    assert shown.out.startswith("intended: 2,000 orders")
    assert "2,000 orders instead of 200,000" in shown.err


def test_a_digest_that_misses_a_change_fails_the_demo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Partial, "matches", lambda _self, _other: True)
    assert main(["demo", "--rows", "50", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "demo_failed"
