"""Several Stewards on one PostgreSQL: one log without a gap, every statement in it once, one epoch book for all."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pvdm.errors import PvdmError
from pvdm.ledger.record import statements
from pvdm.model.role import Role
from pvdm.model.statements.kind import StatementKind
from pvdm.steward.config.steward import FileKeys, StewardConfig
from pvdm.steward.notary import log_keys
from pvdm.steward.record.log import LedgerLogReader
from pvdm.trust.keys.kms import KmsSettings
from pvdm.trust.log.export import export
from pvdm.trust.log.fsck import fsck
from pvdm.trust.verify import verify_threshold
from tests.behaviour.keys.conftest import REGION, kms_endpoint
from tests.support.ledger.databases import Postgresql, memory_folder
from tests.support.steward.logged import entry_of
from tests.support.steward.notary import (
    LOG_ORIGIN,
    Stand,
    Time,
    config_at,
    context_of,
    created,
    opened,
    root_naming,
    signed_root,
)

__all__ = ["kms_endpoint"]


@dataclass(frozen=True)
class Pair:
    """Two Stewards on one database, each with a folder of its own."""

    one: Stand
    two: Stand

    def close(self) -> None:
        for stand in (self.one, self.two):
            stand.notary.close()

    def at_once(self, *works: Callable[[], object]) -> list[object]:
        """Run these at the same time; returns each result, or the reason of its error."""
        barrier = threading.Barrier(len(works))
        results: list[object] = [None] * len(works)

        def run(index: int, work: Callable[[], object]) -> None:
            barrier.wait()
            try:
                results[index] = work()
            except PvdmError as error:
                results[index] = error.reason

        threads = [threading.Thread(target=run, args=pair) for pair in enumerate(works)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


def pair_at(one: StewardConfig, two: StewardConfig, folder: Path) -> Pair:
    time, two = Time(), replace(two, catalog=one.catalog)
    first = Stand(folder, one, time, created(one, time))
    if two.outside_path != one.outside_path:
        shutil.copy(one.outside_path, two.outside_path)
    return Pair(first, Stand(folder, two, time, opened(two, time)))


@pytest.fixture(params=["one-outside", "two-outsides"])
def pair(request: pytest.FixtureRequest, postgresql: Postgresql) -> Iterator[Pair]:
    """Keys in one keystore file; one outside checkpoint for both Stewards, or one for each."""
    with memory_folder() as folder:
        url, keys = postgresql.create_database("template0"), FileKeys(folder / "keys")
        one, two = (config_at(folder / name, ledger_url=url, keys=keys) for name in ("one", "two"))
        if request.param == "one-outside":
            two = replace(two, outside_path=one.outside_path)
        stewards = pair_at(one, two, folder)
        yield stewards
        stewards.close()


@pytest.fixture
def kms_pair(postgresql: Postgresql, kms_endpoint: str) -> Iterator[Pair]:
    """Keys in KMS; the epoch book is in the ledger."""
    with memory_folder() as folder:
        url, keys = postgresql.create_database("template0"), KmsSettings(REGION, kms_endpoint)
        one, two = (config_at(folder / name, ledger_url=url, keys=keys) for name in ("one", "two"))
        stewards = pair_at(one, two, folder)
        yield stewards
        stewards.close()


def proofs_by(stand: Stand, name: str, count: int) -> Callable[[], list[str]]:
    return lambda: [stand.proved(f"{name}-{number}").statement_id for number in range(count)]


def assert_sound(pair: Pair, proof_ids: list[str], folder: Path) -> None:
    """The log has no gap, each statement is in it once, and both outside checkpoints are its own."""
    notary = pair.one.notary
    with notary.ledger.read() as unit:
        stored = {kind: statements.list_by_kind(unit, kind) for kind in StatementKind}
    indexes = sorted(statement.log_index for found in stored.values() for statement in found)
    assert indexes == list(range(notary.log.size()))
    assert sorted(statement.statement_id for statement in stored[StatementKind.PROOF]) == sorted(proof_ids)
    entries = [json.loads(entry_of(notary, index)) for index in indexes]
    assert len({entry["sha256"] for entry in entries}) == len(entries)
    assert [entry["time"] for entry in entries] == sorted(entry["time"] for entry in entries)
    export(LedgerLogReader(notary.ledger), folder)
    vkeys = [key.to_vkey() for key in log_keys(notary.epochs.book(), LOG_ORIGIN)]
    for stand in (pair.one, pair.two):
        assert fsck(folder, vkeys, since=stand.config.outside_path.read_bytes()).size == len(entries)
        assert stand.notary.readiness() == ()


def test_two_stewards_that_record_at_once_share_one_log(pair: Pair, tmp_path: Path) -> None:
    answers = pair.at_once(proofs_by(pair.one, "one", 25), proofs_by(pair.two, "two", 25))
    proof_ids = [proof_id for answer in answers if isinstance(answer, list) for proof_id in answer]
    assert len(proof_ids) == 50, answers
    assert_sound(pair, proof_ids, tmp_path / "export")
    for stand in (pair.one, pair.two):
        stand.reopen()
        outside = stand.config.outside_path.read_bytes()
        assert outside == stand.notary.log.checkpoint()


def test_two_stewards_that_record_the_same_proof_at_once_store_it_once(pair: Pair) -> None:
    core = pair.one.verifying()
    first, second = pair.at_once(lambda: pair.one.record(core), lambda: pair.two.record(core))
    assert first == second
    assert pair.one.notary.log.size() == 4


def test_a_token_that_one_steward_revokes_is_refused_by_the_other(pair: Pair) -> None:
    text, grant = pair.one.token()
    assert pair.two.notary.access.authenticate(text) == grant
    pair.two.notary.access.revoke(grant.token_id)
    assert pair.at_once(lambda: pair.one.notary.access.authenticate(text)) == ["token_revoked"]


def test_a_steward_shows_proofs_that_the_other_recorded(pair: Pair) -> None:
    recorded = pair.one.proved()
    grant = pair.two.grant(Role.AUDITOR)
    assert pair.two.notary.proofs.envelope(recorded.statement_id, grant) == recorded.envelope
    assert pair.two.notary.proofs.list_proofs(grant)[0].proof_id == recorded.statement_id


def rotate(stand: Stand) -> None:
    stand.notary.epochs.create("rotation")
    current, book = stand.notary.trust.current(), stand.notary.epochs.book()
    root = root_naming(*book.epochs, version=current.version + 1, previous=current.sha256)
    stand.notary.trust.accept(signed_root(root))
    stand.notary.epochs.activate(2, "rotation")


def test_with_the_epoch_book_in_the_ledger_two_stewards_record_at_once(kms_pair: Pair, tmp_path: Path) -> None:
    pair = kms_pair
    answers = pair.at_once(proofs_by(pair.one, "one", 5), proofs_by(pair.two, "two", 5))
    proof_ids = [proof_id for answer in answers if isinstance(answer, list) for proof_id in answer]
    assert len(proof_ids) == 10, answers
    assert_sound(pair, proof_ids, tmp_path / "export")


def test_with_the_epoch_book_in_the_ledger_a_rotation_is_seen_by_both(kms_pair: Pair, tmp_path: Path) -> None:
    one, two = kms_pair.one, kms_pair.two
    before = one.proved("before")
    rotate(one)
    after = two.proved("after")
    root, now = two.notary.trust.current(), two.time.wall
    epochs = [
        verify_threshold([recorded.envelope], root, threshold=1, now=now).statements[0].predicate.notary.epoch
        for recorded in (before, after)
    ]
    assert epochs == [1, 2]
    two.notary.epochs.revoke(1, "leaked")
    assert kms_pair.at_once(lambda: one.notary.keys.epoch_for(1)) == ["epoch_revoked"]
    two.reopen()
    assert_sound(kms_pair, [before.statement_id, after.statement_id], tmp_path / "export")


def test_with_the_epoch_book_in_the_ledger_two_epochs_created_at_once_get_two_numbers(kms_pair: Pair) -> None:
    one, two = kms_pair.one, kms_pair.two
    numbers = kms_pair.at_once(
        lambda: one.notary.epochs.create("one")[0].epoch, lambda: two.notary.epochs.create("two")[0].epoch
    )
    assert sorted(map(str, numbers)) == ["2", "3"]
    with one.notary.ledger.read() as unit:
        assert len(statements.list_by_kind(unit, StatementKind.EPOCH)) == 4


def test_with_the_epoch_book_in_the_ledger_one_redemption_of_a_handle_counts_for_both(kms_pair: Pair) -> None:
    one, two = kms_pair.one, kms_pair.two
    core = one.verifying()
    handle = one.notary.handles.issue("job-1", redemptions=1)
    two.notary.handles.freeze("job-1", context_of(core, 1))
    results = kms_pair.at_once(
        lambda: len(one.notary.handles.redeem(handle, job_id="job-1", worker="a")),
        lambda: len(two.notary.handles.redeem(handle, job_id="job-1", worker="b")),
    )
    assert sorted(map(str, results)) == ["2", "handle_exhausted"]
