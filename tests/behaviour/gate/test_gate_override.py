"""Break-glass at the gate: an override waives the verdict for exactly the bytes it names, once, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from pvdm.errors import NotAllowedError, PvdmError, VerificationError
from pvdm.ledger.record import proofs, statements
from pvdm.ledger.work import attempts, nonces
from pvdm.ledger.work.attempts import Attempt
from pvdm.metadata.gate.checks_statements import require_waived
from pvdm.metadata.gate.gate import validate_then_commit
from pvdm.metadata.gate.proposal import PublicationResult
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.proof import Proof
from pvdm.model.statements.verdict import FailureClass, Verdict
from pvdm.model.states import AttemptState
from pvdm.trust.statement import read_unchecked
from tests.support import fault
from tests.support.gate.protected_tables import HOUR, House, Row, house_at
from tests.support.ledger.databases import memory_folder
from tests.support.steward.notary import signed_override
from tests.support.stores.places import file_at
from tools.proof_kit import fixed

BEFORE: Sequence[Row] = [(1, 1, "Ulm")]
BAD: Sequence[Row] = [(666, 3, "Ulm")]


@pytest.fixture
def house() -> Iterator[House]:
    with memory_folder() as folder, house_at(folder) as made:
        made.table(rows=BEFORE)
        yield made


def with_fail_verdict(core: ProofCore) -> ProofCore:
    return replace(core, verdict=Verdict.failed(FailureClass.MODIFIED))


def fail_attempt(house: House, workload_id: str = "w", rows: Sequence[Row] = BAD, *, opened: bool = True) -> Attempt:
    """Prove an attempt with the verdict FAIL, and end it as the Steward does."""
    attempt = house.proved(workload_id, rows, changed=with_fail_verdict, opened=opened)
    house.transact(lambda unit: attempts.end(unit, attempt.attempt_id, AttemptState.VERIFICATION_FAILED, reason="FAIL"))
    return attempt


def submit_override(
    house: House, attempt: Attempt, change: Callable[[BreakGlass], BreakGlass] = lambda override: override
) -> BreakGlass:
    """Submit operator-ruth's override of the attempt's FAIL; returns the override."""
    with house.notary.ledger.read() as unit:
        (record,) = proofs.list_by_attempt(unit, attempt.attempt_id)
        core = read_unchecked(statements.get(unit, record.proof_id).envelope, Proof).core
    override = change(
        BreakGlass(
            "operator-ruth",
            "known and explained in incident 4711",
            core.target.table,
            core.target.base_snapshot_id,
            record.proof_id,
            core.files.staged_hashes,
            fixed(f"glass {house.number()}", 16),
            house.scene.now,
            house.scene.now + HOUR,
        )
    )
    house.notary.overrides.submit(signed_override(override), house.scene.grant())
    return override


def prove_again(house: House, rows: Sequence[Row] = BAD, workload_id: str = "w") -> Attempt:
    """Prove the same rows as a new attempt, which is a FAIL again."""
    return house.proved(workload_id, rows, changed=with_fail_verdict, opened=False)


def publish(house: House, attempt: Attempt) -> PublicationResult:
    return validate_then_commit(house.proposal(attempt), house.gate())


def refusal_reason(house: House, attempt: Attempt, kind: type[PvdmError] = VerificationError) -> str:
    with pytest.raises(kind) as caught:
        publish(house, attempt)
    assert house.rows() == [1]
    return caught.value.reason


def test_a_waived_fail_publishes_exactly_its_bytes_and_the_receipt_says_so(house: House) -> None:
    override = submit_override(house, fail_attempt(house))
    done = publish(house, prove_again(house))
    assert house.rows() == [1, 666]
    assert done.shown.override_id is not None
    with house.notary.ledger.read() as unit:
        nonce = nonces.find(unit, override.nonce)
    assert nonce is not None
    assert (nonce.state, nonce.snapshot_id) == ("COMMITTED", str(done.shown.new_snapshot_id))


def test_without_an_override_a_fail_is_refused(house: House) -> None:
    fail_attempt(house)
    assert refusal_reason(house, prove_again(house)) == "verdict_not_pass"


def test_other_bytes_are_not_waived(house: House) -> None:
    submit_override(house, fail_attempt(house))
    assert refusal_reason(house, prove_again(house, [(667, 3, "Ulm")])) == "verdict_not_pass"


def test_an_expired_override_is_refused(house: House) -> None:
    first = fail_attempt(house)
    submit_override(house, first)
    attempt = prove_again(house)
    house.stand.time.pass_by(HOUR - 1)
    proposal = house.proposal(attempt)
    house.stand.time.pass_by(1)
    with pytest.raises(NotAllowedError) as caught:
        validate_then_commit(proposal, house.gate())
    assert (caught.value.reason, caught.value.details["check"]) == ("override_expired", 4)


def test_an_override_that_expires_before_the_transaction_publishes_nothing(house: House) -> None:
    submit_override(
        house, fail_attempt(house), lambda override: replace(override, expires_at=override.expires_at - HOUR // 2)
    )
    attempt = prove_again(house)
    with (
        fault.armed("gate.after_files", fault.Call(lambda: house.stand.time.pass_by(HOUR // 2))),
        pytest.raises(NotAllowedError) as caught,
    ):
        validate_then_commit(house.proposal(attempt), house.gate())
    assert (caught.value.reason, caught.value.check) == ("override_expired", 6)
    assert house.rows() == [1]


def test_an_override_can_be_used_once(house: House) -> None:
    submit_override(house, fail_attempt(house))
    attempt = prove_again(house)
    proposal = house.proposal(attempt)
    validate_then_commit(proposal, house.gate())
    with pytest.raises(NotAllowedError) as caught:
        validate_then_commit(proposal, house.gate())
    assert caught.value.reason == "override_replayed"
    assert house.rows() == [1, 666]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda core: replace(core, target=replace(core.target, base_snapshot_id=None)), "override_wrong_base"),
        (lambda core: replace(core, attempt=replace(core.attempt, chunk_id="other")), "override_wrong_chunk"),
    ],
)
def test_another_publication_of_the_same_bytes_is_not_waived(
    house: House, change: Callable[[ProofCore], ProofCore], code: str
) -> None:
    submit_override(house, fail_attempt(house))
    attempt = prove_again(house)
    proposal = house.proposal(attempt)
    part = proposal.parts[0]
    core = change(read_unchecked(part.proofs[0].envelope, Proof).core)
    assert part.waiver is not None
    override = read_unchecked(part.waiver.override.envelope, BreakGlass)
    before = read_unchecked(part.waiver.failed[0].envelope, Proof).core
    with pytest.raises(NotAllowedError) as caught:
        require_waived(override, before, core)
    assert caught.value.reason == code


def test_an_override_waives_no_other_check(house: House) -> None:
    submit_override(house, fail_attempt(house))
    attempt = prove_again(house)
    for path in file_at(attempt.prefix).rglob("*.parquet"):
        path.write_bytes(b"other")
    assert refusal_reason(house, attempt) == "published_bytes_changed"


def test_an_override_that_is_not_in_the_log_is_refused(house: House) -> None:
    submit_override(house, fail_attempt(house))
    proposal = house.proposal(prove_again(house))
    part = proposal.parts[0]
    assert part.waiver is not None
    unlogged = replace(part.waiver, override=replace(part.waiver.override, index=0))
    with pytest.raises(VerificationError) as caught:
        validate_then_commit(replace(proposal, parts=(replace(part, waiver=unlogged),)), house.gate())
    assert caught.value.reason == "statement_not_logged"
