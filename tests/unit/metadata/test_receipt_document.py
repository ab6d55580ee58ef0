"""The metadata document that a receipt names: each difference from the receipt or its proofs is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.errors import VerificationError
from pvdm.metadata.gate.receipt_document import parse_receipted_metadata, require_proved, require_published_bytes
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.receipt import Receipt
from pvdm.model.statements.verdict import FailureClass, Verdict
from pvdm.trust.statement import read_unchecked
from pvdm.verify.fetch import Files
from tests.support.audit.crafted_history import History, local

ELSEWHERE = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def history(tmp_path: Path) -> History:
    history = History(tmp_path)
    history.protect()
    history.publish(history.data_file("first"))
    return history


def receipt_of(history: History) -> Receipt:
    *_, logged = [each for each in history.statements if each.kind is StatementKind.RECEIPT]
    return read_unchecked(logged.envelope, Receipt)


def reason_of(call: Callable[[], object]) -> str:
    with pytest.raises(VerificationError) as caught:
        call()
    return caught.value.reason


def core_of(history: History) -> ProofCore:
    return history.core([history.data_file("first")])


def test_the_document_of_a_receipt_is_read(history: History) -> None:
    receipt = receipt_of(history)
    metadata = parse_receipted_metadata(receipt, history.metadata.to_bytes())
    require_proved(receipt, {"a proof": core_of(history)})
    require_published_bytes(receipt, metadata, core_of(history).files.added, Files())


def test_a_document_with_other_bytes_is_refused(history: History) -> None:
    data = history.metadata.to_bytes() + b" "
    assert reason_of(lambda: parse_receipted_metadata(receipt_of(history), data)) == "audit_metadata_changed"


def test_a_document_of_another_table_is_refused(history: History) -> None:
    receipt = receipt_of(history)
    other = replace(receipt, table=replace(receipt.table, uuid=ELSEWHERE))
    assert (
        reason_of(lambda: parse_receipted_metadata(other, history.metadata.to_bytes()))
        == "audit_metadata_of_other_table"
    )


def test_a_receipt_of_another_branch_is_refused(history: History) -> None:
    other = replace(receipt_of(history), branch="nightly")
    assert (
        reason_of(lambda: parse_receipted_metadata(other, history.metadata.to_bytes())) == "audit_receipt_wrong_branch"
    )


@pytest.mark.parametrize("changed", [{"new_snapshot_id": 7}, {"old_snapshot_id": 7}])
def test_a_document_that_shows_another_snapshot_is_refused(history: History, changed: dict[str, int]) -> None:
    other = replace(receipt_of(history), **changed)  # type: ignore[arg-type]
    assert (
        reason_of(lambda: parse_receipted_metadata(other, history.metadata.to_bytes()))
        == "audit_receipt_wrong_snapshot"
    )


def test_a_receipt_without_one_of_its_proofs_is_refused(history: History) -> None:
    assert reason_of(lambda: require_proved(receipt_of(history), {"a proof": None})) == "audit_proof_missing"


def test_a_proof_about_another_table_is_refused(history: History) -> None:
    core = core_of(history)
    other = replace(core, target=replace(core.target, table=replace(core.target.table, uuid=ELSEWHERE)))
    assert reason_of(lambda: require_proved(receipt_of(history), {"a proof": other})) == "audit_proof_wrong_table"


def test_a_fail_that_nothing_waives_is_refused(history: History) -> None:
    receipt, core = receipt_of(history), replace(core_of(history), verdict=Verdict.failed(FailureClass.MODIFIED))
    assert reason_of(lambda: require_proved(receipt, {"a proof": core})) == "audit_verdict_not_pass"
    require_proved(replace(receipt, override_id="ab" * 32), {"a proof": core})


def test_a_data_file_that_the_table_does_not_show_any_more_is_not_read(history: History) -> None:
    receipt = receipt_of(history)
    gone = history.data_file("removed since")
    added = history.core([gone]).files.added
    local(gone.file_path).unlink()
    require_published_bytes(receipt, history.metadata, added, Files())
