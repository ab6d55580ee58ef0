"""Bytes swapped at every moment of the way, on storage `open` and `copied`: what is stopped, and what an audit finds.

What no mode can stop is in docs/security.md and spec/gate.md: on `open` the time from the re-hash to the commit, and
all of the time after it; on `copied` the same for those only who can write the Steward's vault.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pvdm.api.work import AttemptView
from pvdm.client import StewardClient
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.vault import Vault
from pvdm.metadata.audit.audit import AuditTrust, audit
from pvdm.model.role import Role
from pvdm.model.statements.verdict import FailureClass, Outcome
from pvdm.model.states import AttemptState
from tests.support import fault
from tests.support.audit.crafted_history import Local, codes
from tests.support.audit.published_history import gather_evidence
from tests.support.lake.scans import table_of
from tests.support.ledger.databases import memory_folder
from tests.support.steward.notary import LOG_ORIGIN
from tests.support.steward.staged_by_hand import OLD, ROWS, Goods, Staging, goods_at, parquet
from tests.support.stores.places import file_at, files, stores
from tools.proof_kit import SECOND

pytest.importorskip("pvdm_kernel")

STORAGES = ["open", "copied"]
FORGED: tuple[dict[str, Any], ...] = ({**ROWS[0], "amount": 1.5}, *ROWS[1:])
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def goods() -> Iterator[Goods]:
    with memory_folder() as folder, goods_at(folder) as made:
        yield made


@pytest.fixture(scope="module")
def producer(goods: Goods) -> Iterator[StewardClient]:
    with goods.line.client() as client:
        yield client


class Swapped:
    """One staged file with the right rows, and others of the same size to put into its place."""

    def __init__(self, goods: Goods, producer: StewardClient, storage: str) -> None:
        self.goods, self.producer = goods, producer
        self.name = goods.target(f"storage: {storage}")
        attempt = goods.attempt(producer, self.name, f"swap-{next(_NUMBERS)}")
        staging = Staging(goods, producer, self.name, attempt)
        file = staging.file(compression="none")
        facts = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
        silent: dict[str, Any] = dict.fromkeys((*facts, "column_sizes", "split_offsets"))
        staging.add(replace(file, **silent))
        self.attempt = attempt
        self.path = file_at(file.file_path)
        self.right = self.path.read_bytes()
        schema = to_model(goods.metadata(self.name).current_schema)
        self.forged = parquet(table_of(schema, FORGED), compression="none")
        assert (len(self.forged), self.forged != self.right) == (len(self.right), True)

    def forge(self) -> None:
        self.path.write_bytes(self.forged)

    def put_back(self) -> None:
        self.path.write_bytes(self.right)

    def forge_copy(self) -> None:
        """What only who can write the Steward's own folder can do."""
        for path in self.copies():
            path.chmod(0o600)
            path.write_bytes(self.forged)

    def copies(self) -> list[Path]:
        config = self.goods.line.notary.config.catalog
        assert config is not None
        found = file_at(Vault(config.vault, stores()).root).rglob(f"data/{self.attempt.attempt_id}/*.parquet")
        return list(found)

    def hand_in(self, **moments: Callable[[], None]) -> AttemptView:
        """The attempt to its end, with something done at these fault points."""
        with contextlib.ExitStack() as stack:
            for name, act in moments.items():
                stack.enter_context(fault.armed(name.replace("__", "."), fault.Call(act)))
            return self.goods.settled(self.producer, self.attempt)

    def amounts(self) -> list[object]:
        """The amounts of the rows that a consumer sees, but for the one that is no number."""
        return [row["amount"] for row in self.goods.seen(self.name) if row["id"] != 2]

    def audit(self, *, rehash: bool = True) -> set[str]:
        """What an auditor finds."""
        line = self.goods.line
        line.served.stand.time.pass_by(SECOND)
        evidence = gather_evidence(line.notary, line.scene.grant(Role.AUDITOR, "sales"), self.name)
        judge = AuditTrust(line.notary.trust.current(), LOG_ORIGIN, line.scene.now)
        report = audit(evidence, Local(), judge, data_files=files() if rehash else None)
        assert report.holds is not bool(codes(report))
        return codes(report)


RIGHT, WRONG = [2.5, -1.0, 1.0], [1.5, -1.0, 1.0]


def refused(swapped: Swapped, found: AttemptView, verdict: Outcome, *classes: FailureClass) -> None:
    """It ended, a consumer sees the old row alone, and nothing of it lies where it was staged."""
    assert (found.state, found.verdict) == (AttemptState.VERIFICATION_FAILED, verdict)
    assert found.classes == classes
    assert swapped.goods.seen(swapped.name) == list(OLD)
    assert not swapped.path.exists()


def published(swapped: Swapped, found: AttemptView, amounts: list[float]) -> None:
    assert (found.state, found.verdict) == (AttemptState.COMMITTED, Outcome.PASS)
    assert swapped.amounts() == amounts


@pytest.mark.parametrize("storage", STORAGES)
def test_unswapped_bytes_are_published(goods: Goods, producer: StewardClient, storage: str) -> None:
    swapped = Swapped(goods, producer, storage)
    published(swapped, swapped.hand_in(), RIGHT)
    assert swapped.audit() == set()


@pytest.mark.parametrize("storage", STORAGES)
def test_swapped_before_the_freeze_they_are_judged_as_they_are(
    goods: Goods, producer: StewardClient, storage: str
) -> None:
    swapped = Swapped(goods, producer, storage)
    swapped.forge()
    refused(swapped, swapped.hand_in(), Outcome.FAIL, FailureClass.MODIFIED)


@pytest.mark.parametrize("storage", STORAGES)
def test_swapped_between_freeze_and_digest_and_back_again_they_fail(
    goods: Goods, producer: StewardClient, storage: str
) -> None:
    swapped = Swapped(goods, producer, storage)
    found = swapped.hand_in(verify__after_freeze=swapped.forge, verify__after_digests=swapped.put_back)
    refused(swapped, found, Outcome.FAIL, FailureClass.PHYSICAL)
    assert goods.codes(found) == ["file_changed"]


@pytest.mark.parametrize("storage", STORAGES)
def test_good_only_while_they_are_digested_they_fail(goods: Goods, producer: StewardClient, storage: str) -> None:
    swapped = Swapped(goods, producer, storage)
    swapped.forge()
    found = swapped.hand_in(verify__after_freeze=swapped.put_back, verify__after_digests=swapped.forge)
    refused(swapped, found, Outcome.FAIL, FailureClass.PHYSICAL)
    assert goods.codes(found) == ["file_changed"]


@pytest.mark.parametrize("moment", ["verify__after_digests", "verify__after_proof", "verify__after_verdict"])
def test_swapped_after_their_pass_the_gate_refuses_them_on_open(
    goods: Goods, producer: StewardClient, moment: str
) -> None:
    swapped = Swapped(goods, producer, "open")
    found = swapped.hand_in(**{moment: swapped.forge})
    refused(swapped, found, Outcome.PASS)
    assert found.refusal is not None
    assert found.refusal.reason == "published_bytes_changed"


@pytest.mark.parametrize("moment", ["verify__after_digests", "verify__after_proof", "verify__after_verdict"])
def test_swapped_after_their_pass_the_copies_are_published_on_copied(
    goods: Goods, producer: StewardClient, moment: str
) -> None:
    swapped = Swapped(goods, producer, "copied")
    published(swapped, swapped.hand_in(**{moment: swapped.forge}), RIGHT)
    assert swapped.audit() == set()


def test_copies_that_were_swapped_after_the_pass_are_refused(goods: Goods, producer: StewardClient) -> None:
    swapped = Swapped(goods, producer, "copied")
    found = swapped.hand_in(verify__after_verdict=swapped.forge_copy)
    refused(swapped, found, Outcome.PASS)
    assert found.refusal is not None
    assert found.refusal.reason == "published_bytes_changed"


@pytest.mark.parametrize("moment", ["gate__after_rehash", "gate__after_files"])
def test_swapped_between_re_hash_and_commit_open_shows_them_and_an_audit_finds_them(
    goods: Goods, producer: StewardClient, moment: str
) -> None:
    """The window of `open` that the documents name."""
    swapped = Swapped(goods, producer, "open")
    published(swapped, swapped.hand_in(**{moment: swapped.forge}), WRONG)
    assert swapped.audit(rehash=False) == set()
    assert swapped.audit() == {"audit_bytes_changed"}


@pytest.mark.parametrize("moment", ["gate__after_rehash", "gate__after_files"])
def test_swapped_between_re_hash_and_commit_copied_shows_the_copies(
    goods: Goods, producer: StewardClient, moment: str
) -> None:
    swapped = Swapped(goods, producer, "copied")
    published(swapped, swapped.hand_in(**{moment: swapped.forge}), RIGHT)
    assert swapped.audit() == set()


def test_swapped_after_the_commit_an_audit_finds_them_on_open(goods: Goods, producer: StewardClient) -> None:
    swapped = Swapped(goods, producer, "open")
    published(swapped, swapped.hand_in(), RIGHT)
    swapped.forge()
    assert swapped.amounts() == WRONG
    assert swapped.audit(rehash=False) == set()
    assert swapped.audit() == {"audit_bytes_changed"}


def test_after_the_commit_copied_has_no_staged_file_left_to_swap_and_an_audit_finds_a_swapped_copy(
    goods: Goods, producer: StewardClient
) -> None:
    swapped = Swapped(goods, producer, "copied")
    published(swapped, swapped.hand_in(), RIGHT)
    assert not swapped.path.exists()
    swapped.forge_copy()
    assert swapped.audit(rehash=False) == set()
    assert swapped.audit() == {"audit_bytes_changed"}


def test_a_file_that_is_gone_after_the_commit_is_found_too(goods: Goods, producer: StewardClient) -> None:
    swapped = Swapped(goods, producer, "open")
    published(swapped, swapped.hand_in(), RIGHT)
    swapped.path.unlink()
    assert swapped.audit() == {"file_missing"}
