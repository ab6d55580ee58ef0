"""Manifests that a crash leaves in the vault go once they are old; whatever anything may still name stays."""

from __future__ import annotations

import secrets
import threading
from pathlib import Path

import pytest

from pvdm.catalog import references
from pvdm.catalog.cleanup import ORPHAN_AGE_MIN_SECONDS
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


class DiedError(BaseException):
    """The end of a process, after which nothing is cleaned."""


def desk(house: House) -> VaultSweep:
    notary = house.notary
    return VaultSweep(notary.ledger, notary.clock, notary.catalog, house.vault, house.files)


def folder(house: House) -> Path:
    place = house.vault.location(house.found().row.table_uuid, VaultKind.METADATA, "any")
    return file_at(place).parent


def names(house: House) -> set[str]:
    return {path.name for path in folder(house).iterdir()}


def age(house: House) -> None:
    age_in(folder(house))


def age_in(place: Path) -> None:
    """Let every file look as if it had been written long ago."""
    for path in place.iterdir():
        places.age(path, ORPHAN_AGE_MIN_SECONDS + 60)


def died(house: House, attempt: Attempt) -> set[str]:
    """What a Steward leaves that dies before the gate's transaction."""
    before = names(house)
    with fault.armed("gate.after_files", fault.Raise(DiedError())), pytest.raises(DiedError):
        publish(house, attempt)
    return names(house) - before


def publish(house: House, attempt: Attempt) -> None:
    validate_then_commit(house.proposal(attempt), house.gate())


def test_what_a_crash_of_the_gate_leaves_goes_when_it_is_old_and_the_rest_stays(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    left = died(orders, attempt)
    assert len(left) == 3
    publish(orders, attempt)
    kept = names(orders) - left
    assert (desk(orders).sweep(), names(orders)) == (0, kept | left), "somebody may be about to show it"
    age(orders)
    assert (desk(orders).sweep(), names(orders)) == (3, kept)
    assert orders.rows() != []


def test_an_unfinished_file_goes_when_it_is_old(orders: House) -> None:
    orders.proved("w", NEW)
    unfinished = folder(orders) / ".pvdm-new-0123456789abcdef"
    unfinished.write_bytes(b"half")
    kept = names(orders) - {unfinished.name}
    assert desk(orders).sweep() == 0
    age(orders)
    assert (desk(orders).sweep(), names(orders)) == (1, kept)


def test_what_has_a_name_of_somebody_elses_stays(orders: House) -> None:
    orders.proved("w", NEW)
    (folder(orders) / "notes.avro").write_bytes(b"whose is it?")
    age(orders)
    assert desk(orders).sweep() == 0


def test_a_verified_manifest_goes_when_nothing_names_it_and_nobody_can(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    with orders.notary.ledger.read() as unit:
        held = nonces.find_current(unit, attempt.attempt_id)
    assert held is not None
    replaced = folder(orders) / f"verified-{held.nonce}-{'0' * 16}.avro"
    unknown = folder(orders) / f"verified-{secrets.token_hex(16)}-{'0' * 16}.avro"
    for path in (replaced, unknown):
        path.write_bytes(b"found before the crash")
    kept = names(orders) - {replaced.name}
    age(orders)
    assert (desk(orders).sweep(), replaced.exists()) == (0, True), "its nonce is held: it may be found again"
    publish(orders, attempt)
    kept |= names(orders) - {replaced.name}
    age(orders)
    assert (desk(orders).sweep(), names(orders)) == (1, kept)


def test_what_a_snapshot_lists_stays_though_no_publication_is_known_of_it(
    orders: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(orders, orders.proved("w", NEW))
    kept = names(orders)
    monkeypatch.setattr("pvdm.ledger.work.chunks.published_snapshots", lambda *_: set())
    age(orders)
    assert (desk(orders).sweep(), names(orders)) == (0, kept)


def test_where_it_cannot_be_told_nothing_goes(orders: House, monkeypatch: pytest.MonkeyPatch) -> None:
    left = died(orders, orders.proved("w", NEW))
    monkeypatch.setattr(references, "REFERENCES_READ_MAX", 0)
    age(orders)
    assert desk(orders).sweep() == 0
    assert left <= names(orders)


def test_of_a_table_that_was_dropped_nothing_goes(orders: House) -> None:
    left = died(orders, orders.proved("w", NEW))
    row, place = orders.found().row, folder(orders)
    age(orders)
    orders.transact(lambda unit: tables.drop(unit, row))
    assert desk(orders).sweep() == 0
    assert left <= {path.name for path in place.iterdir()}


def test_once_the_ledger_was_restored_nothing_goes(orders: House) -> None:
    left = died(orders, orders.proved("w", NEW))
    age(orders)

    def restored(unit: Unit) -> None:
        restores.begin(unit, Restore(1, "operator-ruth", "the disk was lost", 0, b"", 1, (), {}))
        restores.finish(unit, 1)

    orders.transact(restored)
    assert desk(orders).sweep() == 0
    assert left <= names(orders)


def test_it_looks_once_a_day(orders: House) -> None:
    sweep = desk(orders)
    sweep.sweep()
    died(orders, orders.proved("w", NEW))
    age(orders)
    assert (sweep.sweep(), desk(orders).sweep()) == (0, 3)


def test_a_gate_that_slept_until_its_files_were_swept_writes_them_anew(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    swept: list[int] = []

    def sleeps() -> None:
        fault.disarm("gate.after_files")
        age(orders)
        swept.append(desk(orders).sweep())

    with fault.armed("gate.after_files", fault.Call(sleeps)):
        publish(orders, attempt)
    assert swept == [3]
    current = orders.found().metadata.current_snapshot
    assert current is not None
    assert file_at(str(current.manifest_list)).exists()
    assert orders.rows() != []


def test_the_steward_sweeps_when_it_tidies_up(orders: House) -> None:
    left = died(orders, orders.proved("w", NEW))
    age(orders)
    orders.notary.tidy()
    assert names(orders).isdisjoint(left)


def test_a_steward_whose_log_is_not_the_one_known_outside_sweeps_nothing(orders: House) -> None:
    """As one that goes on after its ledger was restored elsewhere: what it does not know may be live there."""
    left = died(orders, orders.proved("w", NEW))
    age(orders)
    kept = orders.notary.config.outside_path
    kept.rename(kept.with_name("away"))
    with pytest.raises(VerificationError) as caught:
        orders.notary.tidy()
    assert caught.value.reason == "checkpoint_goes_back"
    assert left <= names(orders)


def test_a_swap_that_has_begun_is_waited_for_and_its_files_stay(orders: House) -> None:
    attempt = orders.proved("w", NEW)
    place, swept = folder(orders), list[int]()
    sweeping = threading.Thread(target=lambda: swept.append(desk(orders).sweep()))

    def meanwhile() -> None:
        if not sweeping.ident:
            age_in(place)
            sweeping.start()
            sweeping.join(0.5)
            assert sweeping.is_alive()

    with fault.armed("ledger.before_commit", fault.Call(meanwhile)):
        publish(orders, attempt)
        sweeping.join(30)
    assert swept == [0]
    assert orders.rows() != []
