"""Bytes swapped at each step, with storage `open` and `copied`: what the Steward refuses, and what an audit finds.

Nothing stops a swap after the gate's re-hash (docs/security.md, spec/gate.md): on `open` by a principal that can write
the staging folder, on `copied` only by those who can write the Steward's vault.
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


class SwapCase:
    """An attempt with one staged file of the right rows, and forged bytes of the same size to swap it for."""

    def __init__(self, goods: Goods, producer: StewardClient, storage: str) -> None:
        self.goods, self.producer = goods, producer
        self.name = goods.target(f"storage: {storage}")
        attempt = goods.attempt(producer, self.name, f"swap-{next(_NUMBERS)}")
        staging = Staging(goods, producer, self.name, attempt)
        file = staging.file(compression="none")
        facts = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
        # No statistics in the manifest entry: they would not agree with the forged bytes.
        without_statistics: dict[str, Any] = dict.fromkeys((*facts, "column_sizes", "split_offsets"))
        staging.add(replace(file, **without_statistics))
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
        """Forge the Steward's copies, as only a writer of the vault can."""
        copies = self.copies()
        assert copies
        for path in copies:
            path.chmod(0o600)
            path.write_bytes(self.forged)

    def copies(self) -> list[Path]:
        config = self.goods.line.notary.config.catalog
        assert config is not None
        copies = file_at(Vault(config.vault, stores()).root).rglob(f"data/{self.attempt.attempt_id}/*.parquet")
        return list(copies)

    def hand_in(self, **moments: Callable[[], None]) -> AttemptView:
        """Hand in the attempt and wait for its end; call each function at its fault point (`__` stands for a dot)."""
        with contextlib.ExitStack() as stack:
            for name, act in moments.items():
                stack.enter_context(fault.armed(name.replace("__", "."), fault.Call(act)))
            return self.goods.settled(self.producer, self.attempt)

    def amounts(self) -> list[object]:
        """The amounts that a consumer sees, without that of row 2, which is NaN."""
        return [row["amount"] for row in self.goods.visible_rows(self.name) if row["id"] != 2]

    def audit(self, *, rehash: bool = True) -> set[str]:
        """The codes of an audit's findings."""
        line = self.goods.line
        line.served.stand.time.pass_by(SECOND)
        evidence = gather_evidence(line.notary, line.scene.grant(Role.AUDITOR, "sales"), self.name)
        judge = AuditTrust(line.notary.trust.current(), LOG_ORIGIN, line.scene.now)
        report = audit(evidence, Local(), judge, data_files=files() if rehash else None)
        assert report.holds is not bool(codes(report))
        return codes(report)


RIGHT_AMOUNTS, WRONG_AMOUNTS = [2.5, -1.0, 1.0], [1.5, -1.0, 1.0]


def require_refused(case: SwapCase, attempt: AttemptView, verdict: Outcome, *classes: FailureClass) -> None:
    """Require that the attempt failed, that consumers see only the old row, and that the staged file is gone."""
    assert (attempt.state, attempt.verdict) == (AttemptState.VERIFICATION_FAILED, verdict)
    assert attempt.classes == classes
    assert case.goods.visible_rows(case.name) == list(OLD)
    assert not case.path.exists()


def require_published(case: SwapCase, attempt: AttemptView, amounts: list[float]) -> None:
    assert (attempt.state, attempt.verdict) == (AttemptState.COMMITTED, Outcome.PASS)
    assert case.amounts() == amounts


@pytest.mark.parametrize("storage", STORAGES)
def test_unswapped_bytes_are_published(goods: Goods, producer: StewardClient, storage: str) -> None:
    case = SwapCase(goods, producer, storage)
    require_published(case, case.hand_in(), RIGHT_AMOUNTS)
    assert case.audit() == set()


@pytest.mark.parametrize("storage", STORAGES)
def test_bytes_swapped_before_the_freeze_fail_as_modified(goods: Goods, producer: StewardClient, storage: str) -> None:
    case = SwapCase(goods, producer, storage)
    case.forge()
    require_refused(case, case.hand_in(), Outcome.FAIL, FailureClass.MODIFIED)


@pytest.mark.parametrize("storage", STORAGES)
def test_bytes_swapped_only_between_freeze_and_digest_fail(goods: Goods, producer: StewardClient, storage: str) -> None:
    case = SwapCase(goods, producer, storage)
    attempt = case.hand_in(verify__after_freeze=case.forge, verify__after_digests=case.put_back)
    require_refused(case, attempt, Outcome.FAIL, FailureClass.PHYSICAL)
    assert goods.codes(attempt) == ["file_changed"]


@pytest.mark.parametrize("storage", STORAGES)
def test_bytes_that_are_right_only_during_the_digest_fail(goods: Goods, producer: StewardClient, storage: str) -> None:
    case = SwapCase(goods, producer, storage)
    case.forge()
    attempt = case.hand_in(verify__after_freeze=case.put_back, verify__after_digests=case.forge)
    require_refused(case, attempt, Outcome.FAIL, FailureClass.PHYSICAL)
    assert goods.codes(attempt) == ["file_changed"]


@pytest.mark.parametrize("moment", ["verify__after_digests", "verify__after_proof", "verify__after_verdict"])
def test_the_gate_refuses_bytes_swapped_after_their_pass_on_open(
    goods: Goods, producer: StewardClient, moment: str
) -> None:
    case = SwapCase(goods, producer, "open")
    attempt = case.hand_in(**{moment: case.forge})
    require_refused(case, attempt, Outcome.PASS)
    assert attempt.refusal is not None
    assert attempt.refusal.reason == "published_bytes_changed"


@pytest.mark.parametrize("moment", ["verify__after_digests", "verify__after_proof", "verify__after_verdict"])
def test_the_copies_are_published_if_bytes_are_swapped_after_their_pass_on_copied(
    goods: Goods, producer: StewardClient, moment: str
) -> None:
    case = SwapCase(goods, producer, "copied")
    require_published(case, case.hand_in(**{moment: case.forge}), RIGHT_AMOUNTS)
    assert case.audit() == set()


def test_copies_that_were_swapped_after_the_pass_are_refused(goods: Goods, producer: StewardClient) -> None:
    case = SwapCase(goods, producer, "copied")
    attempt = case.hand_in(verify__after_verdict=case.forge_copy)
    require_refused(case, attempt, Outcome.PASS)
    assert attempt.refusal is not None
    assert attempt.refusal.reason == "published_bytes_changed"


@pytest.mark.parametrize("moment", ["gate__after_rehash", "gate__after_files"])
def test_bytes_swapped_between_re_hash_and_commit_are_published_on_open_and_an_audit_finds_them(
    goods: Goods, producer: StewardClient, moment: str
) -> None:
    """The time between re-hash and commit that docs/security.md names."""
    case = SwapCase(goods, producer, "open")
    require_published(case, case.hand_in(**{moment: case.forge}), WRONG_AMOUNTS)
    assert case.audit(rehash=False) == set()
    assert case.audit() == {"audit_bytes_changed"}


@pytest.mark.parametrize("moment", ["gate__after_rehash", "gate__after_files"])
def test_the_copies_are_published_if_bytes_are_swapped_between_re_hash_and_commit_on_copied(
    goods: Goods, producer: StewardClient, moment: str
) -> None:
    case = SwapCase(goods, producer, "copied")
    require_published(case, case.hand_in(**{moment: case.forge}), RIGHT_AMOUNTS)
    assert case.audit() == set()


def test_an_audit_finds_bytes_swapped_after_the_commit_on_open(goods: Goods, producer: StewardClient) -> None:
    case = SwapCase(goods, producer, "open")
    require_published(case, case.hand_in(), RIGHT_AMOUNTS)
    case.forge()
    assert case.amounts() == WRONG_AMOUNTS
    assert case.audit(rehash=False) == set()
    assert case.audit() == {"audit_bytes_changed"}


def test_no_staged_file_is_left_after_the_commit_on_copied_and_an_audit_finds_a_swapped_copy(
    goods: Goods, producer: StewardClient
) -> None:
    case = SwapCase(goods, producer, "copied")
    require_published(case, case.hand_in(), RIGHT_AMOUNTS)
    assert not case.path.exists()
    case.forge_copy()
    assert case.audit(rehash=False) == set()
    assert case.audit() == {"audit_bytes_changed"}


def test_an_audit_finds_that_a_file_is_missing_after_the_commit(goods: Goods, producer: StewardClient) -> None:
    case = SwapCase(goods, producer, "open")
    require_published(case, case.hand_in(), RIGHT_AMOUNTS)
    case.path.unlink()
    assert case.audit() == {"file_missing"}
