"""Gate checks 10 and 12 to 14, each met by an attack on bytes, ledger or catalog that it alone stops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from pvdm.catalog.commit import Change
from pvdm.catalog.target import CatalogTarget
from pvdm.errors import NotAllowedError, StateUnknownError
from pvdm.lake.snapshot_removal import BranchRemoval
from pvdm.ledger import Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.record import statements
from pvdm.ledger.work import attempts
from pvdm.metadata.gate.gate import validate_then_commit
from pvdm.metadata.gate.ledger_changes import LedgerChanges
from pvdm.metadata.gate.proposal import PublishedSnapshot
from pvdm.metadata.gate.target import Base, NextCommit, Target
from pvdm.model.filter.claim import Claim
from pvdm.model.role import Role
from pvdm.model.statements.kind import StatementKind
from pvdm.model.states import AttemptState
from tests.support import fault
from tests.support.catalog.core import set_ref
from tests.support.gate.attacks import BEFORE, NEW, code_and_check, publish, refusal
from tests.support.gate.protected_tables import Doc, House, contract
from tests.support.stores.places import file_at

# 10: the bytes


def test_bytes_that_were_swapped_after_the_verdict_are_not_published(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    (path, *_) = sorted(file_at(attempt.prefix).rglob("*.parquet"))
    other = orders.write_files(f"{attempt.prefix}/other", [(999, 1, "Ulm")])[0]
    path.write_bytes(file_at(other.file_path).read_bytes())
    assert code_and_check(refusal(orders, lambda: publish(orders, attempt))) == ("published_bytes_changed", 10)


def test_a_file_with_one_changed_bit_is_not_published(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    (path, *_) = sorted(file_at(attempt.prefix).rglob("*.parquet"))
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(bytes(data))
    assert code_and_check(refusal(orders, lambda: publish(orders, attempt))) == ("published_bytes_changed", 10)


def test_a_file_that_is_gone_is_not_published(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    (path, *_) = sorted(file_at(attempt.prefix).rglob("*.parquet"))
    path.unlink()
    assert code_and_check(refusal(orders, lambda: publish(orders, attempt))) == ("file_missing", 10)


def test_copies_are_published_even_if_the_producer_changes_its_own_files(orders: House) -> None:
    attempt = orders.proved("w", NEW, copied=True)
    for path in file_at(attempt.prefix).rglob("*.parquet"):
        path.write_bytes(b"other")
    publish(orders, attempt)
    assert orders.rows() == [1, 2, 3, 4]


def test_a_copy_that_was_changed_is_not_published(orders: House) -> None:
    attempt = orders.proved("w", NEW, copied=True)
    (path, *_) = sorted(file_at(orders.vault.root).rglob("*.parquet"))
    path.write_bytes(path.read_bytes() + b"x")
    assert code_and_check(refusal(orders, lambda: publish(orders, attempt))) == ("published_bytes_changed", 10)


# 12: once


def test_a_proof_publishes_once(orders: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CatalogTarget, "removes_branches", False)  # the branch is still there, so that only 12 refuses
    proposal = orders.proposal(orders.proved("w", NEW))
    validate_then_commit(proposal, orders.gate())
    error = refusal(orders, lambda: validate_then_commit(proposal, orders.gate()))
    assert (code_and_check(error), orders.rows()) == (("nonce_reused", 12), [1, 2, 3, 4])


def test_the_commit_that_publishes_a_branch_removes_it(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    before = orders.table_state()
    staged = before.metadata.refs[attempt.branch].snapshot_id
    validate_then_commit(orders.proposal(attempt), orders.gate())
    after = orders.table_state()
    assert after.row.revision == before.row.revision + 1
    assert attempt.branch not in after.metadata.refs
    assert after.metadata.snapshot(staged) is None
    assert orders.rows() == [1, 2, 3, 4]


def test_a_staged_snapshot_that_another_branch_has_stays(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    staged = orders.table_state().metadata.refs[attempt.branch].snapshot_id
    change = Change(("sales",), "orders", (), [set_ref("other", staged)])
    orders.notary.catalog.commits.commit(orders.scene.grant(Role.OPERATOR), [change])
    validate_then_commit(orders.proposal(attempt), orders.gate())
    assert orders.table_state().metadata.refs["other"].snapshot_id == staged


def test_an_attempt_that_was_rolled_back_meanwhile_is_not_published(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    proposal = orders.proposal(attempt)
    orders.transact(lambda unit: attempts.end(unit, attempt.attempt_id, AttemptState.ROLLED_BACK, reason="abandoned"))
    assert code_and_check(refusal(orders, lambda: validate_then_commit(proposal, orders.gate()))) == (
        "nonce_reused",
        12,
    )


def test_the_same_rows_under_a_new_workload_id_are_refused_and_the_old_id_is_named(orders: House) -> None:
    publish(orders, orders.proved("first-try", NEW))
    again = orders.proved("second-try", NEW)
    error = refusal(orders, lambda: publish(orders, again))
    assert (code_and_check(error), error.details["workload_id"]) == (("claim_overlaps", 12), "first-try")
    assert "first-try" in str(error.hint)


def test_a_workload_with_another_claim_is_published_beside_the_first(orders: House) -> None:
    for number, workload_id in enumerate(("one", "two")):
        proposal = orders.proposal(orders.proved(workload_id, [(10 + number, 5, "Ulm")]))
        claim = Claim.value("day", "date", number)
        validate_then_commit(replace(proposal, claim=claim), orders.gate())
    assert orders.rows() == [1, 2, 10, 11]


def test_an_overwrite_claims_nothing(house: House) -> None:
    house.table(rows=BEFORE, text=contract(operation="overwrite"))
    publish(house, house.proved("one", [(5, 1, "Ulm")], removed=house.paths()))
    publish(house, house.proved("two", [(5, 1, "Ulm")], removed=house.paths()))
    assert house.rows() == [5]


# 13: the swap


@dataclass(frozen=True)
class TargetWithMore:
    """A target that adds one more update to every publication."""

    inner: Target
    more: Doc
    removes_branches: bool = True

    def load(self) -> Base:
        return self.inner.load()

    def read_back(self) -> Base:
        return self.inner.read_back()

    def publish(
        self,
        make: Callable[[Base], NextCommit],
        in_transaction: Callable[[Unit, TableRow], LedgerChanges],
        then: Callable[[PublishedSnapshot], None],
    ) -> None:
        def make_more(base: Base) -> NextCommit:
            found = make(base)
            return replace(found, updates=[*found.updates, self.more])

        self.inner.publish(make_more, in_transaction, then)


@pytest.mark.parametrize(
    "more",
    [
        {"action": "set-properties", "updates": {"word": "mine"}},
        {"action": "remove-snapshot-ref", "ref-name": "pvdm_*"},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": -1},
        {"action": "set-snapshot-ref", "ref-name": "v1", "type": "tag", "snapshot-id": -1},
    ],
    ids=["property", "another branch gone", "main set back", "tag"],
)
def test_a_publication_that_would_change_anything_else_is_refused(orders: House, more: Doc) -> None:
    attempt, other = orders.proved("w", NEW), orders.proved("other", [(9, 9, "Jena")])
    ref = {"ref-name": other.branch} if more.get("ref-name") == "pvdm_*" else {}
    head = {"snapshot-id": orders.table_state().metadata.current_snapshot_id} if "snapshot-id" in more else {}
    gate = orders.gate()
    gate_with_more = replace(gate, target=TargetWithMore(gate.target, {**more, **ref, **head}))
    proposal = orders.proposal(attempt)
    error = refusal(orders, lambda: validate_then_commit(proposal, gate_with_more), NotAllowedError)
    assert error.reason == "publication_changes_more"


@pytest.mark.parametrize("which", ["of main", "of another branch"])
def test_a_publication_that_would_remove_a_snapshot_of_another_ref_is_refused(
    orders: House, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt, other = orders.proved("w", NEW), orders.proved("other", [(9, 9, "Jena")])
    metadata = orders.table_state().metadata
    held = metadata.current_snapshot_id if which == "of main" else metadata.refs[other.branch].snapshot_id
    removal = BranchRemoval((attempt.branch,), (held or 0,))
    monkeypatch.setattr(BranchRemoval, "plan", lambda *_: removal)
    proposal = orders.proposal(attempt)
    error = refusal(orders, lambda: validate_then_commit(proposal, orders.gate()), NotAllowedError)
    assert error.reason == "publication_changes_more"


# 14: what is shown


def test_a_publication_that_is_not_shown_as_written_gets_no_receipt(orders: House) -> None:
    attempt = orders.proved("w", NEW)

    def tamper() -> None:
        (path,) = sorted(file_at(orders.vault.root).rglob("snap-*.avro"))
        path.write_bytes(path.read_bytes()[:-1])

    with fault.armed("catalog.after_swap", fault.Call(tamper)), pytest.raises(StateUnknownError) as caught:
        publish(orders, attempt)
    assert code_and_check(caught.value) == ("publication_not_shown", 14)
    with orders.notary.ledger.read() as unit:
        assert statements.list_by_kind(unit, StatementKind.RECEIPT) == []


def test_a_publication_whose_pointer_is_set_back_gets_no_receipt(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    before = orders.table_state().row

    def set_back() -> None:
        now = orders.table_state().row
        orders.transact(lambda unit: tables.swap(unit, now, before.pointer))

    with fault.armed("catalog.after_swap", fault.Call(set_back)), pytest.raises(StateUnknownError) as caught:
        publish(orders, attempt)
    assert code_and_check(caught.value) == ("publication_not_shown", 14)
    with orders.notary.ledger.read() as unit:
        assert statements.list_by_kind(unit, StatementKind.RECEIPT) == []
