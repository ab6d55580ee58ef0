"""The log's files in an object store: a checkpoint that only moves forward, an archive that refills a backup."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.errors import PvdmError, UnavailableError
from pvdm.lake.paths import parse_location
from pvdm.lake.stores.s3_client import S3Settings
from pvdm.lake.stores.stores import ObjectPath, Stores
from pvdm.ledger.record import statements
from pvdm.steward.config.resources import archive_folder, outside_file
from pvdm.steward.config.steward import StewardConfig, load_config
from pvdm.steward.record.log import Archive, archived_size, log_folder
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.log.export import export
from pvdm.trust.log.fsck import fsck
from pvdm.trust.log.note import NoteKey
from pvdm.trust.log.outside import FileOutsideCheckpoint, acknowledge
from tests.support.ledger.databases import memory_folder
from tests.support.ledger.log_storage import KEY, ORIGIN, entries, entry, filled_log
from tests.support.steward.notary import LOG_ORIGIN, stand_at
from tests.support.steward.restore import Scene
from tests.support.stores.s3_server import S3Server


@pytest.fixture
def checkpoint_path(s3_server: S3Server) -> ObjectPath:
    place = parse_location(f"{s3_server.bucket().root}/outside/newest")
    return ObjectPath(Stores(s3_server.steward).object_store(place), place)


def open_outside(path: ObjectPath) -> FileOutsideCheckpoint:
    return FileOutsideCheckpoint(path, origin=ORIGIN, keys=lambda: [KEY])


def test_a_stored_checkpoint_is_loaded_by_the_next_process(checkpoint_path: ObjectPath) -> None:
    _, log = filled_log(5)
    assert open_outside(checkpoint_path).load() is None
    open_outside(checkpoint_path).store(log.checkpoint())
    assert open_outside(checkpoint_path).load() == log.checkpoint()


def test_a_smaller_checkpoint_never_replaces_a_larger_one(checkpoint_path: ObjectPath) -> None:
    _, log = filled_log(5)
    small = log.checkpoint()
    log.append(entries(5, 9))
    open_outside(checkpoint_path).store(log.checkpoint())
    with pytest.raises(PvdmError) as caught:
        open_outside(checkpoint_path).store(small)
    assert caught.value.reason == "checkpoint_goes_back"


def test_a_write_that_is_overtaken_after_its_read_reads_again_and_is_refused(
    checkpoint_path: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no lock: a write replaces only the checkpoint that it has read. The larger one stays."""
    _, log = filled_log(5)
    open_outside(checkpoint_path).store(log.checkpoint())
    log.append(entries(5, 6))
    slower, swap = log.checkpoint(), ObjectPath.swap
    log.append(entries(6, 9))
    faster, raced = log.checkpoint(), list[int]()

    def store_faster_first(self: ObjectPath, before: bytes | None, data: bytes) -> bool:
        if not raced:
            raced.append(1)
            open_outside(checkpoint_path).store(faster)
        return swap(self, before, data)

    monkeypatch.setattr(ObjectPath, "swap", store_faster_first)
    with pytest.raises(PvdmError) as caught:
        open_outside(checkpoint_path).store(slower)
    assert caught.value.reason == "checkpoint_goes_back"
    assert open_outside(checkpoint_path).load() == faster


def test_concurrent_writes_leave_the_largest_checkpoint(checkpoint_path: ObjectPath) -> None:
    storage, log = filled_log(3)
    open_outside(checkpoint_path).store(log.checkpoint())
    wanted = [log.append([entry(at)]) for at in range(3, 9)]
    failures: list[Exception] = []

    def store(at: int) -> None:
        try:
            acknowledge(open_outside(checkpoint_path), log, wanted[at])
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=store, args=(at,)) for at in range(len(wanted))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    found = open_outside(checkpoint_path).load()
    assert failures == []
    assert found is not None
    assert found.checkpoint.size == storage.size() == 9


def test_a_missing_bucket_is_unavailable_and_not_a_first_start(s3_server: S3Server) -> None:
    place = parse_location("s3://no-such-bucket/outside/newest")
    missing = ObjectPath(Stores(s3_server.steward).object_store(place), place)
    with pytest.raises(UnavailableError) as caught:
        open_outside(missing).load()
    assert caught.value.reason == "outside_checkpoint_unavailable"


def test_an_export_of_a_shorter_log_is_refused(checkpoint_path: ObjectPath) -> None:
    storage, log = filled_log(5)
    folder = checkpoint_path.parent / "tiles"
    shorter = storage.copy()
    export(storage, folder)
    log.append(entries(5, 9))
    seen = (folder / "checkpoint").read_bytes()
    export(storage, folder)
    assert (folder / "checkpoint").read_bytes() != seen
    with pytest.raises(PvdmError) as caught:
        export(shorter, folder)
    assert caught.value.reason == "log_behind_checkpoint"


@pytest.fixture
def scene(s3_server: S3Server) -> Iterator[Scene]:
    root = s3_server.bucket().root

    def changed(config: StewardConfig) -> StewardConfig:
        return replace(
            config,
            s3=s3_server.steward,
            outside_store_location=parse_location(f"{root}/outside/checkpoint"),
            archive_store_location=parse_location(f"{root}/archive"),
        )

    with memory_folder() as folder, stand_at(folder, changed=changed) as stand:
        made = Scene(stand)
        made.order = replace(made.order, archive=archive_folder(stand.config))
        yield made


def test_a_backup_is_refilled_from_an_archive_in_the_store(scene: Scene, tmp_path: Path) -> None:
    scene.back_up()
    after = scene.stand.proved("after")
    scene.lose_the_database()
    done = scene.restore()
    notary = scene.start()
    with notary.ledger.read() as unit:
        assert statements.get(unit, after.statement_id).envelope == after.envelope
    assert done.refilled == 1
    folder = archive_folder(scene.stand.config)
    assert isinstance(folder, ObjectPath)
    assert archived_size(folder) == notary.log.size()
    download(folder, tmp_path)
    public = notary.keys.public_key(KeyRole.LOG, 1)
    second = notary.keys.public_key(KeyRole.LOG, 2)
    vkeys = [NoteKey(LOG_ORIGIN, each.der).to_vkey() for each in (public, second)]
    assert fsck(tmp_path / "log", vkeys).size == notary.log.size()


def download(folder: ObjectPath, to: Path) -> None:
    """Copy all objects below the folder to a local one, as `aws s3 sync` does."""
    for each in folder.store.walk(folder.place):
        path = to.joinpath(*each.place.parts[len(folder.place.parts) :])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(ObjectPath(folder.store, each.place).read_bytes())


def test_a_ledger_that_was_rolled_back_is_noticed_by_the_checkpoint_in_the_store(scene: Scene) -> None:
    scene.back_up()
    scene.stand.proved("after")
    scene.lose_the_database()
    with pytest.raises(PvdmError) as caught:
        scene.start()
    assert caught.value.reason == "log_behind_checkpoint"
    assert outside_file(scene.stand.config).exists()


def test_two_stewards_of_one_log_share_the_archive(scene: Scene) -> None:
    folder = archive_folder(scene.stand.config)
    assert folder is not None
    scene.stand.proved("one")
    first, second = (Archive(scene.notary.ledger, folder) for _ in range(2))
    assert first.follow() == second.follow()
    assert (log_folder(folder) / "checkpoint").exists()


def test_the_configuration_names_places_in_the_store(tmp_path: Path) -> None:
    path = tmp_path / "steward.toml"
    path.write_text(
        'notary = "n"\norigin = "o"\nledger = "sqlite:///l"\n'
        'outside = "s3://kept/checkpoint"\narchive = "s3://kept/a"\n'
        '[keys]\nhome = "file"\npath = "keys"\n[s3]\nregion = "eu-central-1"\n'
    )
    config = load_config(path)
    assert (str(config.outside_store_location), str(config.archive_store_location)) == (
        "s3://kept/checkpoint",
        "s3://kept/a",
    )
    assert config.s3 == S3Settings("eu-central-1")
