"""What the Steward hands to auditors: everything about one table, in pages, and nothing about another."""

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
from pvdm.steward.record import audit as audit_desk
from pvdm.steward.record.audit import Audits
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.log.checkpoint import read_unverified
from tests.support.audit.crafted_history import Local, codes, standings
from tests.support.audit.published_history import NAME, Audited, gathered
from tests.support.gate.approvals import SALES, code_of, scene_at
from tests.support.ledger.databases import memory_folder
from tests.support.steward.notary import LOG_ORIGIN
from tests.support.stores.places import file_at, stores, where

PLACE = (SALES, NAME)


@contextlib.contextmanager
def opened() -> Iterator[Audited]:
    """The protected table `sales.sold` with two publications."""
    with memory_folder() as folder, scene_at(folder) as scene:
        made = Audited(scene).open()
        made.publish("first")
        made.publish("second")
        yield made


@pytest.fixture(scope="module")
def audited() -> Iterator[Audited]:
    """One for all tests that only read it."""
    with opened() as made:
        yield made


@pytest.fixture
def own() -> Iterator[Audited]:
    """One for a test that changes it."""
    with opened() as made:
        yield made


def desk_of(audited: Audited) -> Audits:
    return audited.scene.notary.audits


def auditor(audited: Audited, domain: str = "sales") -> Grant:
    return audited.scene.grant(Role.AUDITOR, domain)


def whole(audited: Audited, *, page: int = 100) -> Evidence:
    return gathered(audited.scene.notary, auditor(audited), NAME, page=page)


def test_what_is_handed_out_in_pages_holds(audited: Audited) -> None:
    evidence = whole(audited, page=1)
    judge = AuditTrust(audited.scene.notary.trust.current(), LOG_ORIGIN, audited.scene.now)
    report = audit(evidence, Local(), judge)
    assert codes(report) == set()
    assert standings(report) == [Standing.OK, Standing.OK]


def test_a_page_holds_so_many_bytes_and_at_least_one_statement(
    audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = whole(audited)
    monkeypatch.setattr(audit_desk, "AUDIT_PAGE_MAX_BYTES", 1)
    desk, grant = desk_of(audited), auditor(audited)
    size = read_unverified(before.checkpoint).checkpoint.size
    assert len(desk.receipts(grant, *PLACE, size=size, after=None, count=100)) == 1


def test_more_approvals_than_an_audit_accepts_are_an_error_and_not_cut(
    audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = len(whole(audited).approvals)
    monkeypatch.setattr(protections, "AUDIT_APPROVALS_MAX", count - 1)
    assert code_of(lambda: whole(audited)) == "audit_too_large"
    monkeypatch.setattr(protections, "AUDIT_APPROVALS_MAX", count)
    assert len(whole(audited).approvals) == count


def test_an_audit_that_comes_between_commit_and_receipt_waits_for_it(
    own: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.publish("third", witnessed=False)
    waited: list[float] = []
    monkeypatch.setattr("pvdm.steward.record.audit.time.sleep", waited.append)
    monkeypatch.setattr(audit_desk, "_RECEIPT_WAIT_SECONDS", 1.0)
    desk_of(own).evidence(auditor(own), *PLACE)
    assert waited


def test_a_list_and_its_manifests_are_given_and_nothing_else(audited: Audited) -> None:
    desk, grant = desk_of(audited), auditor(audited)
    head = audited.state.metadata.current_snapshot
    assert head is not None
    assert head.manifest_list is not None
    data = desk.file(grant, *PLACE, head.snapshot_id, None)
    assert data == file_at(head.manifest_list).read_bytes()
    listed = next(file_at(head.manifest_list).parent.glob(f"{head.snapshot_id}-m*.avro"))
    assert desk.file(grant, *PLACE, head.snapshot_id, where(listed)) == listed.read_bytes()
    other = where(listed.parent / "other.avro")
    assert code_of(lambda: desk.file(grant, *PLACE, head.snapshot_id, other), InputError) == "audit_manifest_unknown"


def test_a_snapshot_that_main_never_showed_is_not_read(own: Audited) -> None:
    own.scene.stage(NAME, "stage")
    staged = own.state.metadata.refs["stage"].snapshot_id
    desk, grant = desk_of(own), auditor(own)
    assert code_of(lambda: desk.file(grant, *PLACE, staged, None), InputError) == "audit_snapshot_unknown"


def test_a_domains_auditor_is_read_no_file_outside_the_tables_places(audited: Audited) -> None:
    """A table that an operator brought in may name any file, another domain's too."""
    desk = Audits(
        audited.scene.notary.ledger,
        lambda _: None,
        audited.scene.notary.catalog,
        Path("/nowhere"),
        stores(),
    )
    head = audited.state.metadata.current_snapshot
    assert head is not None
    own, every = auditor(audited), auditor(audited, "*")
    refused = code_of(lambda: desk.file(own, *PLACE, head.snapshot_id, None), NotAllowedError)
    assert refused == "location_outside"
    assert desk.file(every, *PLACE, head.snapshot_id, None)


def test_no_statement_about_another_table_comes_out_by_its_id(own: Audited) -> None:
    stranger = own.scene.stand.proved("stranger")
    desk, grant = desk_of(own), auditor(own)
    size = own.scene.notary.log.size()
    receipt = next(each for each in whole(own).statements if each.kind is StatementKind.RECEIPT)
    refused = {
        code_of(partial(desk.statements, grant, *PLACE, [statement_id], size=size), InputError)
        for statement_id in (stranger.statement_id, _id_of(receipt.envelope))
    }
    assert refused == {"audit_statement_unknown"}


@pytest.mark.parametrize("size", [0, 10_000])
def test_a_log_of_that_size_must_have_been(audited: Audited, size: int) -> None:
    desk, grant = desk_of(audited), auditor(audited)
    refused = code_of(lambda: desk.receipts(grant, *PLACE, size=size, after=None, count=1), InputError)
    assert refused == "log_sizes_invalid"


def test_another_domain_sees_nothing(audited: Audited) -> None:
    grant = auditor(audited, "risk")
    assert code_of(lambda: desk_of(audited).evidence(grant, *PLACE))


def _id_of(envelope: bytes) -> str:
    return parse_envelope(envelope).payload_sha256
