"""An attempt is cleaned up even if its job left files with odd names, or its table is not protected any more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from pvdm import Chunk, Coordinator, VerificationFailed
from pvdm.client import StewardClient
from pvdm.errors import NotAllowedError
from pvdm.lake.paths import parse_location
from pvdm.model.role import Role
from tests.support.steward.shop import ROWS, Shop, contract, shop_at, table_of
from tests.support.waiting import eventually

ODD_NAMES = [b"town=A%2FB.parquet", b"a?b.parquet", b"a#b", b"a\\b", b"x\ny"]


@pytest.fixture
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        made.make("sales.odd")
        yield made


def test_staged_files_with_odd_names_are_moved_to_quarantine(shop: Shop) -> None:
    shop.protect(contract("sales.odd", "storage: copied", "governance:", "  on-fail: quarantine"))

    def build(_spark: object, _chunk: Chunk) -> pa.Table:
        with shop.client() as client:
            prefix = client.workload("odd").attempts[-1].prefix
        folder = parse_location(prefix).local / "data"
        folder.mkdir(parents=True, exist_ok=True)
        for name in ODD_NAMES:
            with open(os.path.join(os.fsencode(folder), name), "wb") as file:  # noqa: PTH118, PTH123 - names in bytes
                file.write(b"left by the job as " + name)
        return table_of(ROWS[:-1])

    with shop.client() as client, Coordinator(client) as coordinator:
        outcome = coordinator.execute_workload("odd", build, table="sales.odd")
    assert isinstance(outcome, VerificationFailed), outcome
    assert eventually(lambda: not shop.branches("sales.odd"))
    assert eventually(lambda: not shop.staged_files("sales.odd"))
    with shop.client(Role.OPERATOR, "*") as client:
        (entry,) = client.quarantine()
    assert entry.files == len(ODD_NAMES) + 1


def test_an_attempt_at_a_table_that_is_not_protected_any_more_is_cleaned_up(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.protect(contract("sales.odd"))
    words = ["unprotect", "sales.odd", "--yes", "--key", str(shop.key), "--operator", "tom", "--reason", "it moves"]
    hand_in = StewardClient.staged

    def unprotect_and_hand_in(client: StewardClient, attempt_id: str) -> Any:
        code, output = shop.command(words, Role.OPERATOR, "*")
        assert code == 0, output
        return hand_in(client, attempt_id)

    monkeypatch.setattr(StewardClient, "staged", unprotect_and_hand_in)
    with shop.client() as client, Coordinator(client) as coordinator, pytest.raises(NotAllowedError):
        coordinator.execute_workload("gone", lambda _spark, _chunk: table_of(ROWS), table="sales.odd")
    code, output = shop.command(["abandon", "gone", "--reason", "not protected"], Role.OPERATOR, "*")
    assert code == 0, output
    assert eventually(lambda: not shop.branches("sales.odd"))
    assert eventually(lambda: not shop.staged_files("sales.odd"))
