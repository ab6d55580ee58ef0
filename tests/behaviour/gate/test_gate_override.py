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


def fail(core: ProofCore) -> ProofCore:
    return replace(core, verdict=Verdict.failed(FailureClass.MODIFIED))


def failed(house: House, workload_id: str = "w", rows: Sequence[Row] = BAD, *, opened: bool = True) -> Attempt:
    """An attempt whose verdict is FAIL, ended as the Steward ends it."""
    attempt = house.proved(workload_id, rows, changed=fail, opened=opened)
    house.transact(lambda unit: attempts.end(unit, attempt.attempt_id, AttemptState.VERIFICATION_FAILED, reason="FAIL"))
    return attempt


def waived(
    house: House, attempt: Attempt, change: Callable[[BreakGlass], BreakGlass] = lambda said: said
) -> BreakGlass:
    """Ruth's word about the attempt's FAIL, handed in."""
    with house.notary.ledger.read() as unit:
        (record,) = proofs.of_attempt(unit, attempt.attempt_id)
        core = read_unchecked(statements.get(unit, record.proof_id).envelope, Proof).core
    said = change(
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
    house.notary.overrides.submit(signed_override(said), house.scene.grant())
    return said


def again(house: House, rows: Sequence[Row] = BAD, workload_id: str = "w") -> Attempt:
    """The same rows brought back as a new attempt: a FAIL again."""
    return house.proved(workload_id, rows, changed=fail, opened=False)


def publish(house: House, attempt: Attempt) -> PublicationResult:
    return validate_then_commit(house.proposal(attempt), house.gate())


def refused(house: House, attempt: Attempt, kind: type[PvdmError] = VerificationError) -> str:
    with pytest.raises(kind) as caught:
        publish(house, attempt)
    assert house.rows() == [1]
    return caught.value.reason


def test_a_waived_fail_publishes_exactly_its_bytes_and_the_receipt_says_so(house: House) -> None:
    said = waived(house, failed(house))
    done = publish(house, again(house))
    assert house.rows() == [1, 666]
    assert done.shown.override_id is not None
    with house.notary.ledger.read() as unit:
        used = nonces.find(unit, said.nonce)
    assert used is not None
    assert (used.state, used.snapshot_id) == ("COMMITTED", str(done.shown.new_snapshot_id))


def test_without_an_override_the_fail_stands(house: House) -> None:
    failed(house)
    assert refused(house, again(house)) == "verdict_not_pass"


def test_other_bytes_are_not_waived(house: House) -> None:
    waived(house, failed(house))
    assert refused(house, again(house, [(667, 3, "Ulm")])) == "verdict_not_pass"


def test_an_override_that_ran_out_waives_nothing(house: House) -> None:
    first = failed(house)
    waived(house, first)
    attempt = again(house)
    house.stand.time.pass_by(HOUR - 1)
    proposal = house.proposal(attempt)
    house.stand.time.pass_by(1)
    with pytest.raises(NotAllowedError) as caught:
        validate_then_commit(proposal, house.gate())
    assert (caught.value.reason, caught.value.details["check"]) == ("override_expired", 4)


def test_an_override_opens_the_glass_once(house: House) -> None:
    waived(house, failed(house))
    attempt = again(house)
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
    waived(house, failed(house))
    attempt = again(house)
    proposal = house.proposal(attempt)
    part = proposal.parts[0]
    house_core = change(read_unchecked(part.proofs[0].envelope, Proof).core)
    assert part.waiver is not None
    said = read_unchecked(part.waiver.override.envelope, BreakGlass)
    before = read_unchecked(part.waiver.failed[0].envelope, Proof).core
    with pytest.raises(NotAllowedError) as caught:
        require_waived(said, before, house_core)
    assert caught.value.reason == code


def test_every_other_check_stands(house: House) -> None:
    waived(house, failed(house))
    attempt = again(house)
    for path in file_at(attempt.prefix).rglob("*.parquet"):
        path.write_bytes(b"other")
    assert refused(house, attempt) == "published_bytes_changed"


def test_an_override_is_relied_on_only_if_it_is_in_the_log(house: House) -> None:
    waived(house, failed(house))
    proposal = house.proposal(again(house))
    part = proposal.parts[0]
    assert part.waiver is not None
    hidden = replace(part.waiver, override=replace(part.waiver.override, index=0))
    with pytest.raises(VerificationError) as caught:
        validate_then_commit(replace(proposal, parts=(replace(part, waiver=hidden),)), house.gate())
    assert caught.value.reason == "statement_not_logged"
