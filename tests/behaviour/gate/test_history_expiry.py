"""History that goes with a publication: what has to stay, and what an audit says of what is left."""

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


def proved(house: House, number: int) -> Attempt:
    return house.proved("one", [(number, 3, "Ulm")], chunk_id="abcdef"[number], opened=False)


def open_workload(house: House) -> None:
    """A table that keeps one snapshot beside the newest, and a workload of six chunks."""
    keep(house, 1)
    house.open("one", list("abcdef"))


def crash(house: House, attempt: Attempt) -> int:
    """A publication is committed, and the Steward ends before its receipt; the snapshot."""
    house.stand.time.pass_by(SECOND)
    with fault.armed("gate.before_receipt", fault.Raise(CrashError())), pytest.raises(CrashError):
        house.publishing().publish("one", [attempt.attempt_id])
    house.stand.reopen()
    house.stand.time.pass_by(SECOND)
    return house.found().metadata.current_snapshot_id or 0


def snapshots_of_main(house: House) -> list[int]:
    metadata = house.found().metadata
    return [each.snapshot_id for each in metadata.ancestry(metadata.current_snapshot_id or 0)]


def test_a_snapshot_stays_until_its_receipt_is_made_and_goes_then(house: House) -> None:
    open_workload(house)
    publish_attempt(house, proved(house, 0))
    late = crash(house, proved(house, 1))
    for number in (2, 3, 4):
        publish_attempt(house, proved(house, number))
    assert snapshots_of_main(house)[-1] == late
    (done,) = house.publishing().settle()
    assert done.shown.new_snapshot_id == late
    house.publishing().require_settled()
    assert codes(audit_orders(house)) == set()
    publish_attempt(house, proved(house, 5))
    assert late not in snapshots_of_main(house)
    assert codes(audit_orders(house)) == set()


def test_receipts_that_could_not_be_signed_for_a_time_are_all_made(house: House) -> None:
    open_workload(house)
    ready = [proved(house, number) for number in range(5)]
    publish_attempt(house, ready[0])
    place = house.stand.config.outside_path.parent
    away = place.rename(place.with_name("away"))
    for each in ready[1:]:
        house.stand.time.pass_by(SECOND)
        with pytest.raises(StateUnknownError):
            house.publishing().publish("one", [each.attempt_id])
    away.rename(place)
    assert len(house.publishing().settle()) == 4
    house.publishing().require_settled()
    assert codes(audit_orders(house)) == set()


def test_a_receipt_that_is_missed_only_in_the_transaction_keeps_its_snapshot_too(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_workload(house)
    late = crash(house, proved(house, 0))
    publish_attempt(house, proved(house, 1))
    seen = receipts.find_missing
    blind = [True]

    def look(*args: object) -> set[int]:
        return set() if blind and blind.pop() else seen(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(receipts, "find_missing", look)
    publish_attempt(house, proved(house, 2))
    assert blind == []
    assert snapshots_of_main(house)[-1] == late


def test_what_was_there_before_the_protection_goes_without_a_receipt(house: House) -> None:
    keep(house, 1, rows=[(9, 3, "Ulm")])
    first = snapshots_of_main(house)
    house.open("one", list("abcdef"))
    for number in range(3):
        publish_attempt(house, proved(house, number))
    assert not set(first) & set(snapshots_of_main(house))
    assert codes(audit_orders(house)) == set()


# Rows that nothing proves


@pytest.mark.parametrize("first", [False, True], ids=["on an empty table", "after a publication"])
def test_rows_that_slipped_in_are_found_when_their_snapshot_has_expired(house: House, first: bool) -> None:
    open_workload(house)
    if first:
        publish_attempt(house, proved(house, 0))
    slip(house, 666)
    assert codes(audit_orders(house)) == {"audit_receipt_missing"}
    for number in (1, 2, 3, 4):
        publish_attempt(house, proved(house, number))
    assert 666 in house.rows()
    assert len(snapshots_of_main(house)) == 2
    assert "audit_receipt_missing" in codes(audit_orders(house))


def test_a_receipt_that_is_left_out_is_missed_when_its_snapshot_has_expired(house: House) -> None:
    open_workload(house)
    for number in range(4):
        publish_attempt(house, proved(house, number))
    evidence = gather_evidence(house.notary, house.scene.grant(Role.AUDITOR, "sales"), "orders")
    first = next(each for each in evidence.statements if each.kind is StatementKind.RECEIPT)
    left = replace(evidence, statements=tuple(each for each in evidence.statements if each is not first))
    judge = AuditTrust(house.notary.trust.current(), LOG_ORIGIN, house.scene.now)
    assert codes(audit(left, Local(), judge)) == {"audit_receipt_missing"}


@pytest.mark.parametrize("copied", [False, True], ids=["open", "copied"])
@pytest.mark.parametrize("gone", [False, True], ids=["changed", "removed"])
def test_the_files_of_an_expired_publication_are_read_again(house: House, copied: bool, gone: bool) -> None:
    open_workload(house)
    publish_attempt(house, house.proved("one", [(0, 3, "Ulm")], chunk_id="a", opened=False, copied=copied))
    (path,) = house.paths()
    for number in (1, 2, 3):
        publish_attempt(house, proved(house, number))
    report = audit_orders(house)
    assert (codes(report), report.rehashed and report.rehashed.data_files) == (set(), 4)
    spoil(local(path), gone=gone)
    assert codes(audit_orders(house)) == {"file_missing" if gone else "audit_bytes_changed"}


def spoil(path: Path, *, gone: bool) -> None:
    """The file is gone, or one bit of it is another."""
    data = bytearray(path.read_bytes())
    path.unlink()
    if not gone:
        data[20] ^= 1
        path.write_bytes(data)


def slip(house: House, number: int) -> None:
    """A snapshot of main past the gate, by who can write to vault and catalog."""
    state, vault = house.found(), house.vault
    uuid = state.row.table_uuid
    made = next_snapshot(
        state.metadata,
        SnapshotChange(house.written(vault.location(uuid, VaultKind.DATA, "x"), [(number, 3, "Ulm")]), frozenset(), {}),
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
    house.notary.catalog.commits.commit(house.scene.grant(Role.OPERATOR), [change], permit=permitted)
    house.stand.time.pass_by(SECOND)
