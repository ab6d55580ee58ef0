"""Break-glass at the Steward: taken once, shown loudly; each way to misuse it is refused with a code of its own."""

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

    def submit(self, said: BreakGlass | None = None, *, signer: str = "operator-ruth", domain: str = "*") -> Any:
        return self.hand_in(signed_override(said or self.override, signer), domain=domain)

    def hand_in(self, envelope: bytes, *, domain: str = "*") -> Any:
        return self.stand.notary.overrides.submit(envelope, self.stand.grant(domain=domain))

    def use(self) -> None:
        """What the gate does when it publishes under the override."""
        at = self.stand.notary.clock.now_micros()
        work: Callable[[Any], object] = lambda unit: nonces.commit(unit, self.override.nonce, snapshot_id="9")  # noqa: E731
        self.stand.notary.ledger.transact(work, at_micros=at)


@pytest.fixture
def case() -> Iterator[Case]:
    with memory_folder() as folder, stand_at(folder) as stand:
        recorded = stand.proved(passed=False)
        core = core_of("one")
        yield Case(stand, core, recorded, override_of(recorded, core, stand.time.wall))


def code_of(call: Callable[[], object], kind: type[PvdmError] = PvdmError) -> str:
    with pytest.raises(kind) as caught:
        call()
    return caught.value.reason


def refused(case: Case, call: Callable[[], object]) -> str:
    """The code, once it is clear that nothing was kept."""
    before = case.stand.notary.log.size()
    code = code_of(call, NotAllowedError)
    assert (count_overrides(case.stand.notary), case.stand.notary.log.size()) == (0, before)
    return code


def test_an_override_is_taken_and_shown_with_all_it_says(case: Case) -> None:
    view = case.submit()
    said = case.override
    assert (view.operator, view.reason, view.table, view.table_uuid) == (
        said.operator,
        said.reason,
        said.table.name,
        said.table.uuid,
    )
    assert (view.fail_proof_id, view.nonce, view.state) == (case.recorded.statement_id, said.nonce, "RESERVED")
    assert (view.issued_at, view.expires_at) == (said.issued_at, said.expires_at)
    assert view.log_index == case.stand.notary.log.size() - 1


def test_an_override_is_an_entry_of_the_log(case: Case) -> None:
    view = case.submit()
    assert json.loads(entry_of(case.stand.notary, view.log_index))["kind"] == "break-glass"


def test_the_same_bytes_again_give_the_same_view(case: Case) -> None:
    envelope = signed_override(case.override)
    first = case.hand_in(envelope)
    size = case.stand.notary.log.size()
    assert (case.hand_in(envelope), case.stand.notary.log.size()) == (first, size)
    assert count_overrides(case.stand.notary) == 1


def test_of_the_same_bytes_several_times_at_once_all_get_one_view(case: Case) -> None:
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


def test_an_override_that_was_used_is_not_taken_again(case: Case) -> None:
    envelope = signed_override(case.override)
    case.hand_in(envelope)
    case.use()
    assert code_of(lambda: case.hand_in(envelope), NotAllowedError) == "override_replayed"


def test_a_used_override_is_shown_as_used(case: Case) -> None:
    case.submit()
    case.use()
    (view,) = case.stand.notary.overrides.listed(case.stand.grant())
    assert view.state == "COMMITTED"


def test_another_override_under_the_same_nonce_is_refused(case: Case) -> None:
    case.submit()
    other = replace(case.override, reason="another reason")
    assert code_of(lambda: case.submit(other), NotAllowedError) == "override_replayed"
    assert count_overrides(case.stand.notary) == 1


def test_a_nonce_that_was_used_is_found_before_anything_is_written(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.submit()
    monkeypatch.delattr(case.stand.notary.recorder.__class__, "record")
    assert code_of(lambda: case.submit(replace(case.override, reason="other")), NotAllowedError) == "override_replayed"


def test_the_ledger_decides_about_a_nonce(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else may use it after the look and before the write."""
    case.submit()
    monkeypatch.setattr(case.stand.notary.overrides, "_is_used", lambda nonce: nonce is None)
    assert code_of(lambda: case.submit(replace(case.override, reason="other")), NotAllowedError) == "override_replayed"
    assert count_overrides(case.stand.notary) == 1


def test_an_override_under_the_nonce_of_an_attempt_is_refused(case: Case) -> None:
    other = replace(case.override, nonce=case.core.attempt.nonce)
    assert refused(case, lambda: case.submit(other)) == "override_replayed"


def unsigned(said: BreakGlass) -> bytes:
    return canonical_json.dump({**json.loads(signed_override(said)), "signatures": []})


def test_an_unsigned_override_is_refused(case: Case) -> None:
    assert refused(case, lambda: case.hand_in(unsigned(case.override))) == "override_unsigned"


def test_an_unsigned_copy_of_one_that_was_taken_is_refused_as_well(case: Case) -> None:
    case.submit()
    assert code_of(lambda: case.hand_in(unsigned(case.override)), NotAllowedError) == "override_unsigned"


def test_a_copy_of_one_that_was_taken_in_the_stewards_own_hand_is_refused(case: Case) -> None:
    case.submit()
    signer = case.stand.notary.keys.signer(KeyRole.SIGNING, 1)
    data = sign_statement(case.override, signer).to_bytes()
    assert code_of(lambda: case.hand_in(data), NotAllowedError) == "override_signed_by_steward"


@pytest.mark.parametrize("role", [KeyRole.SIGNING, KeyRole.LOG], ids=lambda role: role.value)
def test_the_steward_does_not_override_its_own_verdict(case: Case, role: KeyRole) -> None:
    envelope = sign_statement(case.override, case.stand.notary.keys.signer(role, 1)).to_bytes()
    assert refused(case, lambda: case.hand_in(envelope)) == "override_signed_by_steward"


def test_an_override_by_a_key_of_another_role_is_refused(case: Case) -> None:
    assert refused(case, lambda: case.submit(signer="operator-tom")) == "key_role_wrong"


def test_an_override_by_an_unknown_key_is_refused(case: Case) -> None:
    assert refused(case, lambda: case.submit(signer="rogue")) == "key_unknown"


def test_an_override_in_another_operators_name_is_refused(case: Case) -> None:
    other = replace(case.override, operator="operator-tom")
    assert refused(case, lambda: case.submit(other)) == "signer_name_wrong"


def test_a_changed_override_is_refused(case: Case) -> None:
    good, other = (
        json.loads(signed_override(said)) for said in (case.override, replace(case.override, reason="other"))
    )
    data = canonical_json.dump({**good, "payload": other["payload"]})
    assert refused(case, lambda: case.hand_in(data)) == "signature_invalid"


def test_an_override_for_another_table_is_refused(case: Case) -> None:
    table = replace(case.override.table, uuid="00000000-0000-4000-8000-000000000000")
    assert refused(case, lambda: case.submit(replace(case.override, table=table))) == "override_wrong_table"


def test_an_override_for_another_base_is_refused(case: Case) -> None:
    assert refused(case, lambda: case.submit(replace(case.override, base_snapshot_id=7))) == "override_wrong_base"


def test_an_override_for_other_files_is_refused(case: Case) -> None:
    other = replace(case.override, file_hashes=case.override.file_hashes[:-1])
    assert refused(case, lambda: case.submit(other)) == "override_wrong_files"


def test_an_override_of_a_pass_is_refused(case: Case) -> None:
    passed = case.stand.proved("two")
    other = replace(case.override, fail_proof_id=passed.statement_id)
    assert refused(case, lambda: case.submit(other)) == "override_of_pass"


def test_an_override_of_an_unknown_proof_is_refused(case: Case) -> None:
    other = replace(case.override, fail_proof_id=fixed("no proof"))
    assert code_of(lambda: case.submit(other)) == "proof_unknown"
    assert count_overrides(case.stand.notary) == 0


def test_an_override_that_has_expired_is_refused(case: Case) -> None:
    case.stand.time.pass_by(3_600 * SECOND)
    assert refused(case, case.submit) == "override_expired"


def test_an_override_from_the_future_is_refused(case: Case) -> None:
    later = case.stand.time.wall + 600 * SECOND
    other = replace(case.override, issued_at=later, expires_at=later + SECOND)
    assert refused(case, lambda: case.submit(other)) == "statement_from_future"


def test_an_override_from_another_domain_is_refused(case: Case) -> None:
    assert refused(case, lambda: case.submit(domain="risk")) == "domain_wrong"


def test_an_override_that_was_taken_is_not_shown_to_another_domain_that_sends_it(case: Case) -> None:
    envelope = signed_override(case.override)
    case.hand_in(envelope, domain="sales")
    assert code_of(lambda: case.hand_in(envelope, domain="risk"), NotAllowedError) == "domain_wrong"


def test_a_proof_that_was_overridden_says_so_wherever_it_is_listed(case: Case) -> None:
    other = case.stand.proved("two", passed=False)
    override_id = case.submit().override_id
    grant = case.stand.grant(Role.CONSUMER, "sales")
    proofs = case.stand.notary.proofs
    flagged = {view.proof_id: view.override_id for view in proofs.listed(grant)}
    assert flagged == {case.recorded.statement_id: override_id, other.statement_id: None}
    assert proofs.get(case.recorded.statement_id, grant).override_id == override_id


def test_overrides_are_counted_and_listed_for_their_domain(case: Case) -> None:
    assert (count_overrides(case.stand.notary), case.stand.notary.overrides.listed(case.stand.grant())) == (0, [])
    view = case.submit()
    listed = case.stand.notary.overrides.listed
    assert count_overrides(case.stand.notary) == 1
    assert listed(case.stand.grant(domain="sales")) == listed(case.stand.grant()) == [view]
    assert listed(case.stand.grant(domain="risk")) == []


def test_one_override_is_shown_to_its_domain_only(case: Case) -> None:
    override_id = case.submit().override_id
    get = case.stand.notary.overrides.get
    assert get(override_id, case.stand.grant(domain="sales")).override_id == override_id
    assert code_of(lambda: get(override_id, case.stand.grant(domain="risk"))) == "domain_wrong"
    assert code_of(lambda: get(fixed("none"), case.stand.grant())) == "override_unknown"


def test_an_override_waives_nothing_of_the_proof_itself(case: Case) -> None:
    before = case.stand.notary.proofs.envelope(case.recorded.statement_id, case.stand.grant())
    case.submit()
    view = case.stand.notary.proofs.get(case.recorded.statement_id, case.stand.grant())
    assert (view.verdict, case.stand.notary.proofs.envelope(view.proof_id, case.stand.grant())) == (
        Outcome.FAIL,
        before,
    )
