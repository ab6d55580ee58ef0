"""The evidence that the Steward gives to auditors: all of one table, in pages, and nothing of other tables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pvdm.errors import InputError, NotAllowedError
from pvdm.ledger.record import protections
from pvdm.ledger.record.tokens import Grant
from pvdm.metadata.audit.audit import AuditTrust, audit
from pvdm.metadata.audit.evidence import Evidence
from pvdm.metadata.audit.report import Standing
from pvdm.model.role import Role
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.migration import ProtectionAction
from pvdm.steward.record import audit as audit_desk
from pvdm.steward.record.audit import Audits
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.log.checkpoint import read_unverified
from tests.support.audit.crafted_history import Local, codes, standings
from tests.support.audit.published_history import NAME, Audited, gather_evidence
from tests.support.gate.approvals import SALES, reason_of, scene_at
from tests.support.ledger.databases import memory_folder
from tests.support.steward.notary import LOG_ORIGIN
from tests.support.stores.places import file_at, location_of, stores

TABLE = (SALES, NAME)


@contextlib.contextmanager
def table_with_two_publications() -> Iterator[Audited]:
    """The protected table `sales.sold` with two publications."""
    with memory_folder() as folder, scene_at(folder) as scene:
        audited = Audited(scene).open()
        audited.publish("first")
        audited.publish("second")
        yield audited


@pytest.fixture(scope="module")
def audited() -> Iterator[Audited]:
    """One table for all tests that only read it."""
    with table_with_two_publications() as audited:
        yield audited


@pytest.fixture
def own_audited() -> Iterator[Audited]:
    """A table of its own for a test that changes it."""
    with table_with_two_publications() as audited:
        yield audited


def desk_of(audited: Audited) -> Audits:
    return audited.scene.notary.audits


def auditor(audited: Audited, domain: str = "sales") -> Grant:
    return audited.scene.grant(Role.AUDITOR, domain)


def all_evidence(audited: Audited, *, page: int = 100) -> Evidence:
    return gather_evidence(audited.scene.notary, auditor(audited), NAME, page=page)


def test_evidence_that_is_read_in_pages_passes_an_audit(audited: Audited) -> None:
    evidence = all_evidence(audited, page=1)
    trust = AuditTrust(audited.scene.notary.trust.current(), LOG_ORIGIN, audited.scene.now)
    report = audit(evidence, Local(), trust)
    assert codes(report) == set()
    assert standings(report) == [Standing.OK, Standing.OK]


def test_a_page_ends_at_its_byte_limit_but_has_at_least_one_statement(
    audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = all_evidence(audited)
    monkeypatch.setattr(audit_desk, "AUDIT_PAGE_MAX_BYTES", 1)
    desk, grant = desk_of(audited), auditor(audited)
    size = read_unverified(before.checkpoint).checkpoint.size
    assert len(desk.read_receipts(grant, *TABLE, size=size, after=None, count=100)) == 1


def test_a_statement_that_was_logged_later_does_not_use_up_the_page(
    audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    proofs = [each for each in all_evidence(audited).statements if each.kind is StatementKind.PROOF]
    earlier, later = sorted(proofs, key=lambda each: each.index)[:2]
    monkeypatch.setattr(audit_desk, "AUDIT_PAGE_MAX_BYTES", 1)
    wanted = [_id_of(later.envelope), _id_of(earlier.envelope)]
    found = desk_of(audited).read_statements(auditor(audited), *TABLE, wanted, size=later.index)
    assert [each.index for each in found] == [earlier.index]


def test_more_approvals_than_an_audit_accepts_are_an_error_and_not_cut(
    audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, grant = desk_of(audited), auditor(audited)
    count = len(desk.read_evidence(grant, *TABLE).statements)
    monkeypatch.setattr(protections, "AUDIT_APPROVALS_MAX", count - 1)
    assert reason_of(lambda: desk.read_evidence(grant, *TABLE)) == "audit_too_large"
    monkeypatch.setattr(protections, "AUDIT_APPROVALS_MAX", count)
    assert len(desk.read_evidence(grant, *TABLE).statements) == count


def test_approvals_that_do_not_fit_into_one_page_are_an_error_and_not_cut(
    own_audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_audited.scene.protect(own_audited.scene.protection(NAME, action=ProtectionAction.UNPROTECT))
    monkeypatch.setattr(audit_desk, "AUDIT_PAGE_MAX_BYTES", 1)
    assert reason_of(lambda: desk_of(own_audited).read_evidence(auditor(own_audited), *TABLE)) == "audit_too_large"


def test_an_audit_between_commit_and_receipt_waits_for_the_receipt(
    own_audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_audited.publish("third", witnessed=False)
    waited: list[float] = []
    monkeypatch.setattr("pvdm.steward.record.audit.time.sleep", waited.append)
    monkeypatch.setattr(audit_desk, "_RECEIPT_WAIT_SECONDS", 1.0)
    desk_of(own_audited).read_evidence(auditor(own_audited), *TABLE)
    assert waited


def test_a_manifest_list_and_its_manifests_can_be_read_and_no_other_file(audited: Audited) -> None:
    desk, grant = desk_of(audited), auditor(audited)
    head = audited.state.metadata.current_snapshot
    assert head is not None
    assert head.manifest_list is not None
    data = desk.read_file(grant, *TABLE, head.snapshot_id, None)
    assert data == file_at(head.manifest_list).read_bytes()
    listed = next(file_at(head.manifest_list).parent.glob(f"{head.snapshot_id}-m*.avro"))
    assert desk.read_file(grant, *TABLE, head.snapshot_id, location_of(listed)) == listed.read_bytes()
    other = location_of(listed.parent / "other.avro")
    refused = reason_of(lambda: desk.read_file(grant, *TABLE, head.snapshot_id, other), InputError)
    assert refused == "audit_manifest_unknown"


def test_a_snapshot_that_main_never_had_cannot_be_read(own_audited: Audited) -> None:
    own_audited.scene.stage(NAME, "stage")
    staged = own_audited.state.metadata.refs["stage"].snapshot_id
    desk, grant = desk_of(own_audited), auditor(own_audited)
    assert reason_of(lambda: desk.read_file(grant, *TABLE, staged, None), InputError) == "audit_snapshot_unknown"


def test_an_auditor_of_one_domain_cannot_read_files_outside_the_tables_folders(audited: Audited) -> None:
    """A table that an operator registered may name any file, also one of another domain."""
    desk = Audits(
        audited.scene.notary.ledger,
        audited.scene.notary.clock,
        lambda _: None,
        audited.scene.notary.catalog,
        Path("/nowhere"),
        stores(),
    )
    head = audited.state.metadata.current_snapshot
    assert head is not None
    of_one_domain, of_all_domains = auditor(audited), auditor(audited, "*")
    refused = reason_of(lambda: desk.read_file(of_one_domain, *TABLE, head.snapshot_id, None), NotAllowedError)
    assert refused == "location_outside"
    assert desk.read_file(of_all_domains, *TABLE, head.snapshot_id, None)


def test_by_id_only_proofs_and_overrides_of_the_table_can_be_read(own_audited: Audited) -> None:
    other_proof = own_audited.scene.stand.proved("stranger")
    desk, grant = desk_of(own_audited), auditor(own_audited)
    size = own_audited.scene.notary.log.size()
    receipt = next(each for each in all_evidence(own_audited).statements if each.kind is StatementKind.RECEIPT)
    refused = {
        reason_of(partial(desk.read_statements, grant, *TABLE, [statement_id], size=size), InputError)
        for statement_id in (other_proof.statement_id, _id_of(receipt.envelope))
    }
    assert refused == {"audit_statement_unknown"}


@pytest.mark.parametrize("size", [0, 10_000])
def test_receipts_for_log_size_0_or_more_than_the_log_has_are_refused(audited: Audited, size: int) -> None:
    desk, grant = desk_of(audited), auditor(audited)
    refused = reason_of(lambda: desk.read_receipts(grant, *TABLE, size=size, after=None, count=1), InputError)
    assert refused == "log_sizes_invalid"


def test_an_auditor_of_another_domain_gets_no_evidence(audited: Audited) -> None:
    grant = auditor(audited, "risk")
    assert reason_of(lambda: desk_of(audited).read_evidence(grant, *TABLE)) == "domain_wrong"


def _id_of(envelope: bytes) -> str:
    return parse_envelope(envelope).payload_sha256
