"""Stores on a disk and in a bucket: writes, reads, lists and removals, and the errors of an object store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pvdm.errors import InputError, PvdmError, UnavailableError, VerificationError
from pvdm.lake.files import MetadataFiles
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.s3 import S3Store
from pvdm.lake.stores.s3_client import S3Credentials, S3Settings
from pvdm.lake.stores.store import Store, WriteHooks, read
from pvdm.lake.stores.stores import ObjectPath, Stores
from pvdm.lake.vault import Vault, VaultKind
from pvdm.model.secret import Secret
from pvdm.verify.fetch import Files
from tests.support import fault
from tests.support.for_each import for_each
from tests.support.gate.approvals import reason_of
from tests.support.stores.s3_server import S3Server

UUID = "4f0c2d5e-1111-4222-8333-9a8b7c6d5e4f"
NO_HOOKS = WriteHooks()


@pytest.fixture(params=["local", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "local":
        return parse_location(str(tmp_path))
    server: S3Server = request.getfixturevalue("s3_server")
    return parse_location(f"{server.bucket().root}/root")


@pytest.fixture
def stores(s3_server: S3Server) -> Stores:
    return Stores(s3_server.steward)


@pytest.fixture
def store(root: Location, stores: Stores) -> Store:
    return stores.for_writing(root)


def test_a_file_is_read_whole_in_part_and_from_its_end(store: Store, root: Location) -> None:
    store.put_new(root.child("a", "b"), b"0123456789", NO_HOOKS)
    assert read(store, root.child("a", "b"), 100) == b"0123456789"
    assert read(store, root.child("a", "b"), 3) == b"0123"
    assert (store.read_end(root.child("a", "b"), 4), store.read_end(root.child("a", "b"), 99)) == (
        b"6789",
        b"0123456789",
    )
    assert store.facts(root.child("a", "b")).size == 10


def test_a_new_file_never_replaces_an_existing_one(store: Store, root: Location) -> None:
    store.put_new(root.child("a"), b"first", NO_HOOKS)
    with pytest.raises(FileExistsError):
        store.put_new(root.child("a"), b"second", NO_HOOKS)
    assert read(store, root.child("a"), 100) == b"first"


def test_put_replaces_an_existing_file(store: Store, root: Location) -> None:
    store.put(root.child("a"), b"first", NO_HOOKS)
    store.put(root.child("a"), b"second", NO_HOOKS)
    assert read(store, root.child("a"), 100) == b"second"


def test_an_object_that_another_process_removes_meanwhile_is_written_again(
    s3_server: S3Server, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = parse_location(f"{s3_server.bucket().root}/a")
    store = stores.for_writing(place)
    assert isinstance(store, S3Store)
    store.put(place, b"first", NO_HOOKS)
    read_tagged = S3Store.read_tagged

    def remove_first(self: S3Store, place: Location, most: int) -> tuple[bytes, str]:
        monkeypatch.undo()
        self.remove(place)
        return read_tagged(self, place, most)

    monkeypatch.setattr(S3Store, "read_tagged", remove_first)
    store.put(place, b"second", NO_HOOKS)
    assert read(store, place, 100) == b"second"


def test_files_and_folders_are_told_apart(store: Store, root: Location) -> None:
    for name in (("b",), ("a",), ("c", "d"), ("c", "e", "f")):
        store.put(root.child(*name), b"x", NO_HOOKS)
    assert [each.place for each in store.files(root)] == [root.child("a"), root.child("b")]
    assert (store.folders(root), store.folders(root.child("c"))) == (["c"], ["e"])
    assert (store.files(root.child("none")), store.folders(root.child("none"))) == ([], [])


def test_a_removed_file_is_gone_and_can_be_removed_again(store: Store, root: Location) -> None:
    store.put(root.child("a"), b"x", NO_HOOKS)
    store.remove(root.child("a"))
    store.remove(root.child("a"))
    with pytest.raises(FileNotFoundError):
        read(store, root.child("a"), 1)


def test_the_vault_refuses_other_content_for_an_existing_name(root: Location, stores: Stores) -> None:
    vault = Vault(root, stores)
    place = vault.write(UUID, VaultKind.METADATA, "m.avro", b"bytes")
    assert vault.write(UUID, VaultKind.METADATA, "m.avro", b"bytes") == place
    assert reason_of(lambda: vault.write(UUID, VaultKind.METADATA, "m.avro", b"other")) == "vault_file_differs"
    assert (vault.tables(), vault.files_of_kind(UUID, VaultKind.METADATA)[0].name) == ([UUID], "m.avro")
    vault.quarantine(UUID, "ab" * 16, b"failed")
    assert len(vault.finished(UUID, VaultKind.QUARANTINE, "ab" * 16)) == 1


def test_a_changed_metadata_file_is_refused_and_a_named_one_is_written_again(
    root: Location, stores: Stores, store: Store
) -> None:
    files = MetadataFiles(root, stores)
    stored = files.write(UUID, 1, b"document")
    assert files.read(stored) == b"document"
    store.put(parse_location(stored.location), b"forged", NO_HOOKS)
    assert reason_of(lambda: files.read(stored), VerificationError) == "metadata_file_changed"
    named = files.write_named(UUID, "x.metadata.json", b"shown")
    store.put(parse_location(named.location), b"forged", NO_HOOKS)
    assert files.write_named(UUID, "x.metadata.json", b"shown") == named
    assert files.read(named) == b"shown"
    assert [each.name for each in files.list_written(UUID)] == [stored.name]


@pytest.mark.parametrize("point", ["catalog.files.after_temp", "catalog.files.after_rename"])
def test_a_crash_around_a_write_leaves_the_file_whole_or_not_at_all(root: Location, stores: Stores, point: str) -> None:
    files = MetadataFiles(root, stores)
    with fault.armed(point, fault.Raise(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        files.write(UUID, 1, b"document")
    whole = [each for each in files.list_written(UUID) if not each.unfinished]
    assert len(whole) == (1 if point.endswith("rename") else 0)


# Errors that only an object store has


@pytest.fixture
def bucket(s3_server: S3Server) -> Location:
    return parse_location(s3_server.bucket().root)


def drop_answers(store: S3Store, name: str, *, after: bool, times: int = 1) -> None:
    """Let the next calls of this name time out: before they are made, or `after` they were made."""
    from botocore.exceptions import ReadTimeoutError

    inner: Callable[..., Any] = getattr(store.client, name)
    calls_left = [times]

    def call(**arguments: object) -> Any:
        if calls_left[0] and "Range" not in arguments:
            calls_left[0] -= 1
            if after:
                inner(**arguments)
            raise ReadTimeoutError(endpoint_url="the store")
        return inner(**arguments)

    setattr(store.client, name, call)


@pytest.mark.parametrize("after", [True, False], ids=["it was made", "it was not made"])
def test_a_write_without_an_answer_is_settled_by_reading(s3_server: S3Server, bucket: Location, after: bool) -> None:
    store = S3Store(s3_server.steward)
    drop_answers(store, "put_object", after=after)
    if after:
        store.put_new(bucket.child("a"), b"mine", NO_HOOKS)
        assert read(store, bucket.child("a"), 10) == b"mine"
    else:
        with pytest.raises(OSError, match="does not answer"):
            store.put_new(bucket.child("a"), b"mine", NO_HOOKS)


def test_a_write_without_an_answer_fails_if_the_object_is_anothers(s3_server: S3Server, bucket: Location) -> None:
    store = S3Store(s3_server.steward)
    store.put(bucket.child("a"), b"theirs", NO_HOOKS)
    drop_answers(store, "put_object", after=False)
    with pytest.raises(OSError, match="does not answer"):
        store.put_new(bucket.child("a"), b"mine", NO_HOOKS)


def test_an_interrupted_read_continues_where_it_broke(
    s3_server: S3Server, bucket: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pvdm.lake.stores.s3.PIECE_BYTES", 4)
    store = S3Store(s3_server.steward)
    store.put(bucket.child("a"), b"0123456789", NO_HOOKS)
    broken, inner = [1], store._read_piece

    def read_or_break(place: Location, answer: Any, max_bytes: int | None = None) -> bytes:
        if broken and "ContentRange" not in answer and answer["Body"].tell() == 4:
            broken.pop()
            raise OSError("broken")
        return inner(place, answer, max_bytes)

    monkeypatch.setattr(store, "_read_piece", read_or_break)
    assert b"".join(store.start_reading(bucket.child("a")).pieces) == b"0123456789"
    assert broken == []


def test_an_interrupted_read_of_a_file_that_was_replaced_fails(
    s3_server: S3Server, bucket: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pvdm.lake.stores.s3.PIECE_BYTES", 4)
    store = S3Store(s3_server.steward)
    store.put(bucket.child("a"), b"0123456789", NO_HOOKS)
    inner = store._read_piece

    def read_or_break(place: Location, answer: Any, max_bytes: int | None = None) -> bytes:
        if answer["Body"].tell() == 4:
            s3_server.store.put(bucket.child("a"), b"abcdefghij", NO_HOOKS)
            raise OSError("broken")
        return inner(place, answer, max_bytes)

    monkeypatch.setattr(store, "_read_piece", read_or_break)
    with pytest.raises(OSError, match=r"Precondition|412"):
        b"".join(store.start_reading(bucket.child("a")).pieces)


def test_an_object_that_is_not_read_to_its_end_leaves_no_connection_open(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, place = S3Store(s3_server.steward), parse_location(f"{s3_server.bucket().root}/long")
    store.put_new(place, bytes(9 << 20), NO_HOOKS)
    get, bodies = store.client.get_object, []

    def get_and_record(**named: Any) -> Any:
        answer = get(**named)
        bodies.append(answer["Body"])
        return answer

    monkeypatch.setattr(store.client, "get_object", get_and_record)
    assert read(store, place, 3) == bytes(4)
    assert store.read_tagged(place, 3)[0] == bytes(4)
    assert [body._raw_stream.closed for body in bodies] == [True, True]


def test_a_redirect_to_another_address_is_refused(s3_server: S3Server, bucket: Location) -> None:
    store = S3Store(s3_server.steward)

    def redirect(request: Any, **_: object) -> None:
        request.url = request.url.replace("127.0.0.1", "localhost")

    store.client.meta.events.register_first("request-created.s3", redirect)
    with pytest.raises(OSError, match="another address"):
        read(store, bucket.child("a"), 1)


def test_secrets_are_in_no_log_line_no_repr_and_no_error(
    s3_server: S3Server, bucket: Location, caplog: pytest.LogCaptureFixture
) -> None:
    own = S3Credentials("AKIAX", Secret(b"a-secret-key"), Secret(b"a-session-token"))
    with caplog.at_level(logging.DEBUG):
        store = S3Store(replace(s3_server.steward, credentials=own, tries=1))
        with pytest.raises(OSError, match="refuses") as caught:
            read(store, bucket.child("a"), 1)
    own_words = "".join(each.getMessage() for each in caplog.records if not each.name.startswith("moto"))
    text = f"{own_words} {store.settings!r} {own!r} {caught.value!r} {caught.value.__context__!r}"
    assert "a-secret-key" not in text
    assert "a-session-token" not in text


def test_a_file_is_unavailable_if_the_store_refuses_the_credentials(s3_server: S3Server, bucket: Location) -> None:
    unknown_user = replace(s3_server.steward, credentials=S3Credentials("AKIAX", Secret(b"x")), tries=1)
    place = str(bucket.child("a"))
    assert (
        reason_of(lambda: Files(Stores(unknown_user)).read(place, max_bytes=1), UnavailableError) == "file_unreadable"
    )


def test_an_object_above_the_limit_is_refused_and_not_cut(
    stores: Stores, bucket: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pvdm.lake.stores.stores._READ_MAX_BYTES", 4)
    path = ObjectPath(stores.object_store(bucket), bucket.child("file"))
    path.put(b"1234")
    assert path.read_bytes() == b"1234"
    path.put(b"12345")
    with pytest.raises(VerificationError) as caught:
        path.read_bytes()
    assert (caught.value.reason, caught.value.got) == ("file_too_large", str(path))


def test_a_missing_object_is_a_verification_error(stores: Stores, bucket: Location) -> None:
    place = str(bucket.child("a"))
    assert reason_of(lambda: Files(stores).read(place, max_bytes=1), VerificationError) == "file_missing"


@for_each("location", ["s3://lake/a//b", "s3://lake//a", "s3://lake/a//", "s3://user:key@lake/a"])
def test_a_location_with_empty_parts_or_credentials_is_refused(location: str) -> None:
    assert reason_of(lambda: parse_location(location), InputError) == "location_invalid"


def test_a_location_without_a_configured_store_is_refused() -> None:
    assert reason_of(lambda: Files().read("s3://lake/a", max_bytes=1)) == "store_not_configured"


@for_each(
    "wrong",
    [{"endpoint": "ftp://x"}, {"endpoint": "http://user:key@x"}, {"timeout_seconds": 0}, {"tries": 99}],
    ids=["scheme", "credentials", "patience", "tries"],
)
def test_settings_that_cannot_be_used_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PvdmError) as caught:
        S3Settings("eu-central-1", **wrong)
    assert caught.value.reason == "s3_settings"
