"""A restored ledger shows what was published after its backup, as far as receipts, documents and files vouch for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from pvdm.catalog.commit import Change
from pvdm.errors import UnavailableError
from pvdm.lake.files import MetadataFiles
from pvdm.lake.read.entries import listed_manifests, read_listed
from pvdm.ledger.work import workloads
from pvdm.metadata.audit.report import AuditReport
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.migration import ProtectionAction
from pvdm.model.states import AttemptState, WorkloadState
from pvdm.steward.restore.restore import Restored
from tests.behaviour.gate.test_gate_sources import publish_day, ready
from tests.support.audit.expiring_history import audited
from tests.support.gate.approvals import SALES, Doc
from tests.support.gate.attacks import BEFORE, publish
from tests.support.gate.protected_tables import SOURCE, House, house_at
from tests.support.ledger.databases import memory_folder
from tests.support.steward import restore
from tests.support.stores.places import file_at


@dataclass(slots=True)
class Lost:
    """A Steward with a protected table, and the way to lose its database after a backup."""

    house: House
    safe: restore.Scene

    def publish(self, workload_id: str, day: int, source: str = SOURCE.uuid) -> int:
        """Publish a row of this day; the snapshot that shows it."""
        publish_day(self.house, ready(self.house, workload_id, day, source), day)
        return self.head()

    def head(self) -> int:
        head = self.house.found().metadata.current_snapshot_id
        assert head is not None
        return head

    def document(self) -> str:
        return self.house.found().row.pointer.location

    def files(self) -> dict[str, str]:
        """One file of each kind that the newest publication wrote."""
        metadata = self.house.found().metadata
        assert metadata.current_snapshot is not None
        assert metadata.current_snapshot.manifest_list is not None
        listed = listed_manifests(metadata, metadata.current_snapshot, self.house.files)
        own = next(each for each in listed if each.added_snapshot_id == metadata.current_snapshot_id)
        entries = read_listed(metadata, own, self.house.files).entries
        data = next(each.data_file.file_path for each in entries if each.snapshot_id == metadata.current_snapshot_id)
        return {"data": data, "manifest": own.manifest_path, "list": metadata.current_snapshot.manifest_list}

    def lose_and_restore(self, *, accept_lost: bool = False, accept_missing: bool = False) -> Restored:
        self.safe.lose_the_database()
        done = self.safe.restore(replace(self.safe.order, accept_lost=accept_lost, accept_missing=accept_missing))
        self.safe.start()
        self.safe.activate_new_epoch()
        return done

    def audit(self) -> AuditReport:
        return audited(self.house)


@pytest.fixture
def lost() -> Iterator[Lost]:
    with (
        memory_folder() as folder,
        house_at(folder, changed=lambda config: replace(config, archive=folder / "archive")) as house,
    ):
        house.table(rows=BEFORE)
        yield Lost(house, restore.Scene(house.stand))


def test_what_was_published_after_the_backup_is_shown_again(lost: Lost) -> None:
    lost.publish("one", 5)
    lost.safe.back_up()
    lost.publish("two", 6)
    head = lost.publish("three", 7)
    lost.lose_and_restore()
    assert lost.house.rows() == [1, 2, 15, 16, 17]
    assert lost.head() == head
    assert lost.audit().holds


def test_without_its_document_a_publication_stops_the_restore_and_is_named(lost: Lost) -> None:
    lost.safe.back_up()
    head = lost.publish("two", 6)
    document = lost.document()
    file_at(document).unlink()
    lost.safe.lose_the_database()
    before = lost.safe.ledger.read_bytes()
    error = restore.refused(lost.safe.restore, "restore_publications_lost")
    assert error.message == "1 publication with a receipt cannot be shown again"
    assert error.got == f"sales.orders snapshot {head} of two (metadata_file_missing: {document})"
    assert lost.safe.ledger.read_bytes() == before


def test_a_receipt_whose_snapshot_main_lacks_fails_the_audit(lost: Lost) -> None:
    lost.publish("one", 5)
    lost.safe.back_up()
    head = lost.publish("two", 6)
    file_at(lost.document()).unlink()
    (named,) = lost.lose_and_restore(accept_lost=True).lost_publications
    assert (named.table, named.snapshot_id, named.workload_id, named.code) == (
        "sales.orders",
        str(head),
        "two",
        "metadata_file_missing",
    )
    assert lost.house.rows() == [1, 2, 15]
    report = lost.audit()
    assert [finding.code for finding in report.findings] == ["audit_receipt_without_snapshot"]
    assert not report.holds


def test_the_table_goes_as_far_as_documents_are_there(lost: Lost) -> None:
    lost.safe.back_up()
    reached = lost.publish("one", 5)
    lost.publish("two", 6)
    file_at(lost.document()).unlink()
    done = lost.lose_and_restore(accept_lost=True)
    assert [(each.table, each.snapshot_id, each.created) for each in done.advanced] == [
        ("sales.orders", str(reached), False)
    ]
    assert [each.workload_id for each in done.lost_publications] == ["two"]
    assert lost.house.rows() == [1, 2, 15]


@pytest.mark.parametrize("workload_id", ["two", "two-again"])
def test_what_is_lost_is_published_again_under_the_same_or_another_id(lost: Lost, workload_id: str) -> None:
    lost.publish("one", 5)
    lost.safe.back_up()
    lost.publish("two", 6)
    file_at(lost.document()).unlink()
    done = lost.lose_and_restore(accept_lost=True)
    assert (done.spent, done.blocked) == ((), ())
    lost.publish(workload_id, 6)
    assert lost.house.rows() == [1, 2, 15, 16]


def test_a_replaced_metadata_file_is_not_shown(lost: Lost) -> None:
    lost.publish("one", 5)
    shown = file_at(lost.document()).read_bytes()
    lost.safe.back_up()
    lost.publish("two", 6)
    file_at(lost.document()).write_bytes(shown.replace(b'"word"', b'"other"') + b" ")
    (named,) = lost.lose_and_restore(accept_lost=True).lost_publications
    assert named.code == "metadata_file_changed"
    assert lost.house.rows() == [1, 2, 15]


def test_a_document_without_a_receipt_is_not_shown_though_it_lies_in_the_folder(lost: Lost) -> None:
    lost.publish("one", 5)
    lost.safe.back_up()
    lost.publish("two", 6)
    place = file_at(lost.document())
    document = json.loads(place.read_bytes())
    document["properties"]["planted"] = "yes"
    planted = place.with_name(f"99999-{'ab' * 16}.metadata.json")
    planted.write_text(json.dumps(document))
    assert lost.lose_and_restore().lost_publications == ()
    assert "planted" not in lost.house.found().metadata.properties


@pytest.mark.parametrize(
    ("what", "code"),
    [("data", "published_bytes_changed"), ("manifest", "audit_manifests_changed"), ("list", "audit_list_changed")],
)
def test_a_publication_whose_bytes_were_changed_is_not_shown_and_the_file_is_named(
    lost: Lost, what: str, code: str
) -> None:
    lost.publish("one", 5)
    lost.safe.back_up()
    lost.publish("two", 6)
    location = lost.files()[what]
    path = file_at(location)
    path.write_bytes(flipped(path.read_bytes()))
    (named,) = lost.lose_and_restore(accept_lost=True).lost_publications
    assert (named.code, named.file) == (code, location)
    assert location in named.why
    assert lost.house.rows() == [1, 2, 15]


def flipped(data: bytes) -> bytes:
    """One byte in the middle is other."""
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("what", ["data", "manifest", "list"])
def test_a_publication_whose_files_are_gone_is_not_shown_and_the_file_is_named(lost: Lost, what: str) -> None:
    lost.publish("one", 5)
    lost.safe.back_up()
    lost.publish("two", 6)
    location = lost.files()[what]
    file_at(location).unlink()
    (named,) = lost.lose_and_restore(accept_lost=True).lost_publications
    assert (named.code, named.file) == ("file_missing", location)
    assert lost.house.rows() == [1, 2, 15]


def test_a_publication_whose_proof_is_gone_is_not_shown(lost: Lost) -> None:
    lost.publish("one", 5)
    lost.safe.back_up()
    lost.publish("two", 6)
    *_, proof = lost.safe.statements(StatementKind.PROOF)
    lost.safe.lose_envelope(proof.envelope)
    (named,) = lost.lose_and_restore(accept_lost=True, accept_missing=True).lost_publications
    assert (named.code, named.file) == ("audit_proof_missing", None)
    assert lost.house.rows() == [1, 2, 15]


def test_a_folder_that_cannot_be_reached_stops_the_restore(lost: Lost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is away is no loss: nothing is given up because of it."""
    lost.safe.back_up()
    lost.publish("two", 6)
    lost.safe.lose_the_database()

    def away(*_: object) -> bytes:
        raise UnavailableError("metadata_files_unavailable", "the disk is away")

    with monkeypatch.context() as patched:
        patched.setattr(MetadataFiles, "read", away)
        order = replace(lost.safe.order, accept_lost=True)
        restore.refused(lambda: lost.safe.restore(order), "metadata_files_unavailable")
    assert lost.lose_and_restore().lost_publications == ()


def test_an_attempt_that_the_backup_has_under_way_is_committed_by_its_receipt(lost: Lost) -> None:
    lost.house.open("one")
    attempt = lost.house.attempt("one")
    base = lost.head()
    files = lost.house.stage(attempt, [(15, 5, "Ulm")])
    lost.safe.back_up()
    publish_day(lost.house, lost.house.prove(attempt, files, base), 5)
    done = lost.lose_and_restore()
    assert (done.settled, done.abandoned) == ((attempt.attempt_id,), ())
    assert lost.house.state_of(attempt) == AttemptState.COMMITTED
    with lost.house.notary.ledger.read() as unit:
        assert workloads.get(unit, "one").state is WorkloadState.COMPLETE
    assert lost.house.rows() == [1, 2, 15]


def test_branches_of_attempts_that_are_lost_go_with_their_snapshots(lost: Lost) -> None:
    """No clean-up would remove them, and their files may be gone by now."""
    lost.safe.back_up()
    lost.house.open("failed")
    tried = lost.house.attempt("failed")
    lost.house.stage(tried, [(40, 9, "Kiel")])
    head = lost.publish("one", 5)
    assert sorted(lost.house.found().metadata.refs) == sorted(["main", tried.branch])
    lost.lose_and_restore()
    found = lost.house.found().metadata
    assert (list(found.refs), found.current_snapshot_id) == (["main"], head)
    assert {each.snapshot_id for each in found.snapshots} == {each.snapshot_id for each in found.ancestry(head)}
    assert lost.audit().holds


def test_a_branch_of_the_producers_own_stays(lost: Lost) -> None:
    lost.safe.back_up()
    update: Doc = {"action": "set-snapshot-ref", "ref-name": "nightly", "type": "branch", "snapshot-id": lost.head()}
    lost.house.notary.catalog.commits.commit(lost.house.scene.grant(), [Change(SALES, "orders", (), [update])])
    lost.publish("one", 5)
    lost.lose_and_restore()
    assert sorted(lost.house.found().metadata.refs) == ["main", "nightly"]


def test_a_table_that_the_backup_lacks_is_there_again_with_its_rows_and_its_contract(lost: Lost) -> None:
    lost.safe.back_up()
    lost.house.table("later", rows=BEFORE)
    lost.house.open("one", name="later")
    publish(lost.house, lost.house.proved("one", [(15, 5, "Ulm")], name="later", opened=False), name="later")
    row = lost.house.found("later").row
    done = lost.lose_and_restore()
    assert [(each.table, each.created) for each in done.advanced] == [("sales.later", True)]
    assert [(each.name, each.contract_sha256) for each in done.protected] == [("sales.later", row.contract_hash)]
    found = lost.house.found("later").row
    assert (found.contract_hash, found.domain, found.location) == (row.contract_hash, "sales", row.location)
    assert lost.house.rows("later") == [1, 2, 15]


def test_a_table_whose_name_is_another_ones_in_the_backup_is_named(lost: Lost) -> None:
    lost.house.scene.make("later")
    lost.safe.back_up()
    lost.house.notary.catalog.tables.drop(lost.house.scene.grant(), SALES, "later")
    lost.house.table("later", rows=BEFORE)
    lost.house.open("one", name="later")
    publish(lost.house, lost.house.proved("one", [(15, 5, "Ulm")], name="later", opened=False), name="later")
    (named,) = lost.lose_and_restore(accept_lost=True).lost_publications
    assert (named.table, named.code) == ("sales.later", "restore_table_taken")
    assert lost.house.found("later").metadata.current_snapshot_id is None


def test_a_table_whose_document_of_the_backup_is_gone_shows_that_of_its_receipt(lost: Lost) -> None:
    lost.publish("one", 5)
    lost.safe.back_up()
    old = lost.document()
    lost.publish("two", 6)
    file_at(old).unlink()
    lost.lose_and_restore()
    assert lost.house.rows() == [1, 2, 15, 16]


def test_a_migration_of_the_lost_time_is_made_again(lost: Lost) -> None:
    lost.publish("one", 5)
    lost.safe.back_up()
    lost.house.scene.migrate(lost.house.scene.migration())
    assert lost.house.found().metadata.properties["word"] == "mine"
    done = lost.lose_and_restore()
    assert done.migrated == ()
    assert lost.house.found().metadata.properties["word"] == "mine"
    assert lost.audit().holds


def test_a_publication_and_the_migrations_around_it_are_there_again(lost: Lost) -> None:
    lost.safe.back_up()
    scene = lost.house.scene
    scene.migrate(scene.migration([set_property("first", "1")]))
    lost.publish("one", 5)
    scene.migrate(scene.migration([set_property("second", "2")]))
    done = lost.lose_and_restore()
    found = lost.house.found().metadata.properties
    assert (found["first"], found["second"], done.migrated) == ("1", "2", ())
    assert lost.house.rows() == [1, 2, 15]
    assert lost.audit().holds


def set_property(name: str, text: str) -> dict[str, object]:
    return {"action": "set-properties", "updates": {name: text}}


def test_a_table_that_was_unprotected_rewritten_and_protected_again_comes_back_protected(lost: Lost) -> None:
    source = lost.house.scene.found("orders", ("raw",)).row.table_uuid
    lost.publish("one", 5, source)
    lost.safe.back_up()
    scene = lost.house.scene
    scene.protect(scene.protection(contract=lost.house.contracts["orders"], action=ProtectionAction.UNPROTECT))
    place = f"{lost.house.found().metadata.location}/data/free"
    lost.house.commit(lost.house.written(place, [(30, 9, "Kiel")]), "main")
    lost.house.protect(lost.house.contracts["orders"])
    lost.publish("two", 6, source)
    contract, before = lost.house.found().row.contract_hash, lost.audit()
    lost.lose_and_restore()
    assert lost.house.found().row.contract_hash == contract
    assert lost.house.rows() == [1, 2, 15, 16, 30]
    after = lost.audit()
    assert (after.findings, after.counts) == (before.findings, before.counts)


def test_a_publication_from_before_a_time_without_protection_that_main_lacks_is_unclear_and_used_up(lost: Lost) -> None:
    """Somebody set `main` back while the table was not protected, and wrote without a proof."""
    source, scene = lost.house.scene.found("orders", ("raw",)).row.table_uuid, lost.house.scene
    lost.safe.back_up()
    first = lost.head()
    unclear = lost.publish("one", 5, source)
    scene.protect(scene.protection(contract=lost.house.contracts["orders"], action=ProtectionAction.UNPROTECT))
    back: Doc = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": first}
    lost.house.notary.catalog.commits.commit(scene.grant(), [Change(SALES, "orders", (), [back])])
    place = f"{lost.house.found().metadata.location}/data/free"
    lost.house.commit(lost.house.written(place, [(30, 9, "Kiel")]), "main")
    lost.house.protect(lost.house.contracts["orders"])
    lost.publish("two", 6, source)
    lost.safe.lose_the_database()
    error = restore.refused(lost.safe.restore, "restore_publications_lost")
    assert error.got == f"sales.orders snapshot {unclear} of one (restore_publication_unclear)"
    done = lost.lose_and_restore(accept_lost=True)
    assert [(each.code, each.workload_id) for each in done.lost_publications] == [
        ("restore_publication_unclear", "one")
    ]
    assert (lost.house.rows(), done.spent) == ([1, 2, 16, 30], ("one", "two"))
    assert "one" in {each.workload_id for each in done.blocked}
