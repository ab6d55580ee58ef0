"""Errors that a newcomer meets: each says what is wrong and names the next step."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.client import Retries
from pvdm.model.role import Role
from tests.behaviour.cli.support import Run
from tests.support.steward.shop import BY_DAY, ROWS, Shop, contract, shop_at

DATED = "parameters:\n  date:\n    type: date"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        made.make("sales.orders", BY_DAY)
        made.protect(contract("sales.orders", DATED, where="day = ${date}", claim="{column: day}"))
        made.write(ROWS, "sales.orders", "etl")
        yield made


def error_of(result: tuple[int, str]) -> dict[str, str]:
    """The error in the JSON of a command's result, which is its exit code and its output."""
    _, output = result
    error: dict[str, str] = json.loads(output)["error"]
    return error


def test_publishing_with_a_publishers_token_is_refused_and_the_hint_asks_for_a_producers_token(shop: Shop) -> None:
    words = ["publish", "sales.orders", "etl", "--workload-id", "o-1", "--param", "date=2026-11-14", "--json"]
    error = error_of(shop.command(words, Role.PUBLISHER))
    assert (error["reason"], error["hint"]) == (
        "lent_role_wrong",
        "name a producer's token with --token-file, or connect with it",
    )


def test_a_token_of_another_domain_is_refused_with_its_domain(shop: Shop) -> None:
    words = ["publish", "sales.orders", "etl", "--workload-id", "o-2", "--param", "date=2026-11-14", "--json"]
    error = error_of(shop.command(words, Role.PRODUCER, "marketing"))
    assert (error["reason"], error["expected"], error["got"]) == (
        "domain_wrong",
        "a token of the domain that owns it",
        "one of the domain marketing",
    )


@pytest.mark.parametrize("given", [(), ("--param", "day=2026-11-14")])
def test_the_error_for_wrong_parameters_names_those_of_the_contract(shop: Shop, given: tuple[str, ...]) -> None:
    error = error_of(shop.command(["publish", "sales.orders", "etl", "--workload-id", "o-3", *given, "--json"]))
    assert (error["reason"], error["hint"]) == ("parameters_differ", "give each of them once: --param date=VALUE")


def test_the_error_for_an_unknown_token_has_a_next_step(shop: Shop, pvdm: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PVDM_URL", shop.steward.url)
    monkeypatch.setenv("PVDM_TOKEN", "no-such-token")
    ran = pvdm("protections", "--json")
    assert ran.error == "token_unknown"
    assert "--url names the Steward that issued it" in ran.json["error"]["hint"]


@pytest.mark.parametrize(
    ("job", "hint"),
    [
        ("smalljobs.py:build", "name the module without .py: smalljobs:build"),
        ("no_such_module:build", "it was looked for in {here} and among the installed modules"),
    ],
)
def test_the_error_for_a_missing_job_says_where_it_was_looked_for(
    pvdm: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str, hint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smalljobs.py").write_text("def build(spark, chunk): ...\n")
    ran = pvdm("run", "sales.orders", "--workload-id", "o-4", "--small", "--job", job, "--json")
    assert ran.error == "job_not_importable"
    assert ran.json["error"]["hint"].startswith(hint.format(here=tmp_path))


@pytest.mark.parametrize(
    ("line", "got"), [("", "none, which is atomicity: chunk"), ("atomicity: chunk", "atomicity: chunk")]
)
def test_the_error_for_an_overwrite_in_chunks_names_the_key_that_it_needs(
    pvdm: Run, tmp_path: Path, line: str, got: str
) -> None:
    chunked = "chunking:\n  by: partition\n  columns: [day]"
    path = tmp_path / "orders.yaml"
    path.write_text(contract("sales.orders", chunked, *([line] if line else []), operation="overwrite-partitions"))
    error = pvdm("validate", path, "--json").json["error"]
    assert "atomicity: workload, since chunks of an overwrite could replace each other's rows" in error["message"]
    assert error["message"].endswith(f"got {got}")


@pytest.mark.parametrize("as_json", [False, True])
def test_a_run_says_once_on_standard_error_that_it_waits_for_the_steward(
    pvdm: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    """The Steward's address is port 1, where nobody listens."""
    quick = functools.partial(Retries, restart_seconds=0.5, longest_wait_seconds=0.1)
    monkeypatch.setattr("pvdm.client.steward.Retries", quick)
    monkeypatch.setattr("pvdm.client.wire._NOTICE_SECONDS", 0.1)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "waiting_jobs.py").write_text("def build(spark, chunk): ...\n")
    monkeypatch.setenv("PVDM_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("PVDM_TOKEN", "any")
    more = ("--json",) if as_json else ()
    ran = pvdm("run", "sales.orders", "--workload-id", "o-5", "--small", "--job", "waiting_jobs:build", *more)
    assert ran.code == 7
    assert ran.err.count("waiting for the Steward at http://127.0.0.1:1 ...") == 1, ran.err
    assert "waiting" not in ran.out
