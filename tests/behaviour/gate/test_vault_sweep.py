"""Manifests that a crash left in the vault are removed once they are old; those that may still be named stay."""

from __future__ import annotations

import secrets
import threading
from pathlib import Path

import pytest

from pvdm.catalog import references
from pvdm.catalog.cleanup import UNNAMED_AGE_MIN_SECONDS
from pvdm.errors import VerificationError
from pvdm.lake.vault import VaultKind
from pvdm.ledger import Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.record import restores
from pvdm.ledger.record.restores import Restore
from pvdm.ledger.work import nonces
from pvdm.ledger.work.attempts import Attempt
from pvdm.metadata.gate.gate import validate_then_commit
from pvdm.steward.cleanup.vault import VaultSweep
from tests.support import fault
from tests.support.gate.attacks import NEW
from tests.support.gate.protected_tables import House
from tests.support.stores import places
from tests.support.stores.places import file_at


class CrashError(BaseException):
    """The process ends here, and cleans nothing up."""


def new_sweep(house: House) -> VaultSweep:
    notary = house.notary
    return VaultSweep(notary.ledger, notary.clock, notary.catalog, house.vault, house.files)


def folder(house: House) -> Path:
    place = house.vault.location(house.table_state().row.table_uuid, VaultKind.METADATA, "any")
    return file_at(place).parent


def file_names(house: House) -> set[str]:
    return {path.name for path in folder(house).iterdir()}


def age_files(house: House) -> None:
    age_files_in(folder(house))


def age_files_in(place: Path) -> None:
    """Let every file look as if it had been written long ago."""
    for path in place.iterdir():
        places.age(path, UNNAMED_AGE_MIN_SECONDS + 60)


def crash_gate(house: House, attempt: Attempt) -> set[str]:
    """End the Steward before the gate's transaction; returns the names of the files that it leaves."""
    before = file_names(house)
    with fault.armed("gate.after_files", fault.Raise(CrashError())), pytest.raises(CrashError):
        publish(house, attempt)
    return file_names(house) - before


def publish(house: House, attempt: Attempt) -> None:
    validate_then_commit(house.proposal(attempt), house.gate())


def test_old_files_that_a_crash_of_the_gate_left_are_removed_and_the_others_stay(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    left = crash_gate(orders, attempt)
    assert len(left) == 3
    publish(orders, attempt)
    kept = file_names(orders) - left
    assert (new_sweep(orders).sweep(), file_names(orders)) == (0, kept | left), "a publication may be about to use them"
    age_files(orders)
    assert (new_sweep(orders).sweep(), file_names(orders)) == (3, kept)
    assert orders.rows() != []


def test_an_unfinished_file_is_removed_when_it_is_old(orders: House) -> None:
    orders.proved("w", NEW)
    unfinished = folder(orders) / ".pvdm-new-0123456789abcdef"
    unfinished.write_bytes(b"half")
    kept = file_names(orders) - {unfinished.name}
    assert new_sweep(orders).sweep() == 0
    age_files(orders)
    assert (new_sweep(orders).sweep(), file_names(orders)) == (1, kept)


def test_a_file_with_a_name_that_is_not_the_stewards_stays(orders: House) -> None:
    orders.proved("w", NEW)
    (folder(orders) / "notes.avro").write_bytes(b"whose is it?")
    age_files(orders)
    assert new_sweep(orders).sweep() == 0


def test_a_verified_manifest_is_removed_once_nothing_can_name_it(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    with orders.notary.ledger.read() as unit:
        held = nonces.find_current(unit, attempt.attempt_id)
    assert held is not None
    replaced = folder(orders) / f"verified-{held.nonce}-{'0' * 16}.avro"
    unknown = folder(orders) / f"verified-{secrets.token_hex(16)}-{'0' * 16}.avro"
    for path in (replaced, unknown):
        path.write_bytes(b"found before the crash")
    kept = file_names(orders) - {replaced.name}
    age_files(orders)
    assert (new_sweep(orders).sweep(), replaced.exists()) == (0, True), "its nonce is held: it may still be used"
    publish(orders, attempt)
    kept |= file_names(orders) - {replaced.name}
    age_files(orders)
    assert (new_sweep(orders).sweep(), file_names(orders)) == (1, kept)


def test_files_that_a_snapshot_lists_stay_even_without_a_known_publication(
    orders: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(orders, orders.proved("w", NEW))
    kept = file_names(orders)
    monkeypatch.setattr("pvdm.ledger.work.chunks.find_published_snapshots", lambda *_: set())
    age_files(orders)
    assert (new_sweep(orders).sweep(), file_names(orders)) == (0, kept)


def test_nothing_is_removed_if_not_all_references_can_be_read(orders: House, monkeypatch: pytest.MonkeyPatch) -> None:
    left = crash_gate(orders, orders.proved("w", NEW))
    monkeypatch.setattr(references, "REFERENCES_READ_MAX", 0)
    age_files(orders)
    assert new_sweep(orders).sweep() == 0
    assert left <= file_names(orders)


def test_nothing_of_a_dropped_table_is_removed(orders: House) -> None:
    left = crash_gate(orders, orders.proved("w", NEW))
    row, place = orders.table_state().row, folder(orders)
    age_files(orders)
    orders.transact(lambda unit: tables.drop(unit, row))
    assert new_sweep(orders).sweep() == 0
    assert left <= {path.name for path in place.iterdir()}


def test_nothing_is_removed_once_the_ledger_was_restored(orders: House) -> None:
    left = crash_gate(orders, orders.proved("w", NEW))
    age_files(orders)

    def restored(unit: Unit) -> None:
        restores.begin(unit, Restore(1, "operator-ruth", "the disk was lost", 0, b"", 1, (), {}))
        restores.finish(unit, 1)

    orders.transact(restored)
    assert new_sweep(orders).sweep() == 0
    assert left <= file_names(orders)


def test_a_second_sweep_on_the_same_day_removes_nothing(orders: House) -> None:
    sweep = new_sweep(orders)
    sweep.sweep()
    crash_gate(orders, orders.proved("w", NEW))
    age_files(orders)
    assert (sweep.sweep(), new_sweep(orders).sweep()) == (0, 3)


def test_a_gate_whose_files_were_swept_before_its_transaction_writes_them_again(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    swept: list[int] = []

    def sweep_meanwhile() -> None:
        fault.disarm("gate.after_files")
        age_files(orders)
        swept.append(new_sweep(orders).sweep())

    with fault.armed("gate.after_files", fault.Call(sweep_meanwhile)):
        publish(orders, attempt)
    assert swept == [3]
    current = orders.table_state().metadata.current_snapshot
    assert current is not None
    assert file_at(str(current.manifest_list)).exists()
    assert orders.rows() != []


def test_the_tidying_of_a_steward_includes_the_sweep(orders: House) -> None:
    left = crash_gate(orders, orders.proved("w", NEW))
    age_files(orders)
    orders.notary.tidy()
    assert file_names(orders).isdisjoint(left)


def test_a_steward_whose_log_contradicts_the_outside_checkpoint_removes_nothing(orders: House) -> None:
    """For example one whose ledger was restored elsewhere: files that it does not know may be in use there."""
    left = crash_gate(orders, orders.proved("w", NEW))
    age_files(orders)
    kept = orders.notary.config.outside_path
    kept.rename(kept.with_name("away"))
    with pytest.raises(VerificationError) as caught:
        orders.notary.tidy()
    assert caught.value.reason == "checkpoint_goes_back"
    assert left <= file_names(orders)


def test_a_sweep_waits_for_a_swap_that_has_begun_and_keeps_its_files(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    place, swept = folder(orders), list[int]()
    sweeping = threading.Thread(target=lambda: swept.append(new_sweep(orders).sweep()))

    def meanwhile() -> None:
        if not sweeping.ident:
            age_files_in(place)
            sweeping.start()
            sweeping.join(0.5)
            assert sweeping.is_alive()

    with fault.armed("ledger.before_commit", fault.Call(meanwhile)):
        publish(orders, attempt)
        sweeping.join(30)
    assert swept == [0]
    assert orders.rows() != []
