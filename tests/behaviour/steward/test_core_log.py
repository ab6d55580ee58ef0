"""Log, ledger and outside checkpoint agree; a Steward whose ledger was rolled back or forked does not start."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from sqlalchemy import select

from pvdm.errors import PvdmError
from pvdm.ledger.schema.record import statements as statements_table
from pvdm.steward.config.steward import FileKeys
from pvdm.steward.notary import create_notary, log_keys
from pvdm.steward.record.log import ArchivedLog, LedgerLogReader, PinnedLogReader, archived_size
from pvdm.trust.keys.file import create_file_keys
from pvdm.trust.log.checkpoint import open_checkpoint, read_unverified
from pvdm.trust.log.export import ExportResult, export
from pvdm.trust.log.fsck import fsck
from pvdm.trust.log.log import LogStorage
from pvdm.trust.log.proof import KnownLog, verify_consistency
from tests.support.ledger.databases import memory_folder
from tests.support.steward.logged import entry_of
from tests.support.steward.notary import (
    LOG_ORIGIN,
    Stand,
    config_at,
    core_of,
    opened,
    override_of,
    root_naming,
    signed_override,
    signed_root,
    stand_at,
)
from tools.proof_kit import SECOND


@pytest.fixture
def stand() -> Iterator[Stand]:
    with memory_folder() as folder, stand_at(folder / "steward") as made:
        yield made


def reason_of(call: Callable[[], object]) -> str:
    with pytest.raises(PvdmError) as caught:
        call()
    return caught.value.reason


def create_epoch(stand: Stand) -> None:
    stand.notary.epochs.create("one more")


def accept_trust_root(stand: Stand) -> None:
    current, active = stand.notary.trust.current(), stand.notary.epochs.book().active
    assert active is not None
    stand.notary.trust.accept(signed_root(root_naming(active, version=2, previous=current.sha256)))


def record_proof(stand: Stand) -> None:
    stand.proved()


def record_fail_proof(stand: Stand) -> None:
    stand.proved(passed=False)


def submit_override(stand: Stand) -> None:
    failed = stand.proved(passed=False)
    override = override_of(failed, core_of("one"), stand.time.wall)
    stand.notary.overrides.submit(signed_override(override), stand.grant())


STEPS: dict[Callable[[Stand], None], list[str]] = {
    create_epoch: ["epoch"],
    accept_trust_root: ["trust-root"],
    record_proof: ["proof"],
    record_fail_proof: ["proof"],
    submit_override: ["proof", "break-glass"],
}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_a_statement_of_every_kind_is_in_ledger_log_and_outside_checkpoint(
    stand: Stand, step: Callable[[Stand], None]
) -> None:
    before = stand.notary.log.size()
    stand.time.pass_by(SECOND)
    step(stand)
    log = stand.notary.log
    added = [json.loads(entry_of(stand.notary, index)) for index in range(before, log.size())]
    assert [entry["kind"] for entry in added] == STEPS[step]
    with stand.notary.ledger.read() as unit:
        rows = unit.rows(select(statements_table).where(statements_table.c.log_index >= before))
    stored = {row["log_index"]: row for row in rows}
    for index, entry in enumerate(added, start=before):
        assert hashlib.sha256(stored[index]["envelope"]).hexdigest() == entry["sha256"]
        assert (stored[index]["kind"], stored[index]["at_micros"]) == (entry["kind"], entry["time"])
    assert stand.config.outside_path.read_bytes() == log.checkpoint()


def test_fsck_accepts_the_exported_log_of_a_steward(stand: Stand, tmp_path: Path) -> None:
    for step in (submit_override, create_epoch, accept_trust_root):
        step(stand)
    export(LedgerLogReader(stand.notary.ledger), tmp_path / "export")
    keys = [key.to_vkey() for key in log_keys(stand.notary.epochs.book(), LOG_ORIGIN)]
    report = fsck(tmp_path / "export", keys)
    assert report.size == stand.notary.log.size() == 7


@dataclass(frozen=True)
class Backup:
    """The ledger's file and the checkpoint that was outside at that time."""

    ledger: bytes
    outside: bytes


def backup(stand: Stand) -> Backup:
    stand.notary.close()
    copied = Backup((stand.folder / "ledger.db").read_bytes(), stand.config.outside_path.read_bytes())
    stand.notary = opened(stand.config, stand.time)
    return copied


def replace_ledger(stand: Stand, ledger: bytes) -> None:
    """Close the Steward, and put this file in the place of its ledger."""
    stand.notary.close()
    (stand.folder / "ledger.db").write_bytes(ledger)


def refusal_at_start(stand: Stand) -> str:
    """The reason why the Steward does not start. A refused start leaves the outside checkpoint unchanged."""
    try:
        return reason_of(lambda: opened(stand.config, stand.time))
    finally:
        outside = stand.config.outside_path.read_bytes()
        reason_of(lambda: opened(stand.config, stand.time))
        assert stand.config.outside_path.read_bytes() == outside, "a refusal leaves the evidence as it is"


def test_a_steward_whose_ledger_was_rolled_back_does_not_start(stand: Stand) -> None:
    old = backup(stand)
    stand.proved()
    replace_ledger(stand, old.ledger)
    assert refusal_at_start(stand) == "log_behind_checkpoint"


def test_a_steward_whose_ledger_was_rolled_back_is_not_created_again_either(stand: Stand) -> None:
    old = backup(stand)
    stand.proved()
    replace_ledger(stand, old.ledger)
    assert reason_of(lambda: create_notary(stand.config, reason="again")) == "log_behind_checkpoint"


def grow_elsewhere(stand: Stand, old: Backup, entries: int) -> bytes:
    """The backup after more entries: with the same keys, but in another folder with its own outside checkpoint."""
    folder = stand.folder.parent / f"elsewhere-{entries}"
    config = config_at(folder)
    (folder / "ledger.db").write_bytes(old.ledger)
    (folder / "ledger.db").chmod(0o600)
    config.outside_path.write_bytes(old.outside)
    shutil.copy(stand.folder / "keys", folder / "keys")
    other = Stand(folder, config, stand.time, opened(config, stand.time))
    for number in range(entries):
        other.proved(f"elsewhere {number}".replace(" ", "-"))
    other.notary.close()
    return (folder / "ledger.db").read_bytes()


@pytest.mark.parametrize("entries", [1, 2, 5], ids=["as-long", "longer", "much-longer"])
def test_a_ledger_that_was_rolled_back_and_grew_again_is_a_fork(stand: Stand, entries: int) -> None:
    old = backup(stand)
    stand.proved()
    replace_ledger(stand, grow_elsewhere(stand, old, entries))
    assert refusal_at_start(stand) == "log_forked"


def test_a_ledger_that_was_rolled_back_and_grew_less_far_is_behind(stand: Stand) -> None:
    old = backup(stand)
    stand.proved("one")
    stand.proved("two")
    replace_ledger(stand, grow_elsewhere(stand, old, 1))
    assert refusal_at_start(stand) == "log_behind_checkpoint"


def test_a_running_steward_whose_ledger_is_rolled_back_acknowledges_nothing(stand: Stand) -> None:
    old = backup(stand)
    stand.proved("one")
    (stand.folder / "ledger.db").write_bytes(old.ledger)
    size = stand.notary.log.size()
    assert reason_of(lambda: stand.proved("two")) == "log_behind_checkpoint"
    assert stand.notary.log.size() == size


def test_a_steward_without_its_outside_checkpoint_does_not_start(stand: Stand) -> None:
    stand.notary.close()
    stand.config.outside_path.unlink()
    assert reason_of(lambda: opened(stand.config, stand.time)) == "outside_checkpoint_missing"


def test_a_running_steward_without_its_outside_checkpoint_records_no_proof(stand: Stand) -> None:
    stand.config.outside_path.unlink()
    assert reason_of(stand.proved) == "checkpoint_goes_back"
    assert [error.reason for error in stand.notary.readiness()] == ["checkpoint_goes_back"]


def test_a_steward_without_the_folder_of_its_outside_checkpoint_does_not_start(stand: Stand) -> None:
    stand.notary.close()
    outside = stand.config.outside_path.parent
    outside.rename(outside.with_name("unmounted"))
    assert reason_of(lambda: opened(stand.config, stand.time)) == "outside_checkpoint_unavailable"
    outside.with_name("unmounted").rename(outside)
    stand.notary = opened(stand.config, stand.time)


def test_nothing_is_acknowledged_until_the_outside_checkpoint_is_available_again(stand: Stand) -> None:
    core = stand.verifying()
    outside = stand.config.outside_path.parent
    outside.rename(outside.with_name("unmounted"))
    assert reason_of(lambda: stand.record(core)) == "outside_checkpoint_unavailable"
    assert reason_of(lambda: stand.record(core)) == "outside_checkpoint_unavailable"
    assert [error.reason for error in stand.notary.readiness()] == ["outside_checkpoint_unavailable"]
    outside.with_name("unmounted").rename(outside)
    recorded = stand.record(core)
    assert (recorded.log_index, stand.notary.log.size()) == (3, 4)
    assert stand.config.outside_path.read_bytes() == stand.notary.log.checkpoint()


def test_an_outside_checkpoint_of_another_log_is_refused(stand: Stand) -> None:
    other = stand.folder.parent / "other"
    with stand_at(other, own_keys=True) as second:
        note = second.config.outside_path.read_bytes()
    stand.notary.close()
    stand.config.outside_path.write_bytes(note)
    assert reason_of(lambda: opened(stand.config, stand.time)) == "note_key_unknown"


def test_a_steward_that_was_never_created_is_not_opened(stand: Stand) -> None:
    config = config_at(stand.folder.parent / "nothing")
    assert reason_of(lambda: opened(config, stand.time)) == "key_file_missing"


def test_a_steward_whose_creation_was_cut_off_is_created_by_the_next_try(stand: Stand) -> None:
    config = config_at(stand.folder.parent / "cut-off")
    assert isinstance(config.keys, FileKeys)
    service = create_file_keys(config.keys.path)
    service.create_epoch("cut off here")
    service.close()
    assert reason_of(lambda: opened(config, stand.time)) == "steward_not_created"
    notary = create_notary(config, reason="again", wall=lambda: stand.time.wall, monotonic=lambda: stand.time.monotonic)
    assert [each.state.value for each in notary.epochs.book().epochs] == ["ACTIVE"]
    assert notary.log.size() == 2
    notary.close()


def test_an_inclusion_proof_leads_to_the_newest_checkpoint(stand: Stand) -> None:
    recorded = stand.proved("one")
    stand.proved("two")
    log = stand.notary.log
    checker = KnownLog(LOG_ORIGIN, tuple(log_keys(stand.notary.epochs.book(), LOG_ORIGIN)))
    checker.require_included(entry_of(stand.notary, recorded.log_index), log.proof(recorded.log_index))
    assert reason_of(lambda: checker.require_included(entry_of(stand.notary, 0), log.proof(1))) == "inclusion_root"


@pytest.mark.parametrize("index", [-1, 3])
def test_an_index_that_the_log_does_not_have_is_an_error(stand: Stand, index: int) -> None:
    assert reason_of(lambda: stand.notary.log.proof(index)) == "log_entry_unknown"


def test_two_sizes_of_the_log_are_shown_to_be_consistent(stand: Stand) -> None:
    keys = tuple(log_keys(stand.notary.epochs.book(), LOG_ORIGIN))
    log = stand.notary.log
    old = open_checkpoint(log.checkpoint(), origin=LOG_ORIGIN, keys=keys).checkpoint
    stand.proved("one")
    stand.proved("two")
    new = open_checkpoint(log.checkpoint(), origin=LOG_ORIGIN, keys=keys).checkpoint
    consistency = log.consistency(old.size, new.size)
    verify_consistency(consistency, old_size=old.size, old_root=old.root, new_size=new.size, new_root=new.root)


@pytest.mark.parametrize(("old", "new"), [(-1, 2), (2, 1), (0, 4)])
def test_sizes_that_the_log_never_had_are_an_error(stand: Stand, old: int, new: int) -> None:
    assert reason_of(lambda: stand.notary.log.consistency(old, new)) == "log_sizes_invalid"


def test_tiles_and_entries_are_read_by_their_path(stand: Stand) -> None:
    log = stand.notary.log
    leaves = [hashlib.sha256(b"\0" + entry_of(stand.notary, index)).digest() for index in range(3)]
    assert log.tile("tile/0/000.p/3") == b"".join(leaves)
    entries = [entry_of(stand.notary, index) for index in range(3)]
    assert log.tile("tile/entries/000.p/3") == b"".join(len(one).to_bytes(2, "big") + one for one in entries)


@pytest.mark.parametrize("path", ["tile/0/000.p/4", "tile/0/000", "tile/1/000.p/1", "tile/entries/000.p/4"])
def test_a_tile_that_the_log_has_not_reached_is_unknown(stand: Stand, path: str) -> None:
    assert reason_of(lambda: stand.notary.log.tile(path)) == "tile_unknown"


def test_readers_of_the_log_cannot_append(stand: Stand) -> None:
    for reader in (LedgerLogReader(stand.notary.ledger), PinnedLogReader(stand.notary.ledger)):
        assert reason_of(reader.append) == "log_read_only"


def change_database(stand: Stand, *statements: str) -> None:
    """Change the ledger's file directly, past its triggers."""
    with contextlib.closing(sqlite3.connect(stand.folder / "ledger.db")) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


CHANGED_HASH = (
    "DROP TRIGGER log_hashes_no_update",
    "UPDATE log_hashes SET hash = zeroblob(32) WHERE level = 0 AND position = 2",
)
LOST_NOTE = ("DROP TRIGGER log_checkpoints_no_delete", "DELETE FROM log_checkpoints WHERE size = 3")


@pytest.mark.parametrize("statements", [CHANGED_HASH, LOST_NOTE], ids=["changed-hash", "lost-note"])
def test_a_stored_log_that_was_changed_is_refused_at_the_start(stand: Stand, statements: tuple[str, ...]) -> None:
    stand.notary.close()
    change_database(stand, *statements)
    assert refusal_at_start(stand) == "log_forked"


@pytest.mark.parametrize("statements", [CHANGED_HASH, LOST_NOTE], ids=["changed-hash", "lost-note"])
def test_a_stored_log_that_was_changed_gets_no_further_entry(stand: Stand, statements: tuple[str, ...]) -> None:
    core = stand.verifying()
    change_database(stand, *statements)
    assert reason_of(lambda: stand.record(core)) in ("log_storage_broken", "log_forked")
    assert stand.notary.log.size() == 3


def test_a_pinned_reader_does_not_see_entries_that_are_appended_later(stand: Stand) -> None:
    """At a start another Steward may append between the reads of the size and of the checkpoint."""
    reader = PinnedLogReader(stand.notary.ledger)
    assert reader.size() == 3
    stand.proved()
    assert reader.size() == 3
    note = reader.newest_checkpoint()
    assert note is not None
    assert read_unverified(note).checkpoint.size == 3


def test_an_archive_covers_no_entry_whose_envelope_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another call appends after the envelopes were written, and before the archive's checkpoint is written."""
    with memory_folder() as folder:
        place = folder / "archive"
        with stand_at(folder / "steward", changed=lambda config: replace(config, archive=place)) as stand:
            other = Stand(
                stand.folder, stand.config, stand.time, opened(replace(stand.config, archive=None), stand.time)
            )

            def append_then_export(storage: LogStorage, target: Path) -> ExportResult:
                monkeypatch.undo()
                other.proved("between")
                return export(storage, target)

            monkeypatch.setattr("pvdm.steward.record.log.export", append_then_export)
            stand.proved("one")
            other.notary.close()
            stand.proved("two")
            archived = ArchivedLog(place)
            hashes = [json.loads(entry)["sha256"] for entry in archived.entries(0, archived_size(place))]
            assert (len(hashes), [sha256 for sha256 in hashes if archived.envelope(sha256) is None]) == (6, [])
