"""`Publishing` moves attempts as the gate decides and publishes each once, with many publishers and after crashes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from pvdm.catalog.commit import Change
from pvdm.errors import NotAllowedError, PvdmError, StateUnknownError, UnavailableError, VerificationError
from pvdm.lake.read.entries import listed_manifests
from pvdm.lake.vault import VaultKind
from pvdm.ledger.record import receipts, statements
from pvdm.ledger.work import attempts, nonces
from pvdm.ledger.work.attempts import Attempt
from pvdm.metadata.gate.proposal import PublicationResult
from pvdm.model.role import Role
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.receipt import Receipt
from pvdm.steward.work.opened import decode_refusal
from pvdm.trust.verify import verify_statement
from tests.support import fault
from tests.support.gate.approvals import COLUMN, SALES
from tests.support.gate.protected_tables import HOUR, Doc, House, Row, contract, house_at
from tests.support.ledger.databases import memory_folder
from tests.support.steward.notary import opened
from tests.support.stores.places import file_at
from tools.proof_kit import DAY

BEFORE: Sequence[Row] = [(1, 1, "Ulm"), (2, 2, "Bonn")]
NEW: Sequence[Row] = [(3, 1, "Ulm"), (4, 3, "Bonn")]


class CrashError(BaseException):
    """The process ends here."""


@pytest.fixture
def house() -> Iterator[House]:
    with memory_folder() as folder, house_at(folder) as made:
        made.table(rows=BEFORE)
        yield made


@pytest.fixture
def each_house(ledger_url: str, tmp_path: Path) -> Iterator[House]:
    """A house whose contract overwrites partitions, on each database in turn."""
    with house_at(tmp_path, ledger_url=ledger_url) as made:
        made.table(rows=BEFORE, text=contract(operation="overwrite-partitions"))
        yield made


def publish(house: House, *found: Attempt) -> PublicationResult:
    return house.publishing().publish(found[0].workload_id, [attempt.attempt_id for attempt in found])


def stored_attempt(house: House, attempt: Attempt) -> Attempt:
    with house.notary.ledger.read() as unit:
        return attempts.get(unit, attempt.attempt_id)


def receipt_ids(house: House) -> list[str]:
    with house.notary.ledger.read() as unit:
        return [each.statement_id for each in statements.list_by_kind(unit, StatementKind.RECEIPT)]


def test_a_publication_gets_a_receipt_in_the_notarys_name(house: House) -> None:
    done = publish(house, house.proved("w", NEW))
    with house.notary.ledger.read() as unit:
        stored = statements.get(unit, done.receipt_id)
    root, now = house.notary.trust.current(), house.notary.clock.now_micros()
    receipt = verify_statement(stored.envelope, root, Receipt, now=now).predicate
    state = house.table_state()
    assert (receipt.new_snapshot_id, receipt.metadata_sha256) == (
        state.metadata.current_snapshot_id,
        state.row.pointer.sha256,
    )
    assert (receipt.proof_ids, receipt.override_id, receipt.workload_id) == (done.shown.proof_ids, None, "w")
    assert house.notary.log.proof(stored.log_index)


def test_a_published_attempt_is_cleaned_up(house: House) -> None:
    attempt = house.proved("w", NEW)
    publish(house, attempt)
    assert house.disposed == [attempt.attempt_id]


def test_publishing_again_returns_the_same_result(house: House) -> None:
    attempt = house.proved("w", NEW)
    assert publish(house, attempt) == publish(house, attempt)
    assert (house.rows(), len(receipt_ids(house))) == ([1, 2, 3, 4], 1)


def test_a_refusal_ends_the_attempt_and_is_stored_as_its_reason(house: House) -> None:
    attempt = house.proved("w", NEW)
    for path in file_at(attempt.prefix).rglob("*.parquet"):
        path.write_bytes(b"other")
    with pytest.raises(VerificationError):
        publish(house, attempt)
    ended = stored_attempt(house, attempt)
    refusal = decode_refusal(ended.reason)
    assert refusal is not None
    assert (ended.state, refusal.reason) == ("VERIFICATION_FAILED", "published_bytes_changed")
    assert house.disposed == [attempt.attempt_id]


def test_a_verified_manifest_that_was_changed_is_not_published(house: House) -> None:
    attempt = house.proved("w", NEW)
    (path,) = sorted(file_at(house.vault.root).rglob("verified-*.avro"))
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(VerificationError) as caught:
        publish(house, attempt)
    assert (caught.value.reason, stored_attempt(house, attempt).state) == ("vault_file_changed", "VERIFICATION_FAILED")


@pytest.mark.parametrize("why", ["expired", "schema moved"])
def test_an_attempt_whose_proof_no_longer_fits_is_verified_again_under_a_new_nonce(house: House, why: str) -> None:
    attempt = house.proved("w", NEW)
    with house.notary.ledger.read() as unit:
        before = nonces.find_current(unit, attempt.attempt_id)
    if why == "expired":
        house.stand.time.pass_by(HOUR)
    else:
        house.scene.migrate(house.scene.migration(COLUMN))
    with pytest.raises(VerificationError):
        publish(house, attempt)
    with house.notary.ledger.read() as unit:
        after = nonces.find_current(unit, attempt.attempt_id)
        assert before is not None
        assert after is not None
        old = nonces.find(unit, before.nonce)
    assert old is not None
    stored = stored_attempt(house, attempt)
    assert (stored.state, old.state, after.nonce == before.nonce) == ("VERIFYING", "ABORTED", False)
    assert stored.staged_snapshot_id == attempt.staged_snapshot_id
    assert house.disposed == []


def test_an_overlapping_overwrite_is_verified_again(house: House) -> None:
    text = contract("returns", operation="overwrite-partitions", partition={"day": "2026-11-01"})
    house.table("returns", rows=BEFORE, text=text)
    gone = house.paths("returns", of_day=1)
    first, second = (
        house.proved(name, [(10 + at, 1, "Ulm")], name="returns", removed=gone) for at, name in enumerate(("a", "b"))
    )
    publish(house, first)
    with pytest.raises(VerificationError):
        publish(house, second)
    assert (stored_attempt(house, second).state, house.rows("returns")) == ("VERIFYING", [2, 10])


def test_every_chunk_of_an_overwrite_is_verified_again_if_main_has_moved(house: House) -> None:
    """So that one repair stages all of them again: otherwise the next chunk would be refused after each repair."""
    house.table("returns", rows=BEFORE, text=contract("returns", operation="overwrite", more="atomicity: workload\n"))
    gone = house.paths("returns")
    house.open("v", ["a", "b"], name="returns")
    chunks = [
        house.proved("v", [(10 + at, 1, "Ulm")], chunk_id=chunk_id, name="returns", opened=False, removed=gone)
        for at, chunk_id in enumerate("ab")
    ]
    publish(house, house.proved("w", [(20, 1, "Ulm")], name="returns", removed=gone))
    with pytest.raises(VerificationError):
        publish(house, *chunks)
    states = [stored_attempt(house, each).state for each in chunks]
    assert (states, house.rows("returns")) == (["VERIFYING", "VERIFYING"], [20])


def test_an_error_that_is_no_verdict_leaves_the_attempt_committing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = house.proved("w", NEW)

    def be_unavailable(*_: object) -> str:
        raise UnavailableError("vault_unavailable", "the vault cannot be reached")

    monkeypatch.setattr("pvdm.lake.vault.Vault.write", be_unavailable)
    with pytest.raises(UnavailableError):
        publish(house, attempt)
    assert stored_attempt(house, attempt).state == "COMMITTING"
    monkeypatch.undo()
    publish(house, attempt)
    assert house.rows() == [1, 2, 3, 4]


def test_one_bad_chunk_of_a_workload_is_repaired_alone(house: House) -> None:
    house.table("returns", rows=BEFORE, text=contract("returns", more="atomicity: workload\n"))
    house.open("v", ["a", "b"], name="returns")
    good, bad = (
        house.proved("v", [(10 + at, 1, "Ulm")], chunk_id=chunk_id, name="returns", opened=False)
        for at, chunk_id in enumerate("ab")
    )
    for path in file_at(bad.prefix).rglob("*.parquet"):
        path.write_bytes(b"other")
    with pytest.raises(VerificationError):
        publish(house, good, bad)
    states = [stored_attempt(house, each).state for each in (good, bad)]
    assert states == ["COMMITTING", "VERIFICATION_FAILED"]
    repaired = house.proved("v", [(11, 1, "Ulm")], chunk_id="b", name="returns", opened=False)
    publish(house, good, repaired)
    assert house.rows("returns") == [1, 2, 10, 11]


def crash(house: House, point: str, attempt: Attempt) -> None:
    """End the Steward at this fault point of the publication, and start it again."""
    with fault.armed(point, fault.Raise(CrashError())), pytest.raises(CrashError):
        publish(house, attempt)
    house.stand.reopen()


@pytest.mark.parametrize(
    "point", ["gate.after_rehash", "gate.after_files", "catalog.after_metadata_file", "ledger.before_commit"]
)
def test_after_a_crash_before_the_transaction_nothing_is_shown_and_publishing_succeeds(
    house: House, point: str
) -> None:
    attempt = house.proved("w", NEW)
    crash(house, point, attempt)
    assert (house.rows(), stored_attempt(house, attempt).state) == ([1, 2], "COMMITTING")
    assert house.publishing().settle() == []
    publish(house, attempt)
    assert (house.rows(), len(receipt_ids(house))) == ([1, 2, 3, 4], 1)


@pytest.mark.parametrize("point", ["ledger.after_commit", "catalog.after_swap", "gate.before_receipt"])
def test_after_a_crash_after_the_transaction_nothing_doubles_and_the_receipt_is_signed_later(
    house: House, point: str
) -> None:
    attempt = house.proved("w", NEW)
    crash(house, point, attempt)
    assert (house.rows(), stored_attempt(house, attempt).state, receipt_ids(house)) == ([1, 2, 3, 4], "COMMITTED", [])
    (done,) = house.publishing().settle()
    assert (house.rows(), receipt_ids(house)) == ([1, 2, 3, 4], [done.receipt_id])
    assert publish(house, attempt) == done
    assert house.publishing().settle() == []


def test_a_receipt_that_is_signed_after_a_crash_is_about_the_state_of_its_publication(house: House) -> None:
    attempt = house.proved("w", NEW)
    crash(house, "gate.before_receipt", attempt)
    shown = house.table_state()
    house.open("w2")
    house.attempt("w2")  # the table's document has changed since
    (done,) = house.publishing().settle()
    with house.notary.ledger.read() as unit:
        stored = statements.get(unit, done.receipt_id)
    root, now = house.notary.trust.current(), house.notary.clock.now_micros()
    receipt = verify_statement(stored.envelope, root, Receipt, now=now).predicate
    assert (receipt.metadata_path, receipt.metadata_sha256) == (shown.row.pointer.location, shown.row.pointer.sha256)
    assert receipt.new_snapshot_id == shown.metadata.current_snapshot_id


def test_publishing_again_after_a_crash_signs_the_receipt(house: House) -> None:
    attempt = house.proved("w", NEW)
    crash(house, "gate.before_receipt", attempt)
    done = publish(house, attempt)
    assert receipt_ids(house) == [done.receipt_id]


def test_a_receipt_that_cannot_be_signed_is_an_unknown_state_and_signed_later(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = house.proved("w", NEW)

    def be_unavailable(*_: object) -> None:
        raise UnavailableError("outside_unavailable", "the checkpoint outside cannot be written")

    monkeypatch.setattr("pvdm.steward.record.recorder.Recorder.record", be_unavailable)
    with pytest.raises(StateUnknownError) as caught:
        publish(house, attempt)
    assert (caught.value.reason, house.rows()) == ("receipt_not_signed", [1, 2, 3, 4])
    monkeypatch.undo()
    assert len(house.publishing().settle()) == 1


def test_a_publication_that_main_does_not_show_gets_no_receipt(house: House) -> None:
    attempt = house.proved("w", NEW)
    crash(house, "catalog.after_swap", attempt)
    (path,) = sorted(file_at(house.vault.root).rglob("snap-*.avro"))
    path.write_bytes(path.read_bytes()[:-1])
    assert (house.publishing().settle(), receipt_ids(house)) == ([], [])


def test_a_refused_publication_leaves_no_file_in_the_vault(house: House) -> None:
    publish(house, house.proved("one", NEW))
    before = metadata_files(house)
    second = house.proved("two", NEW)
    verified = metadata_files(house) - before
    with pytest.raises(VerificationError):
        publish(house, second)
    assert metadata_files(house) == before | verified


def metadata_files(house: House) -> set[str]:
    folder = file_at(house.vault.root) / house.table_state().row.table_uuid / VaultKind.METADATA.value
    return {path.name for path in folder.iterdir()}


def run_at_once(house: House, calls: Sequence[Callable[[], object]]) -> list[object]:
    barrier = threading.Barrier(len(calls))
    found: list[object] = [None] * len(calls)

    def run(at: int) -> None:
        barrier.wait()
        try:
            found[at] = calls[at]()
        except PvdmError as error:
            found[at] = error.reason

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_several_publishers_of_one_attempt_publish_it_once(house: House) -> None:
    attempt = house.proved("w", NEW)
    publishers = [house.publishing() for _ in range(4)]
    done = run_at_once(house, [partial(publisher.publish, "w", [attempt.attempt_id]) for publisher in publishers])
    published = [each for each in done if each != "work_held"]
    assert published
    later = [publisher.publish("w", [attempt.attempt_id]) for publisher in publishers]
    assert [*published, *later] == [later[0]] * (len(published) + 4), "those that had to wait get it later"
    assert (house.rows(), len(receipt_ids(house))) == ([1, 2, 3, 4], 1)


def test_concurrent_publishers_of_one_table_all_succeed(each_house: House) -> None:
    found = []
    for number in (1, 2, 3, 4):
        gone = each_house.paths(of_day=number)
        found.append(each_house.proved(f"v{number}", [(10 + number, number, "Ulm")], removed=gone))
    publisher = each_house.publishing()
    done = run_at_once(each_house, [partial(publisher.publish, each.workload_id, [each.attempt_id]) for each in found])
    assert all(isinstance(each, PublicationResult) for each in done), done
    assert each_house.rows() == [11, 12, 13, 14]
    with each_house.notary.ledger.read() as unit:
        assert receipts.list_missing(unit) == []


def test_two_stewards_on_one_ledger_publish_to_one_table(each_house: House) -> None:
    """Each Steward has its own queue; only the database orders their commits."""
    found = []
    for number in (1, 2):
        gone = each_house.paths(of_day=number)
        found.append(each_house.proved(f"v{number}", [(10 + number, number, "Ulm")], removed=gone))
    other = House(each_house.stand, each_house.scene, each_house.contracts)
    first = each_house.publishing()
    notary = each_house.stand.notary
    each_house.stand.notary = opened(each_house.stand.config, each_house.stand.time)
    try:
        second = other.publishing()
        calls = [
            partial(publisher.publish, each.workload_id, [each.attempt_id])
            for publisher, each in zip((first, second), found, strict=True)
        ]
        done = run_at_once(each_house, calls)
    finally:
        each_house.stand.notary.close()
        each_house.stand.notary = notary
    assert all(isinstance(each, PublicationResult) for each in done), done
    assert each_house.rows() == [11, 12]


def test_of_two_publishers_of_one_part_one_goes_back_to_verification(house: House) -> None:
    text = contract("returns", operation="overwrite-partitions", partition={"day": "2026-11-01"})
    house.table("returns", rows=BEFORE, text=text)
    gone = house.paths("returns", of_day=1)
    found = [house.proved(f"v{at}", [(10 + at, 1, "Ulm")], name="returns", removed=gone) for at in range(2)]
    publisher = house.publishing()
    done = run_at_once(house, [partial(publisher.publish, each.workload_id, [each.attempt_id]) for each in found])
    assert sorted(isinstance(each, PublicationResult) for each in done) == [False, True]
    assert sorted(str(stored_attempt(house, each).state) for each in found) == ["COMMITTED", "VERIFYING"]
    assert len(house.rows("returns")) == 2


def test_publishing_an_attempt_of_another_workload_is_refused(house: House) -> None:
    attempt = house.proved("w", NEW)
    house.open("other")
    with pytest.raises(PvdmError) as caught:
        house.publishing().publish("other", [attempt.attempt_id])
    assert caught.value.reason == "attempt_of_other_workload"


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "changed"])
def test_a_missing_or_changed_metadata_file_of_the_table_ends_no_proved_attempt(house: House, gone: bool) -> None:
    attempt = house.proved("w", NEW)
    file = file_at(house.table_state().row.pointer.location)
    data = file.read_bytes()
    file.unlink()
    if not gone:
        file.write_bytes(data + b" ")
    with pytest.raises(UnavailableError) as caught:
        publish(house, attempt)
    assert caught.value.reason == "table_in_doubt"
    assert (caught.value.got or "").startswith("metadata_file_")
    assert (str(stored_attempt(house, attempt).state), house.disposed) == ("COMMITTING", [])
    file.write_bytes(data)
    publish(house, attempt)
    assert house.rows() == [1, 2, 3, 4]


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "changed"])
@pytest.mark.parametrize(("operation", "file"), [("append", 0), ("overwrite", 0), ("overwrite", 1)])
def test_missing_or_changed_manifests_of_main_end_no_proved_attempt(
    house: House, operation: str, file: int, gone: bool
) -> None:
    house.table("returns", rows=BEFORE, text=contract("returns", operation=operation))
    removed = house.paths("returns") if operation == "overwrite" else []
    attempt = house.proved("w", NEW, name="returns", removed=removed)
    metadata = house.table_state("returns").metadata
    head = metadata.current_snapshot
    assert head is not None
    manifests = [each.manifest_path for each in listed_manifests(metadata, head, house.files)]
    path = file_at([str(head.manifest_list), *manifests][file])
    data = path.read_bytes()
    path.unlink()
    if not gone:
        path.write_bytes(b"other")
    with pytest.raises(UnavailableError) as caught:
        publish(house, attempt)
    assert caught.value.reason == "table_in_doubt"
    assert (str(stored_attempt(house, attempt).state), house.disposed) == ("COMMITTING", [])
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    publish(house, attempt)
    assert house.rows("returns") == ([3, 4] if removed else [1, 2, 3, 4])


def test_a_trust_root_that_was_not_renewed_in_time_ends_no_proved_attempt(house: House) -> None:
    house.stand.time.pass_by(198 * DAY)
    attempt = house.proved("w", NEW, lifetime=6 * DAY)
    house.stand.time.pass_by(3 * DAY)
    with pytest.raises(UnavailableError) as caught:
        publish(house, attempt)
    assert (caught.value.reason, (caught.value.got or "").partition(":")[0]) == ("trust_in_doubt", "trust_root_expired")
    assert (str(stored_attempt(house, attempt).state), house.disposed) == ("COMMITTING", [])


def test_a_steward_whose_receipt_nobody_would_accept_publishes_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example one whose configured name is not the one in the trust root."""
    attempt = house.proved("w", NEW)
    monkeypatch.setattr(house.notary.trust, "notary", "steward-two")
    with pytest.raises(UnavailableError) as caught:
        publish(house, attempt)
    assert (caught.value.reason, (caught.value.got or "").partition(":")[0]) == (
        "trust_in_doubt",
        "trust_root_lacks_epoch",
    )
    assert (str(stored_attempt(house, attempt).state), house.disposed) == ("COMMITTING", [])


@pytest.mark.parametrize("role", [Role.PRODUCER, Role.OPERATOR])
@pytest.mark.parametrize("proved", [False, True], ids=["VERIFYING", "COMMITTING"])
def test_nobody_can_move_or_remove_the_branch_of_an_attempt_that_no_longer_stages(
    house: House, role: Role, proved: bool
) -> None:
    """Otherwise the gate would refuse the attempt, and its proof would be lost."""
    if proved:
        attempt = house.proved("w", NEW)
    else:
        house.open("w")
        attempt = house.attempt("w")
        house.stage(attempt, NEW)
        house.notary.workloads.end_staging(house.scene.grant(Role.PRODUCER, "sales"), attempt.attempt_id)
    refs = house.table_state().metadata.refs
    head, shown = refs[attempt.branch].snapshot_id, refs["main"].snapshot_id
    gone: Doc = {"action": "remove-snapshot-ref", "ref-name": attempt.branch}
    moved: Doc = {"action": "set-snapshot-ref", "ref-name": attempt.branch, "type": "branch", "snapshot-id": shown}
    by = house.scene.grant(role, "sales")
    for updates in ([gone], [gone, {"action": "remove-snapshots", "snapshot-ids": [head]}], [moved]):
        with pytest.raises(NotAllowedError) as caught:
            house.notary.catalog.commits.commit(by, [Change(SALES, "orders", (), updates)])
        assert caught.value.reason == "attempt_not_staging", updates
    assert house.table_state().metadata.refs[attempt.branch].snapshot_id == head
    if proved:
        publish(house, attempt)
        assert house.rows() == [1, 2, 3, 4]
