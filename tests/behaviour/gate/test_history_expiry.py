"""Publications expire old snapshots of `main`: which ones must stay, and what an audit finds afterwards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.catalog.commit import Change
from pvdm.errors import StateUnknownError
from pvdm.lake.next_snapshot import SnapshotChange, next_snapshot
from pvdm.lake.vault import VaultKind
from pvdm.ledger.record import receipts
from pvdm.ledger.work.attempts import Attempt
from pvdm.metadata.audit.audit import AuditTrust, audit
from pvdm.model.role import Role
from pvdm.model.statements.kind import StatementKind
from tests.support import fault
from tests.support.audit.crafted_history import Local, codes, local
from tests.support.audit.expiring_history import audit_orders, keep, publish_attempt
from tests.support.audit.published_history import gather_evidence, permitted
from tests.support.gate.protected_tables import House
from tests.support.steward.notary import LOG_ORIGIN
from tools.proof_kit import SECOND


class CrashError(BaseException):
    """The Steward ends here."""


def prove_chunk(house: House, number: int) -> Attempt:
    return house.proved("one", [(number, 3, "Ulm")], chunk_id="abcdef"[number], opened=False)


def open_workload(house: House) -> None:
    """Make a table that keeps one snapshot beside the newest, and open a workload of six chunks."""
    keep(house, 1)
    house.open("one", list("abcdef"))


def crash(house: House, attempt: Attempt) -> int:
    """Commit a publication, end the Steward before the receipt, start it again; returns the snapshot's id."""
    house.stand.time.pass_by(SECOND)
    with fault.armed("gate.before_receipt", fault.Raise(CrashError())), pytest.raises(CrashError):
        house.publishing().publish("one", [attempt.attempt_id])
    house.stand.reopen()
    house.stand.time.pass_by(SECOND)
    return house.table_state().metadata.current_snapshot_id or 0


def snapshots_of_main(house: House) -> list[int]:
    metadata = house.table_state().metadata
    return [each.snapshot_id for each in metadata.ancestry(metadata.current_snapshot_id or 0)]


def test_a_snapshot_stays_until_its_receipt_is_signed_and_expires_then(house: House) -> None:
    open_workload(house)
    publish_attempt(house, prove_chunk(house, 0))
    late = crash(house, prove_chunk(house, 1))
    for number in (2, 3, 4):
        publish_attempt(house, prove_chunk(house, number))
    assert snapshots_of_main(house)[-1] == late
    (done,) = house.publishing().settle()
    assert done.shown.new_snapshot_id == late
    house.publishing().require_settled()
    assert codes(audit_orders(house)) == set()
    publish_attempt(house, prove_chunk(house, 5))
    assert late not in snapshots_of_main(house)
    assert codes(audit_orders(house)) == set()


def test_receipts_that_could_not_be_signed_for_a_time_are_all_signed_later(house: House) -> None:
    open_workload(house)
    proved_attempts = [prove_chunk(house, number) for number in range(5)]
    publish_attempt(house, proved_attempts[0])
    place = house.stand.config.outside_path.parent
    away = place.rename(place.with_name("away"))
    for each in proved_attempts[1:]:
        house.stand.time.pass_by(SECOND)
        with pytest.raises(StateUnknownError):
            house.publishing().publish("one", [each.attempt_id])
    away.rename(place)
    assert len(house.publishing().settle()) == 4
    house.publishing().require_settled()
    assert codes(audit_orders(house)) == set()


def test_a_missing_receipt_that_only_the_transaction_sees_keeps_its_snapshot(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_workload(house)
    late = crash(house, prove_chunk(house, 0))
    publish_attempt(house, prove_chunk(house, 1))
    find_missing = receipts.find_without_receipt
    blind = [True]

    def find_missing_blindly(*args: object) -> set[int]:
        return set() if blind and blind.pop() else find_missing(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(receipts, "find_without_receipt", find_missing_blindly)
    publish_attempt(house, prove_chunk(house, 2))
    assert blind == []
    assert snapshots_of_main(house)[-1] == late


def test_snapshots_from_before_the_protection_expire_without_a_receipt(house: House) -> None:
    keep(house, 1, rows=[(9, 3, "Ulm")])
    first = snapshots_of_main(house)
    house.open("one", list("abcdef"))
    for number in range(3):
        publish_attempt(house, prove_chunk(house, number))
    assert not set(first) & set(snapshots_of_main(house))
    assert codes(audit_orders(house)) == set()


# Rows that nothing proves


@pytest.mark.parametrize("first", [False, True], ids=["on an empty table", "after a publication"])
def test_rows_that_bypassed_the_gate_are_found_after_their_snapshot_has_expired(house: House, first: bool) -> None:
    open_workload(house)
    if first:
        publish_attempt(house, prove_chunk(house, 0))
    commit_past_the_gate(house, 666)
    assert codes(audit_orders(house)) == {"audit_receipt_missing"}
    for number in (1, 2, 3, 4):
        publish_attempt(house, prove_chunk(house, number))
    assert 666 in house.rows()
    assert len(snapshots_of_main(house)) == 2
    assert "audit_receipt_missing" in codes(audit_orders(house))


def test_a_receipt_that_the_evidence_lacks_is_found_after_its_snapshot_has_expired(house: House) -> None:
    open_workload(house)
    for number in range(4):
        publish_attempt(house, prove_chunk(house, number))
    evidence = gather_evidence(house.notary, house.scene.grant(Role.AUDITOR, "sales"), "orders")
    first = next(each for each in evidence.statements if each.kind is StatementKind.RECEIPT)
    incomplete = replace(evidence, statements=tuple(each for each in evidence.statements if each is not first))
    trust = AuditTrust(house.notary.trust.current(), LOG_ORIGIN, house.scene.now)
    assert codes(audit(incomplete, Local(), trust)) == {"audit_receipt_missing"}


@pytest.mark.parametrize("copied", [False, True], ids=["open", "copied"])
@pytest.mark.parametrize("gone", [False, True], ids=["changed", "removed"])
def test_changed_and_missing_files_of_an_expired_publication_are_found(house: House, copied: bool, gone: bool) -> None:
    open_workload(house)
    publish_attempt(house, house.proved("one", [(0, 3, "Ulm")], chunk_id="a", opened=False, copied=copied))
    (path,) = house.paths()
    for number in (1, 2, 3):
        publish_attempt(house, prove_chunk(house, number))
    report = audit_orders(house)
    assert (codes(report), report.rehashed and report.rehashed.data_files) == (set(), 4)
    spoil(local(path), gone=gone)
    assert codes(audit_orders(house)) == {"file_missing" if gone else "audit_bytes_changed"}


def spoil(path: Path, *, gone: bool) -> None:
    """Remove the file, or change one bit of it."""
    data = bytearray(path.read_bytes())
    path.unlink()
    if not gone:
        data[20] ^= 1
        path.write_bytes(data)


def commit_past_the_gate(house: House, number: int) -> None:
    """Commit a snapshot to main without the gate, as someone with access to vault and catalog could."""
    state, vault = house.table_state(), house.vault
    uuid = state.row.table_uuid
    made = next_snapshot(
        state.metadata,
        SnapshotChange(
            house.write_files(vault.location(uuid, VaultKind.DATA, "x"), [(number, 3, "Ulm")]), frozenset(), {}
        ),
        branch="main",
        snapshot_id=424_242,
        now_ms=house.scene.now // 1_000,
        place=lambda name: vault.location(uuid, VaultKind.METADATA, name),
        reader=house.files,
        in_vault=True,
    )
    for file in made.files:
        vault.write(uuid, VaultKind.METADATA, file.name, file.data)
    change = Change(("sales",), "orders", (), list(made.updates))
    house.notary.catalog.commits.commit(house.scene.grant(Role.OPERATOR), [change], make_permit=permitted)
    house.stand.time.pass_by(SECOND)
