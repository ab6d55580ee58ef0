"""A served Steward with one table, and the commands of an operator who protects and migrates it, for tests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pvdm.model.role import Role
from tests.behaviour.cli.served import ServedSteward
from tests.behaviour.cli.support import CommandResult, Run
from tests.support.gate.approvals import CONTRACT, OTHER_CONTRACT, Scene, furnish, with_catalog
from tests.support.ledger.databases import memory_folder
from tests.support.steward.http import served

REASON = "orders go live"
BY_TOM = ("--key", "operator-tom.pem", "--operator", "operator-tom", "--reason", REASON)


@dataclass(frozen=True)
class House:
    """A served Steward with the table `sales.orders`, and commands of an operator."""

    scene: Scene
    steward: ServedSteward
    run: Run

    def protect(self, *words: object) -> CommandResult:
        return self.run("protect", "sales.orders", "--contract", "orders.yaml", *BY_TOM, *words)

    def propose(self, *words: object, out: str | None = "proposal.json") -> CommandResult:
        out_option = () if out is None else ("--out", out)
        return self.run("migrate", "propose", "sales.orders", *words, *out_option)

    def sign(self, *words: object) -> CommandResult:
        return self.run("migrate", "sign", "proposal.json", *BY_TOM, "--out", "migration.json", *words)

    def require_ok(self, result: CommandResult) -> CommandResult:
        assert result.code == 0, result.err + result.out
        return result


@contextlib.contextmanager
def open_house(
    pvdm: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, example_key: Callable[[str], Path]
) -> Iterator[House]:
    """Open a house; keys and contracts are in `folder`, which commands run in."""
    for name in ("operator-tom", "operator-ruth", "rogue"):
        example_key(name)
    (folder / "orders.yaml").write_text(CONTRACT)
    (folder / "orders-2.yaml").write_text(OTHER_CONTRACT)
    with memory_folder() as place, served(place, changed=with_catalog(place.resolve())) as running:
        steward = ServedSteward(running.stand, running.server.url, folder, monkeypatch)
        steward.use_token(Role.OPERATOR)
        yield House(furnish(running.stand), steward, pvdm)


def protect_orders(house: House) -> House:
    """Protect `sales.orders`; returns the house."""
    house.require_ok(house.protect())
    return house
