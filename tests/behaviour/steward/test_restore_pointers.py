"""A restore shows publications from after the backup if their receipts, metadata files and data files are intact."""

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
from pvdm.steward.restore.restore import RestoreResult
from tests.behaviour.gate.test_gate_sources import prove_day, publish_day
from tests.support.audit.expiring_history import audit_orders
from tests.support.gate.approvals import SALES, Doc
from tests.support.gate.attacks import BEFORE, publish
from tests.support.gate.protected_tables import SOURCE, House, house_at
from tests.support.ledger.databases import memory_folder
from tests.support.steward import restore
from tests.support.stores.places import file_at


@dataclass(slots=True)
class RestorableSteward:
    """A Steward with a protected table; `recovery` backs up, loses and restores its database."""

    house: House
    recovery: restore.Scene

    def publish(self, workload_id: str, day: int, source: str = SOURCE.uuid) -> int:
        """Publish a row of this day. Returns its snapshot."""
        publish_day(self.house, prove_day(self.house, workload_id, day, source), day)
        return self.head()

    def head(self) -> int:
        head = self.house.table_state().metadata.current_snapshot_id
        assert head is not None
        return head

    def metadata_file(self) -> str:
        return self.house.table_state().row.pointer.location

    def files(self) -> dict[str, str]:
        """One file of each kind that the newest publication wrote."""
        metadata = self.house.table_state().metadata
        assert metadata.current_snapshot is not None
        assert metadata.current_snapshot.manifest_list is not None
        listed = listed_manifests(metadata, metadata.current_snapshot, self.house.files)
        own = next(each for each in listed if each.added_snapshot_id == metadata.current_snapshot_id)
        entries = read_listed(metadata, own, self.house.files).entries
        data = next(each.data_file.file_path for each in entries if each.snapshot_id == metadata.current_snapshot_id)
        return {"data": data, "manifest": own.manifest_path, "list": metadata.current_snapshot.manifest_list}

    def lose_and_restore(self, *, accept_lost: bool = False, accept_missing: bool = False) -> RestoreResult:
        self.recovery.lose_the_database()
        order = replace(self.recovery.order, accept_lost=accept_lost, accept_missing=accept_missing)
        done = self.recovery.restore(order)
        self.recovery.start()
        self.recovery.activate_new_epoch()
        return done

    def audit(self) -> AuditReport:
        return audit_orders(self.house)


@pytest.fixture
def steward() -> Iterator[RestorableSteward]:
    with (
        memory_folder() as folder,
        house_at(folder, changed=lambda config: replace(config, archive=folder / "archive")) as house,
    ):
        house.table(rows=BEFORE)
        yield RestorableSteward(house, restore.Scene(house.stand))


def test_publications_from_after_the_backup_are_visible_again(steward: RestorableSteward) -> None:
    steward.publish("one", 5)
    steward.recovery.back_up()
    steward.publish("two", 6)
    head = steward.publish("three", 7)
    steward.lose_and_restore()
    assert steward.house.rows() == [1, 2, 15, 16, 17]
    assert steward.head() == head
    assert steward.audit().holds


def test_a_publication_whose_metadata_file_is_missing_stops_the_restore_and_is_named(
    steward: RestorableSteward,
) -> None:
    steward.recovery.back_up()
    head = steward.publish("two", 6)
    metadata_file = steward.metadata_file()
    file_at(metadata_file).unlink()
    steward.recovery.lose_the_database()
    before = steward.recovery.ledger.read_bytes()
    error = restore.refused(steward.recovery.restore, "restore_publications_lost")
    assert error.message == "1 publication with a receipt cannot be shown again"
    assert error.got == f"sales.orders snapshot {head} of two (metadata_file_missing: {metadata_file})"
    assert steward.recovery.ledger.read_bytes() == before


def test_a_receipt_whose_snapshot_is_not_in_main_fails_the_audit(steward: RestorableSteward) -> None:
    steward.publish("one", 5)
    steward.recovery.back_up()
    head = steward.publish("two", 6)
    file_at(steward.metadata_file()).unlink()
    (publication,) = steward.lose_and_restore(accept_lost=True).lost_publications
    assert (publication.table, publication.snapshot_id, publication.workload_id, publication.code) == (
        "sales.orders",
        str(head),
        "two",
        "metadata_file_missing",
    )
    assert steward.house.rows() == [1, 2, 15]
    report = steward.audit()
    assert [finding.code for finding in report.findings] == ["audit_receipt_without_snapshot"]
    assert not report.holds


def test_a_table_is_restored_up_to_its_last_metadata_file_that_exists(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    reached = steward.publish("one", 5)
    steward.publish("two", 6)
    file_at(steward.metadata_file()).unlink()
    done = steward.lose_and_restore(accept_lost=True)
    assert [(each.table, each.snapshot_id, each.created) for each in done.advanced] == [
        ("sales.orders", str(reached), False)
    ]
    assert [each.workload_id for each in done.lost_publications] == ["two"]
    assert steward.house.rows() == [1, 2, 15]


@pytest.mark.parametrize("workload_id", ["two", "two-again"])
def test_a_lost_publication_can_be_repeated_under_the_same_or_another_id(
    steward: RestorableSteward, workload_id: str
) -> None:
    steward.publish("one", 5)
    steward.recovery.back_up()
    steward.publish("two", 6)
    file_at(steward.metadata_file()).unlink()
    done = steward.lose_and_restore(accept_lost=True)
    assert (done.spent, done.blocked) == ((), ())
    steward.publish(workload_id, 6)
    assert steward.house.rows() == [1, 2, 15, 16]


def test_a_replaced_metadata_file_is_not_shown(steward: RestorableSteward) -> None:
    steward.publish("one", 5)
    shown = file_at(steward.metadata_file()).read_bytes()
    steward.recovery.back_up()
    steward.publish("two", 6)
    file_at(steward.metadata_file()).write_bytes(shown.replace(b'"word"', b'"other"') + b" ")
    (publication,) = steward.lose_and_restore(accept_lost=True).lost_publications
    assert publication.code == "metadata_file_changed"
    assert steward.house.rows() == [1, 2, 15]


def test_a_metadata_file_without_a_receipt_is_ignored(steward: RestorableSteward) -> None:
    steward.publish("one", 5)
    steward.recovery.back_up()
    steward.publish("two", 6)
    place = file_at(steward.metadata_file())
    document = json.loads(place.read_bytes())
    document["properties"]["planted"] = "yes"
    planted = place.with_name(f"99999-{'ab' * 16}.metadata.json")
    planted.write_text(json.dumps(document))
    assert steward.lose_and_restore().lost_publications == ()
    assert "planted" not in steward.house.table_state().metadata.properties


@pytest.mark.parametrize(
    ("what", "code"),
    [("data", "published_bytes_changed"), ("manifest", "audit_manifests_changed"), ("list", "audit_list_changed")],
)
def test_a_publication_whose_bytes_were_changed_is_not_shown_and_the_file_is_named(
    steward: RestorableSteward, what: str, code: str
) -> None:
    steward.publish("one", 5)
    steward.recovery.back_up()
    steward.publish("two", 6)
    location = steward.files()[what]
    path = file_at(location)
    path.write_bytes(flip_middle_byte(path.read_bytes()))
    (publication,) = steward.lose_and_restore(accept_lost=True).lost_publications
    assert (publication.code, publication.file) == (code, location)
    assert location in publication.why
    assert steward.house.rows() == [1, 2, 15]


def flip_middle_byte(data: bytes) -> bytes:
    """The data with one bit of its middle byte changed."""
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("what", ["data", "manifest", "list"])
def test_a_publication_whose_files_are_gone_is_not_shown_and_the_file_is_named(
    steward: RestorableSteward, what: str
) -> None:
    steward.publish("one", 5)
    steward.recovery.back_up()
    steward.publish("two", 6)
    location = steward.files()[what]
    file_at(location).unlink()
    (publication,) = steward.lose_and_restore(accept_lost=True).lost_publications
    assert (publication.code, publication.file) == ("file_missing", location)
    assert steward.house.rows() == [1, 2, 15]


def test_a_publication_whose_proof_is_gone_is_not_shown(steward: RestorableSteward) -> None:
    steward.publish("one", 5)
    steward.recovery.back_up()
    steward.publish("two", 6)
    *_, proof = steward.recovery.statements(StatementKind.PROOF)
    steward.recovery.lose_envelope(proof.envelope)
    (publication,) = steward.lose_and_restore(accept_lost=True, accept_missing=True).lost_publications
    assert (publication.code, publication.file) == ("audit_proof_missing", None)
    assert steward.house.rows() == [1, 2, 15]


def test_a_folder_that_cannot_be_reached_stops_the_restore(
    steward: RestorableSteward, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unreachable disk is no loss, so `accept_lost` does not apply."""
    steward.recovery.back_up()
    steward.publish("two", 6)
    steward.recovery.lose_the_database()

    def fail_to_read(*_: object) -> bytes:
        raise UnavailableError("metadata_files_unavailable", "the disk is away")

    with monkeypatch.context() as patched:
        patched.setattr(MetadataFiles, "read", fail_to_read)
        order = replace(steward.recovery.order, accept_lost=True)
        restore.refused(lambda: steward.recovery.restore(order), "metadata_files_unavailable")
    assert steward.lose_and_restore().lost_publications == ()


def test_an_open_attempt_of_the_backup_is_committed_by_its_receipt(steward: RestorableSteward) -> None:
    steward.house.open("one")
    attempt = steward.house.attempt("one")
    base = steward.head()
    files = steward.house.stage(attempt, [(15, 5, "Ulm")])
    steward.recovery.back_up()
    publish_day(steward.house, steward.house.prove(attempt, files, base), 5)
    done = steward.lose_and_restore()
    assert (done.settled, done.abandoned) == ((attempt.attempt_id,), ())
    assert steward.house.state_of(attempt) == AttemptState.COMMITTED
    with steward.house.notary.ledger.read() as unit:
        assert workloads.get(unit, "one").state is WorkloadState.COMPLETE
    assert steward.house.rows() == [1, 2, 15]


def test_branches_and_snapshots_of_attempts_that_the_backup_lacks_are_removed(steward: RestorableSteward) -> None:
    """The restored ledger does not have these attempts, so no clean-up would remove them."""
    steward.recovery.back_up()
    steward.house.open("failed")
    tried = steward.house.attempt("failed")
    steward.house.stage(tried, [(40, 9, "Kiel")])
    head = steward.publish("one", 5)
    assert sorted(steward.house.table_state().metadata.refs) == sorted(["main", tried.branch])
    steward.lose_and_restore()
    found = steward.house.table_state().metadata
    assert (list(found.refs), found.current_snapshot_id) == (["main"], head)
    assert {each.snapshot_id for each in found.snapshots} == {each.snapshot_id for each in found.ancestry(head)}
    assert steward.audit().holds


def test_a_branch_of_the_producers_own_stays(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    update: Doc = {"action": "set-snapshot-ref", "ref-name": "nightly", "type": "branch", "snapshot-id": steward.head()}
    steward.house.notary.catalog.commits.commit(steward.house.scene.grant(), [Change(SALES, "orders", (), [update])])
    steward.publish("one", 5)
    steward.lose_and_restore()
    assert sorted(steward.house.table_state().metadata.refs) == ["main", "nightly"]


def test_a_table_that_the_backup_lacks_is_restored_with_its_rows_and_its_contract(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    steward.house.table("later", rows=BEFORE)
    steward.house.open("one", name="later")
    publish(steward.house, steward.house.proved("one", [(15, 5, "Ulm")], name="later", opened=False), name="later")
    row = steward.house.table_state("later").row
    done = steward.lose_and_restore()
    assert [(each.table, each.created) for each in done.advanced] == [("sales.later", True)]
    assert [(each.name, each.contract_sha256) for each in done.protected] == [("sales.later", row.contract_hash)]
    found = steward.house.table_state("later").row
    assert (found.contract_hash, found.domain, found.location) == (row.contract_hash, "sales", row.location)
    assert steward.house.rows("later") == [1, 2, 15]


def test_a_table_whose_name_another_table_has_in_the_backup_is_lost_and_named(steward: RestorableSteward) -> None:
    steward.house.scene.make("later")
    steward.recovery.back_up()
    steward.house.notary.catalog.tables.drop(steward.house.scene.grant(), SALES, "later")
    steward.house.table("later", rows=BEFORE)
    steward.house.open("one", name="later")
    publish(steward.house, steward.house.proved("one", [(15, 5, "Ulm")], name="later", opened=False), name="later")
    (publication,) = steward.lose_and_restore(accept_lost=True).lost_publications
    assert (publication.table, publication.code) == ("sales.later", "restore_table_taken")
    assert steward.house.table_state("later").metadata.current_snapshot_id is None


def test_a_table_is_restored_by_its_receipt_if_the_metadata_file_of_the_backup_is_gone(
    steward: RestorableSteward,
) -> None:
    steward.publish("one", 5)
    steward.recovery.back_up()
    old = steward.metadata_file()
    steward.publish("two", 6)
    file_at(old).unlink()
    steward.lose_and_restore()
    assert steward.house.rows() == [1, 2, 15, 16]


def test_a_migration_from_after_the_backup_is_made_again(steward: RestorableSteward) -> None:
    steward.publish("one", 5)
    steward.recovery.back_up()
    steward.house.scene.migrate(steward.house.scene.migration())
    assert steward.house.table_state().metadata.properties["word"] == "mine"
    done = steward.lose_and_restore()
    assert done.unmigrated == ()
    assert steward.house.table_state().metadata.properties["word"] == "mine"
    assert steward.audit().holds


def test_a_publication_and_the_migrations_before_and_after_it_are_restored(steward: RestorableSteward) -> None:
    steward.recovery.back_up()
    scene = steward.house.scene
    scene.migrate(scene.migration([set_property("first", "1")]))
    steward.publish("one", 5)
    scene.migrate(scene.migration([set_property("second", "2")]))
    done = steward.lose_and_restore()
    found = steward.house.table_state().metadata.properties
    assert (found["first"], found["second"], done.unmigrated) == ("1", "2", ())
    assert steward.house.rows() == [1, 2, 15]
    assert steward.audit().holds


def set_property(name: str, text: str) -> dict[str, object]:
    return {"action": "set-properties", "updates": {name: text}}


def test_a_table_that_was_unprotected_rewritten_and_protected_again_comes_back_protected(
    steward: RestorableSteward,
) -> None:
    source = steward.house.scene.table_state("orders", ("raw",)).row.table_uuid
    steward.publish("one", 5, source)
    steward.recovery.back_up()
    scene = steward.house.scene
    scene.protect(scene.protection(contract=steward.house.contracts["orders"], action=ProtectionAction.UNPROTECT))
    place = f"{steward.house.table_state().metadata.location}/data/free"
    steward.house.commit(steward.house.write_files(place, [(30, 9, "Kiel")]), "main")
    steward.house.protect(steward.house.contracts["orders"])
    steward.publish("two", 6, source)
    contract, before = steward.house.table_state().row.contract_hash, steward.audit()
    steward.lose_and_restore()
    assert steward.house.table_state().row.contract_hash == contract
    assert steward.house.rows() == [1, 2, 15, 16, 30]
    after = steward.audit()
    assert (after.findings, after.counts) == (before.findings, before.counts)


def test_a_publication_that_main_lost_while_it_was_unprotected_is_unclear_and_its_id_spent(
    steward: RestorableSteward,
) -> None:
    """Somebody set `main` back while the table was not protected, and wrote without a proof."""
    source, scene = steward.house.scene.table_state("orders", ("raw",)).row.table_uuid, steward.house.scene
    steward.recovery.back_up()
    first = steward.head()
    unclear = steward.publish("one", 5, source)
    scene.protect(scene.protection(contract=steward.house.contracts["orders"], action=ProtectionAction.UNPROTECT))
    back: Doc = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": first}
    steward.house.notary.catalog.commits.commit(scene.grant(), [Change(SALES, "orders", (), [back])])
    place = f"{steward.house.table_state().metadata.location}/data/free"
    steward.house.commit(steward.house.write_files(place, [(30, 9, "Kiel")]), "main")
    steward.house.protect(steward.house.contracts["orders"])
    steward.publish("two", 6, source)
    steward.recovery.lose_the_database()
    error = restore.refused(steward.recovery.restore, "restore_publications_lost")
    assert error.got == f"sales.orders snapshot {unclear} of one (restore_publication_unclear)"
    done = steward.lose_and_restore(accept_lost=True)
    assert [(each.code, each.workload_id) for each in done.lost_publications] == [
        ("restore_publication_unclear", "one")
    ]
    assert (steward.house.rows(), done.spent) == ([1, 2, 16, 30], ("one", "two"))
    assert "one" in {each.workload_id for each in done.blocked}
