"""docs/protection.md: its commands run as they stand, in their order, and its codes and routes exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pvdm.model.role import Role
from pvdm.steward.http.roles import RULES
from tests.behaviour.cli.served import ServedSteward
from tests.behaviour.cli.support import Run
from tests.support.gate.approvals import COLUMN, CONTRACT, HASH, Scene, furnish, with_catalog
from tests.support.ledger.databases import memory_folder
from tests.support.steward.http import served

PAGE = (Path(__file__).parents[3] / "docs" / "protection.md").read_text("utf-8")
COMMANDS = re.findall(r"^\$ (pvdm .*)$", PAGE, re.MULTILINE)


@pytest.fixture
def scene(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pvdm: Run,
    at_examples_time: None,
    example_key: Callable[[str], Path],
) -> Iterator[Scene]:
    example_key("operator-tom")
    (tmp_path / "orders.yaml").write_text(CONTRACT)
    with memory_folder() as folder, served(folder, changed=with_catalog(folder.resolve())) as running:
        ServedSteward(running.stand, running.server.url, tmp_path, monkeypatch).use_token(Role.OPERATOR)
        yield furnish(running.stand)


def test_the_commands_of_the_page_succeed_one_after_the_other(scene: Scene, pvdm: Run) -> None:
    assert len(COMMANDS) >= 8
    contracts_in_force = []
    for line in COMMANDS:
        if line.startswith("pvdm migrate submit"):
            scene.commit(COLUMN, levels=("raw",))  # the source comes first: docs/schema-changes.md
        ran = pvdm(*shlex.split(line)[1:])
        assert ran.code == 0, f"{line}\n{ran.err}"
        contracts_in_force.append(scene.contract_of())
    assert {HASH, None} == set(contracts_in_force)
    found = scene.table_state().metadata
    assert (found.properties["owner"], found.current_schema.find("channel") is not None) == ("shop", True)


def test_the_command_prints_the_difference_that_the_page_shows(scene: Scene, pvdm: Run) -> None:
    protect, _, _, propose = COMMANDS[:4]
    pvdm(*shlex.split(protect)[1:])
    shown = pvdm(*shlex.split(propose)[1:]).out
    documented = re.findall(r"^  ([+~] .*)$", PAGE, re.MULTILINE)
    assert [line.partition("{")[0] for line in documented if line.partition("{")[0] not in shown] == []
    assert len(documented) == 5


def test_the_updates_that_the_page_shows_add_a_nested_column(scene: Scene, pvdm: Run, tmp_path: Path) -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "updates.json").write_text(example)
    pvdm(*shlex.split(COMMANDS[0])[1:])
    shown = pvdm("migrate", "propose", "sales.orders", "--updates", "updates.json")
    assert shown.code == 0, shown.err
    assert "+ column tags: list, optional, id 4" in shown.out
    assert "- column" not in shown.out


def test_the_routes_of_the_page_are_for_the_roles_that_it_names() -> None:
    for spans, who in re.findall(r"^\| (`(?:GET|POST) [^|]*`) \| ([a-z, ]+) \|", PAGE, re.MULTILINE):
        for method, path in re.findall(r"`(GET|POST) ([^`]+)`", spans):
            assert sorted(RULES[method, path].roles) == sorted(who.split(", ")), path
