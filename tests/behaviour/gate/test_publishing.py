"""The publishing desk: attempts moved by what the gate says, once, by whoever comes first, whatever crashes."""

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
def either(ledger_url: str, tmp_path: Path) -> Iterator[House]:
    """The same on each database in turn."""
    with house_at(tmp_path, ledger_url=ledger_url) as made:
        made.table(rows=BEFORE, text=contract(operation="overwrite-partitions"))
        yield made


def publish(house: House, *found: Attempt) -> PublicationResult:
    return house.publishing().publish(found[0].workload_id, [attempt.attempt_id for attempt in found])


def of(house: House, attempt: Attempt) -> Attempt:
    with house.notary.ledger.read() as unit:
        return attempts.get(unit, attempt.attempt_id)


def receipts_of(house: House) -> list[str]:
    with house.notary.ledger.read() as unit:
        return [each.statement_id for each in statements.of_kind(unit, StatementKind.RECEIPT)]


def test_a_publication_is_receipted_in_the_notarys_name(house: House) -> None:
    done = publish(house, house.proved("w", NEW))
    with house.notary.ledger.read() as unit:
        stored = statements.get(unit, done.receipt_id)
    root, now = house.notary.trust.current(), house.notary.clock.now_micros()
    said = verify_statement(stored.envelope, root, Receipt, now=now).predicate
    state = house.found()
    assert (said.new_snapshot_id, said.metadata_sha256) == (
        state.metadata.current_snapshot_id,
        state.row.pointer.sha256,
    )
    assert (said.proof_ids, said.override_id, said.workload_id) == (done.shown.proof_ids, None, "w")
    assert house.notary.log.proof(stored.log_index)


def test_what_was_published_is_cleaned_up_after(house: House) -> None:
    attempt = house.proved("w", NEW)
    publish(house, attempt)
    assert house.disposed == [attempt.attempt_id]


def test_publishing_again_tells_what_came_of_it(house: House) -> None:
    attempt = house.proved("w", NEW)
    assert publish(house, attempt) == publish(house, attempt)
    assert (house.rows(), len(receipts_of(house))) == ([1, 2, 3, 4], 1)


def test_a_refusal_ends_the_attempt_and_stays_readable(house: House) -> None:
    attempt = house.proved("w", NEW)
    for path in file_at(attempt.prefix).rglob("*.parquet"):
        path.write_bytes(b"other")
    with pytest.raises(VerificationError):
        publish(house, attempt)
    ended = of(house, attempt)
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
    assert (caught.value.reason, of(house, attempt).state) == ("vault_file_changed", "VERIFICATION_FAILED")


@pytest.mark.parametrize("why", ["expired", "schema moved"])
def test_what_another_verification_may_cure_is_verified_again_under_a_new_nonce(house: House, why: str) -> None:
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
    assert (of(house, attempt).state, old.state, after.nonce == before.nonce) == ("VERIFYING", "ABORTED", False)
    assert of(house, attempt).staged_snapshot_id == attempt.staged_snapshot_id
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
    assert (of(house, second).state, house.rows("returns")) == ("VERIFYING", [2, 10])


def test_what_is_nobodys_verdict_leaves_the_attempt_where_it_is(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = house.proved("w", NEW)

    def away(*_: object) -> str:
        raise UnavailableError("vault_unavailable", "the vault cannot be reached")

    monkeypatch.setattr("pvdm.lake.vault.Vault.write", away)
    with pytest.raises(UnavailableError):
        publish(house, attempt)
    assert of(house, attempt).state == "COMMITTING"
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
    assert (of(house, good).state, of(house, bad).state) == ("COMMITTING", "VERIFICATION_FAILED")
    repaired = house.proved("v", [(11, 1, "Ulm")], chunk_id="b", name="returns", opened=False)
    publish(house, good, repaired)
    assert house.rows("returns") == [1, 2, 10, 11]


def crash(house: House, point: str, attempt: Attempt) -> None:
    """The Steward ends at this point of the publication, and starts again."""
    with fault.armed(point, fault.Raise(CrashError())), pytest.raises(CrashError):
        publish(house, attempt)
    house.stand.reopen()


@pytest.mark.parametrize(
    "point", ["gate.after_rehash", "gate.after_files", "catalog.after_metadata_file", "ledger.before_commit"]
)
def test_a_crash_before_the_transaction_leaves_nothing_shown_and_publishing_goes_on(house: House, point: str) -> None:
    attempt = house.proved("w", NEW)
    crash(house, point, attempt)
    assert (house.rows(), of(house, attempt).state) == ([1, 2], "COMMITTING")
    assert house.publishing().settle() == []
    publish(house, attempt)
    assert (house.rows(), len(receipts_of(house))) == ([1, 2, 3, 4], 1)


@pytest.mark.parametrize("point", ["ledger.after_commit", "catalog.after_swap", "gate.before_receipt"])
def test_a_crash_after_the_transaction_doubles_nothing_and_the_receipt_is_made_good(house: House, point: str) -> None:
    attempt = house.proved("w", NEW)
    crash(house, point, attempt)
    assert (house.rows(), of(house, attempt).state, receipts_of(house)) == ([1, 2, 3, 4], "COMMITTED", [])
    (done,) = house.publishing().settle()
    assert (house.rows(), receipts_of(house)) == ([1, 2, 3, 4], [done.receipt_id])
    assert publish(house, attempt) == done
    assert house.publishing().settle() == []


def test_the_receipt_after_a_crash_says_what_it_would_have_said(house: House) -> None:
    attempt = house.proved("w", NEW)
    crash(house, "gate.before_receipt", attempt)
    shown = house.found()
    house.open("w2")
    house.attempt("w2")  # the table's document has changed since
    (done,) = house.publishing().settle()
    with house.notary.ledger.read() as unit:
        stored = statements.get(unit, done.receipt_id)
    root, now = house.notary.trust.current(), house.notary.clock.now_micros()
    said = verify_statement(stored.envelope, root, Receipt, now=now).predicate
    assert (said.metadata_path, said.metadata_sha256) == (shown.row.pointer.location, shown.row.pointer.sha256)
    assert said.new_snapshot_id == shown.metadata.current_snapshot_id


def test_asking_again_after_a_crash_makes_the_receipt_good_too(house: House) -> None:
    attempt = house.proved("w", NEW)
    crash(house, "gate.before_receipt", attempt)
    done = publish(house, attempt)
    assert receipts_of(house) == [done.receipt_id]


def test_a_receipt_that_cannot_be_signed_is_told_as_unknown_and_made_good(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = house.proved("w", NEW)

    def away(*_: object) -> None:
        raise UnavailableError("outside_unavailable", "the checkpoint outside cannot be written")

    monkeypatch.setattr("pvdm.steward.record.recorder.Recorder.record", away)
    with pytest.raises(StateUnknownError) as caught:
        publish(house, attempt)
    assert (caught.value.reason, house.rows()) == ("receipt_not_signed", [1, 2, 3, 4])
    monkeypatch.undo()
    assert len(house.publishing().settle()) == 1


def test_a_publication_that_main_does_not_show_stays_without_receipt(house: House) -> None:
    attempt = house.proved("w", NEW)
    crash(house, "catalog.after_swap", attempt)
    (path,) = sorted(file_at(house.vault.root).rglob("snap-*.avro"))
    path.write_bytes(path.read_bytes()[:-1])
    assert (house.publishing().settle(), receipts_of(house)) == ([], [])


def test_a_refused_publication_leaves_no_file_in_the_vault(house: House) -> None:
    publish(house, house.proved("one", NEW))
    before = metadata_files(house)
    second = house.proved("two", NEW)
    verified = metadata_files(house) - before
    with pytest.raises(VerificationError):
        publish(house, second)
    assert metadata_files(house) == before | verified


def metadata_files(house: House) -> set[str]:
    folder = file_at(house.vault.root) / house.found().row.table_uuid / VaultKind.METADATA.value
    return {path.name for path in folder.iterdir()}


def together(house: House, calls: Sequence[Callable[[], object]]) -> list[object]:
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
    desks = [house.publishing() for _ in range(4)]
    done = together(house, [partial(desk.publish, "w", [attempt.attempt_id]) for desk in desks])
    published = [each for each in done if each != "work_held"]
    assert published
    later = [desk.publish("w", [attempt.attempt_id]) for desk in desks]
    assert [*published, *later] == [later[0]] * (len(published) + 4), "and who was told to wait finds what came of it"
    assert (house.rows(), len(receipts_of(house))) == ([1, 2, 3, 4], 1)


def test_publishers_of_one_table_each_get_their_turn(either: House) -> None:
    found = []
    for number in (1, 2, 3, 4):
        gone = either.paths(of_day=number)
        found.append(either.proved(f"v{number}", [(10 + number, number, "Ulm")], removed=gone))
    desk = either.publishing()
    done = together(either, [partial(desk.publish, each.workload_id, [each.attempt_id]) for each in found])
    assert all(isinstance(each, PublicationResult) for each in done), done
    assert either.rows() == [11, 12, 13, 14]
    with either.notary.ledger.read() as unit:
        assert receipts.list_missing(unit) == []


def test_two_stewards_on_one_ledger_publish_to_one_table(either: House) -> None:
    """Each has its own queue; between them stands the database."""
    found = []
    for number in (1, 2):
        gone = either.paths(of_day=number)
        found.append(either.proved(f"v{number}", [(10 + number, number, "Ulm")], removed=gone))
    other = House(either.stand, either.scene, either.contracts)
    first = either.publishing()
    notary = either.stand.notary
    either.stand.notary = opened(either.stand.config, either.stand.time)
    try:
        second = other.publishing()
        calls = [
            partial(desk.publish, each.workload_id, [each.attempt_id])
            for desk, each in zip((first, second), found, strict=True)
        ]
        done = together(either, calls)
    finally:
        either.stand.notary.close()
        either.stand.notary = notary
    assert all(isinstance(each, PublicationResult) for each in done), done
    assert either.rows() == [11, 12]


def test_of_two_publishers_of_one_part_one_is_sent_back(house: House) -> None:
    text = contract("returns", operation="overwrite-partitions", partition={"day": "2026-11-01"})
    house.table("returns", rows=BEFORE, text=text)
    gone = house.paths("returns", of_day=1)
    found = [house.proved(f"v{at}", [(10 + at, 1, "Ulm")], name="returns", removed=gone) for at in range(2)]
    desk = house.publishing()
    done = together(house, [partial(desk.publish, each.workload_id, [each.attempt_id]) for each in found])
    assert sorted(isinstance(each, PublicationResult) for each in done) == [False, True]
    assert sorted(str(of(house, each).state) for each in found) == ["COMMITTED", "VERIFYING"]
    assert len(house.rows("returns")) == 2


def test_an_attempt_is_published_for_its_own_workload(house: House) -> None:
    attempt = house.proved("w", NEW)
    house.open("other")
    with pytest.raises(PvdmError) as caught:
        house.publishing().publish("other", [attempt.attempt_id])
    assert caught.value.reason == "attempt_of_other_workload"


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "changed"])
def test_what_is_wrong_with_the_tables_own_document_ends_no_proved_attempt(house: House, gone: bool) -> None:
    attempt = house.proved("w", NEW)
    file = file_at(house.found().row.pointer.location)
    data = file.read_bytes()
    file.unlink()
    if not gone:
        file.write_bytes(data + b" ")
    with pytest.raises(UnavailableError) as caught:
        publish(house, attempt)
    assert caught.value.reason == "table_in_doubt"
    assert (caught.value.got or "").startswith("metadata_file_")
    assert (str(of(house, attempt).state), house.disposed) == ("COMMITTING", [])
    file.write_bytes(data)
    publish(house, attempt)
    assert house.rows() == [1, 2, 3, 4]


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "changed"])
@pytest.mark.parametrize(("operation", "file"), [("append", 0), ("overwrite", 0), ("overwrite", 1)])
def test_what_is_wrong_with_the_manifests_of_main_ends_no_proved_attempt(
    house: House, operation: str, file: int, gone: bool
) -> None:
    house.table("returns", rows=BEFORE, text=contract("returns", operation=operation))
    removed = house.paths("returns") if operation == "overwrite" else []
    attempt = house.proved("w", NEW, name="returns", removed=removed)
    metadata = house.found("returns").metadata
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
    assert (str(of(house, attempt).state), house.disposed) == ("COMMITTING", [])
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
    assert (str(of(house, attempt).state), house.disposed) == ("COMMITTING", [])


def test_a_steward_whose_receipt_nobody_would_accept_publishes_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was configured under another name than the trust root has: the proof was another Steward's."""
    attempt = house.proved("w", NEW)
    monkeypatch.setattr(house.notary.trust, "notary", "steward-two")
    with pytest.raises(UnavailableError) as caught:
        publish(house, attempt)
    assert (caught.value.reason, (caught.value.got or "").partition(":")[0]) == (
        "trust_in_doubt",
        "trust_root_lacks_epoch",
    )
    assert (str(of(house, attempt).state), house.disposed) == ("COMMITTING", [])


@pytest.mark.parametrize("role", [Role.PRODUCER, Role.OPERATOR])
@pytest.mark.parametrize("proved", [False, True], ids=["VERIFYING", "COMMITTING"])
def test_nobody_moves_or_removes_the_branch_of_what_was_handed_in(house: House, role: Role, proved: bool) -> None:
    """The gate would refuse it then, and what was proved would be lost."""
    if proved:
        attempt = house.proved("w", NEW)
    else:
        house.open("w")
        attempt = house.attempt("w")
        house.stage(attempt, NEW)
        house.notary.workloads.end_staging(house.scene.grant(Role.PRODUCER, "sales"), attempt.attempt_id)
    refs = house.found().metadata.refs
    head, shown = refs[attempt.branch].snapshot_id, refs["main"].snapshot_id
    gone: Doc = {"action": "remove-snapshot-ref", "ref-name": attempt.branch}
    moved: Doc = {"action": "set-snapshot-ref", "ref-name": attempt.branch, "type": "branch", "snapshot-id": shown}
    by = house.scene.grant(role, "sales")
    for updates in ([gone], [gone, {"action": "remove-snapshots", "snapshot-ids": [head]}], [moved]):
        with pytest.raises(NotAllowedError) as caught:
            house.notary.catalog.commits.commit(by, [Change(SALES, "orders", (), updates)])
        assert caught.value.reason == "attempt_not_staging", updates
    assert house.found().metadata.refs[attempt.branch].snapshot_id == head
    if proved:
        publish(house, attempt)
        assert house.rows() == [1, 2, 3, 4]
