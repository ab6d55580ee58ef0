"""A served Steward with one table, and the commands of an operator who protects and migrates it, for tests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pvdm.model.role import Role
from tests.behaviour.cli.served import Door
from tests.behaviour.cli.support import Ran, Run
from tests.support.gate.approvals import CONTRACT, OTHER_CONTRACT, Scene, furnish, with_catalog
from tests.support.ledger.databases import memory_folder
from tests.support.steward.http import served

REASON = "orders go live"
BY_TOM = ("--key", "operator-tom.pem", "--operator", "operator-tom", "--reason", REASON)


@dataclass(frozen=True)
class House:
    """A served Steward with the table `sales.orders`, and commands of an operator."""

    scene: Scene
    door: Door
    run: Run

    def protect(self, *words: object) -> Ran:
        return self.run("protect", "sales.orders", "--contract", "orders.yaml", *BY_TOM, *words)

    def propose(self, *words: object, out: str | None = "proposal.json") -> Ran:
        placed = () if out is None else ("--out", out)
        return self.run("migrate", "propose", "sales.orders", *words, *placed)

    def sign(self, *words: object) -> Ran:
        return self.run("migrate", "sign", "proposal.json", *BY_TOM, "--out", "migration.json", *words)

    def done(self, ran: Ran) -> Ran:
        assert ran.code == 0, ran.err + ran.out
        return ran


@contextlib.contextmanager
def open_house(
    pvdm: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, example_key: Callable[[str], Path]
) -> Iterator[House]:
    """The house, with keys and contracts in the folder that commands run in."""
    for name in ("operator-tom", "operator-ruth", "rogue"):
        example_key(name)
    (folder / "orders.yaml").write_text(CONTRACT)
    (folder / "orders-2.yaml").write_text(OTHER_CONTRACT)
    with memory_folder() as place, served(place, changed=with_catalog(place.resolve())) as running:
        door = Door(running.stand, running.server.url, folder, monkeypatch)
        door.come_as(Role.OPERATOR)
        yield House(furnish(running.stand), door, pvdm)


def protected(house: House) -> House:
    house.done(house.protect())
    return house
