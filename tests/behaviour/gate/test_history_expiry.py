"""History that goes with a publication: never a snapshot whose receipt is still to be made."""

from __future__ import annotations

import pytest

from pvdm import fault
from pvdm.errors import StateUnknownError
from pvdm.store import receipts
from pvdm.store.attempts import Attempt
from tests.audit_examples import codes
from tests.gate_examples import House
from tests.history_examples import audited, keep, published
from tools.proof_kit import SECOND


class CrashError(BaseException):
    """The Steward ends here."""


def proved(house: House, number: int) -> Attempt:
    return house.proved("one", [(number, 3, "Ulm")], chunk_id="abcdef"[number], opened=False)


def opened(house: House) -> None:
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


def shown(house: House) -> list[int]:
    metadata = house.found().metadata
    return [each.snapshot_id for each in metadata.ancestry(metadata.current_snapshot_id or 0)]


def test_a_snapshot_stays_until_its_receipt_is_made_and_goes_then(house: House) -> None:
    opened(house)
    published(house, proved(house, 0))
    late = crash(house, proved(house, 1))
    for number in (2, 3, 4):
        published(house, proved(house, number))
    assert shown(house)[-1] == late
    (done,) = house.publishing().settle()
    assert done.shown.new_snapshot_id == late
    house.publishing().require_settled()
    assert codes(audited(house)) == set()
    published(house, proved(house, 5))
    assert late not in shown(house)
    assert codes(audited(house)) == set()


def test_receipts_that_could_not_be_signed_for_a_time_are_all_made(house: House) -> None:
    opened(house)
    ready = [proved(house, number) for number in range(5)]
    published(house, ready[0])
    place = house.stand.config.outside_path.parent
    away = place.rename(place.with_name("away"))
    for each in ready[1:]:
        house.stand.time.pass_by(SECOND)
        with pytest.raises(StateUnknownError):
            house.publishing().publish("one", [each.attempt_id])
    away.rename(place)
    assert len(house.publishing().settle()) == 4
    house.publishing().require_settled()
    assert codes(audited(house)) == set()


def test_a_receipt_that_is_missed_only_in_the_transaction_keeps_its_snapshot_too(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(house)
    late = crash(house, proved(house, 0))
    published(house, proved(house, 1))
    seen = receipts.missing_among
    blind = [True]

    def look(*args: object) -> set[int]:
        return set() if blind and blind.pop() else seen(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(receipts, "missing_among", look)
    published(house, proved(house, 2))
    assert blind == []
    assert shown(house)[-1] == late


def test_what_was_there_before_the_protection_goes_without_a_receipt(house: House) -> None:
    keep(house, 1, rows=[(9, 3, "Ulm")])
    first = shown(house)
    house.open("one", list("abcdef"))
    for number in range(3):
        published(house, proved(house, number))
    assert not set(first) & set(shown(house))
    assert codes(audited(house)) == set()
