"""Overrides (break-glass): the Steward accepts each once and shows it with its proof, and refuses every misuse."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from pvdm.errors import NotAllowedError, PvdmError
from pvdm.ledger.work import nonces
from pvdm.model import canonical_json
from pvdm.model.role import Role
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.verdict import Outcome
from pvdm.steward.record.proofs import RecordedProof
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.verify import sign_statement
from tests.support.ledger.databases import memory_folder
from tests.support.steward.logged import count_overrides, entry_of
from tests.support.steward.notary import Stand, core_of, override_of, signed_override, stand_at
from tools.proof_kit import SECOND, fixed


@dataclass(frozen=True)
class Case:
    """A FAIL proof of domain `sales` and Ruth's override of it."""

    stand: Stand
    core: ProofCore
    recorded: RecordedProof
    override: BreakGlass

    def submit(self, override: BreakGlass | None = None, *, signer: str = "operator-ruth", domain: str = "*") -> Any:
        return self.submit_envelope(signed_override(override or self.override, signer), domain=domain)

    def submit_envelope(self, envelope: bytes, *, domain: str = "*") -> Any:
        return self.stand.notary.overrides.submit(envelope, self.stand.grant(domain=domain))

    def use_up(self) -> None:
        """Use the nonce up, as the gate does when it publishes under the override."""
        at = self.stand.notary.clock.now_micros()
        work: Callable[[Any], object] = lambda unit: nonces.commit(unit, self.override.nonce, snapshot_id="9")  # noqa: E731
        self.stand.notary.ledger.transact(work, at_micros=at)


@pytest.fixture
def case() -> Iterator[Case]:
    with memory_folder() as folder, stand_at(folder) as stand:
        recorded = stand.proved(passed=False)
        core = core_of("one")
        yield Case(stand, core, recorded, override_of(recorded, core, stand.time.wall))


def reason_of(call: Callable[[], object], kind: type[PvdmError] = PvdmError) -> str:
    with pytest.raises(kind) as caught:
        call()
    return caught.value.reason


def refusal_of(case: Case, call: Callable[[], object]) -> str:
    """The reason of the refusal, after which nothing is stored or logged."""
    before = case.stand.notary.log.size()
    reason = reason_of(call, NotAllowedError)
    assert (count_overrides(case.stand.notary), case.stand.notary.log.size()) == (0, before)
    return reason


def test_an_accepted_override_is_shown_with_all_its_fields(case: Case) -> None:
    view = case.submit()
    override = case.override
    assert (view.operator, view.reason, view.table, view.table_uuid) == (
        override.operator,
        override.reason,
        override.table.name,
        override.table.uuid,
    )
    assert (view.fail_proof_id, view.nonce, view.state) == (case.recorded.statement_id, override.nonce, "RESERVED")
    assert (view.issued_at, view.expires_at) == (override.issued_at, override.expires_at)
    assert view.log_index == case.stand.notary.log.size() - 1


def test_an_override_is_an_entry_of_the_log(case: Case) -> None:
    view = case.submit()
    assert json.loads(entry_of(case.stand.notary, view.log_index))["kind"] == "break-glass"


def test_an_override_submitted_again_has_the_same_view(case: Case) -> None:
    envelope = signed_override(case.override)
    first = case.submit_envelope(envelope)
    size = case.stand.notary.log.size()
    assert (case.submit_envelope(envelope), case.stand.notary.log.size()) == (first, size)
    assert count_overrides(case.stand.notary) == 1


def test_an_override_submitted_several_times_at_once_is_stored_once(case: Case) -> None:
    envelope = signed_override(case.override)
    grant = case.stand.grant()
    barrier = threading.Barrier(4)
    answers: list[object] = []

    def submit() -> None:
        barrier.wait()
        try:
            answers.append(case.stand.notary.overrides.submit(envelope, grant))
        except PvdmError as error:
            answers.append(error.reason)

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [answers[0]] * 4
    assert count_overrides(case.stand.notary) == 1


def test_an_override_that_was_used_is_not_accepted_again(case: Case) -> None:
    envelope = signed_override(case.override)
    case.submit_envelope(envelope)
    case.use_up()
    assert reason_of(lambda: case.submit_envelope(envelope), NotAllowedError) == "override_replayed"


def test_a_used_override_is_shown_as_used(case: Case) -> None:
    case.submit()
    case.use_up()
    (view,) = case.stand.notary.overrides.list_overrides(case.stand.grant())
    assert view.state == "COMMITTED"


def test_another_override_under_the_same_nonce_is_refused(case: Case) -> None:
    case.submit()
    other = replace(case.override, reason="another reason")
    assert reason_of(lambda: case.submit(other), NotAllowedError) == "override_replayed"
    assert count_overrides(case.stand.notary) == 1


def test_a_nonce_that_was_used_is_refused_before_anything_is_written(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.submit()
    monkeypatch.delattr(case.stand.notary.recorder.__class__, "record")
    assert (
        reason_of(lambda: case.submit(replace(case.override, reason="other")), NotAllowedError) == "override_replayed"
    )


def test_a_nonce_that_the_first_check_misses_is_refused_by_the_ledger(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another call may use the nonce between the first check and the write."""
    case.submit()
    monkeypatch.setattr(case.stand.notary.overrides, "_is_used", lambda nonce: nonce is None)
    assert (
        reason_of(lambda: case.submit(replace(case.override, reason="other")), NotAllowedError) == "override_replayed"
    )
    assert count_overrides(case.stand.notary) == 1


def test_an_override_under_the_nonce_of_an_attempt_is_refused(case: Case) -> None:
    other = replace(case.override, nonce=case.core.attempt.nonce)
    assert refusal_of(case, lambda: case.submit(other)) == "override_replayed"


def unsigned_copy(override: BreakGlass) -> bytes:
    return canonical_json.dump({**json.loads(signed_override(override)), "signatures": []})


def test_an_unsigned_override_is_refused(case: Case) -> None:
    assert refusal_of(case, lambda: case.submit_envelope(unsigned_copy(case.override))) == "override_unsigned"


def test_an_unsigned_copy_of_an_accepted_override_is_refused(case: Case) -> None:
    case.submit()
    assert reason_of(lambda: case.submit_envelope(unsigned_copy(case.override)), NotAllowedError) == "override_unsigned"


def test_a_copy_of_an_accepted_override_that_the_steward_signed_is_refused(case: Case) -> None:
    case.submit()
    signer = case.stand.notary.keys.signer(KeyRole.SIGNING, 1)
    data = sign_statement(case.override, signer).to_bytes()
    assert reason_of(lambda: case.submit_envelope(data), NotAllowedError) == "override_signed_by_steward"


@pytest.mark.parametrize("role", [KeyRole.SIGNING, KeyRole.LOG], ids=lambda role: role.value)
def test_an_override_that_the_steward_signed_is_refused(case: Case, role: KeyRole) -> None:
    envelope = sign_statement(case.override, case.stand.notary.keys.signer(role, 1)).to_bytes()
    assert refusal_of(case, lambda: case.submit_envelope(envelope)) == "override_signed_by_steward"


def test_an_override_by_a_key_of_another_role_is_refused(case: Case) -> None:
    assert refusal_of(case, lambda: case.submit(signer="operator-tom")) == "key_role_wrong"


def test_an_override_by_an_unknown_key_is_refused(case: Case) -> None:
    assert refusal_of(case, lambda: case.submit(signer="rogue")) == "key_unknown"


def test_an_override_in_another_operators_name_is_refused(case: Case) -> None:
    other = replace(case.override, operator="operator-tom")
    assert refusal_of(case, lambda: case.submit(other)) == "signer_name_wrong"


def test_a_changed_override_is_refused(case: Case) -> None:
    good, other = (
        json.loads(signed_override(override)) for override in (case.override, replace(case.override, reason="other"))
    )
    data = canonical_json.dump({**good, "payload": other["payload"]})
    assert refusal_of(case, lambda: case.submit_envelope(data)) == "signature_invalid"


def test_an_override_for_another_table_is_refused(case: Case) -> None:
    table = replace(case.override.table, uuid="00000000-0000-4000-8000-000000000000")
    assert refusal_of(case, lambda: case.submit(replace(case.override, table=table))) == "override_wrong_table"


def test_an_override_for_another_base_is_refused(case: Case) -> None:
    assert refusal_of(case, lambda: case.submit(replace(case.override, base_snapshot_id=7))) == "override_wrong_base"


def test_an_override_for_other_files_is_refused(case: Case) -> None:
    other = replace(case.override, file_hashes=case.override.file_hashes[:-1])
    assert refusal_of(case, lambda: case.submit(other)) == "override_wrong_files"


def test_an_override_of_a_pass_is_refused(case: Case) -> None:
    passed = case.stand.proved("two")
    other = replace(case.override, fail_proof_id=passed.statement_id)
    assert refusal_of(case, lambda: case.submit(other)) == "override_of_pass"


def test_an_override_of_an_unknown_proof_is_refused(case: Case) -> None:
    other = replace(case.override, fail_proof_id=fixed("no proof"))
    assert reason_of(lambda: case.submit(other)) == "proof_unknown"
    assert count_overrides(case.stand.notary) == 0


def test_an_override_that_has_expired_is_refused(case: Case) -> None:
    case.stand.time.pass_by(3_600 * SECOND)
    assert refusal_of(case, case.submit) == "override_expired"


def test_an_unused_override_that_has_expired_does_not_keep_a_new_one_out(case: Case) -> None:
    case.submit()
    new = replace(case.override, nonce=fixed("new", 16))
    assert reason_of(lambda: case.submit(new), NotAllowedError) == "override_exists"
    case.stand.time.pass_by(3_600 * SECOND)
    case.submit(replace(new, issued_at=case.stand.time.wall, expires_at=case.stand.time.wall + SECOND))
    assert count_overrides(case.stand.notary) == 2


def test_an_override_from_the_future_is_refused(case: Case) -> None:
    later = case.stand.time.wall + 600 * SECOND
    other = replace(case.override, issued_at=later, expires_at=later + SECOND)
    assert refusal_of(case, lambda: case.submit(other)) == "statement_from_future"


def test_an_override_from_another_domain_is_refused(case: Case) -> None:
    assert refusal_of(case, lambda: case.submit(domain="risk")) == "domain_wrong"


def test_an_accepted_override_that_another_domain_submits_is_refused(case: Case) -> None:
    envelope = signed_override(case.override)
    case.submit_envelope(envelope, domain="sales")
    assert reason_of(lambda: case.submit_envelope(envelope, domain="risk"), NotAllowedError) == "domain_wrong"


def test_a_proof_that_was_overridden_shows_its_override_wherever_it_is_listed(case: Case) -> None:
    other = case.stand.proved("two", passed=False)
    override_id = case.submit().override_id
    grant = case.stand.grant(Role.CONSUMER, "sales")
    proofs = case.stand.notary.proofs
    flagged = {view.proof_id: view.override_id for view in proofs.list_proofs(grant)}
    assert flagged == {case.recorded.statement_id: override_id, other.statement_id: None}
    assert proofs.get(case.recorded.statement_id, grant).override_id == override_id


def test_overrides_are_counted_and_listed_for_their_domain(case: Case) -> None:
    notary = case.stand.notary
    assert (count_overrides(notary), notary.overrides.list_overrides(case.stand.grant())) == (0, [])
    view = case.submit()
    list_overrides = case.stand.notary.overrides.list_overrides
    assert count_overrides(case.stand.notary) == 1
    assert list_overrides(case.stand.grant(domain="sales")) == list_overrides(case.stand.grant()) == [view]
    assert list_overrides(case.stand.grant(domain="risk")) == []


def test_one_override_is_shown_to_its_domain_only(case: Case) -> None:
    override_id = case.submit().override_id
    get = case.stand.notary.overrides.get
    assert get(override_id, case.stand.grant(domain="sales")).override_id == override_id
    assert reason_of(lambda: get(override_id, case.stand.grant(domain="risk"))) == "domain_wrong"
    assert reason_of(lambda: get(fixed("none"), case.stand.grant())) == "override_unknown"


def test_an_override_does_not_change_its_proof(case: Case) -> None:
    before = case.stand.notary.proofs.envelope(case.recorded.statement_id, case.stand.grant())
    case.submit()
    view = case.stand.notary.proofs.get(case.recorded.statement_id, case.stand.grant())
    assert (view.verdict, case.stand.notary.proofs.envelope(view.proof_id, case.stand.grant())) == (
        Outcome.FAIL,
        before,
    )
