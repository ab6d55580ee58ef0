"""The keystore file: only its owner may read it, damage is refused, and a passphrase seals (encrypts) it."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import pytest

from pvdm.errors import InputError, NotAllowedError, PvdmError, UnavailableError, VerificationError
from pvdm.model.projection import ProjectionName
from pvdm.model.secret import Secret
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.keys.file import FileKeystore, _checksum, create_file_keys, open_file_keys
from pvdm.trust.keys.seal import Passphrase
from tests.support.steward.keys import attempt_context, keystore
from tests.support.steward.secret_search import traces

WORD = "correct horse battery staple"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def derive_key(path: Path, word: str | None = None) -> bytes:
    service = open_file_keys(path, None if word is None else Passphrase(word))
    return service.row_hash_key(attempt_context(), ProjectionName.CONTENT).reveal()


def reason_of_opening(path: Path, word: str | None = None) -> str:
    with pytest.raises(PvdmError) as caught:
        open_file_keys(path, None if word is None else Passphrase(word))
    return caught.value.reason


def test_a_new_keystore_has_mode_0600_whatever_the_umask_is(path: Path) -> None:
    before = os.umask(0o277)
    try:
        keystore(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o7777 == 0o600


@pytest.mark.parametrize("word", [None, WORD], ids=["open", "sealed"])
def test_keys_are_the_same_after_the_keystore_is_opened_again(path: Path, word: str | None) -> None:
    first = keystore(path, word).row_hash_key(attempt_context(), ProjectionName.CONTENT).reveal()
    assert derive_key(path, word) == first


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o620, 0o400, 0o700, 0o4600])
def test_a_keystore_with_another_mode_is_refused(path: Path, mode: int) -> None:
    keystore(path)
    path.chmod(mode)
    assert reason_of_opening(path) == "key_file_mode"


def test_a_mode_that_changes_while_the_keystore_is_open_is_refused(path: Path) -> None:
    service = keystore(path)
    path.chmod(0o644)
    with pytest.raises(NotAllowedError) as caught:
        service.book()
    assert caught.value.reason == "key_file_mode"


def test_a_symbolic_link_is_refused(path: Path, tmp_path: Path) -> None:
    keystore(path)
    link = tmp_path / "link"
    link.symlink_to(path)
    assert reason_of_opening(link) == "key_file_kind"


def test_a_folder_in_place_of_the_file_is_refused(path: Path) -> None:
    path.mkdir(mode=0o700)
    assert reason_of_opening(path) == "key_file_kind"


def test_a_keystore_of_another_owner_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keystore(path)
    someone_else = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: someone_else)
    assert reason_of_opening(path) == "key_file_owner"


def test_a_missing_keystore_is_refused_and_not_created(path: Path) -> None:
    assert (reason_of_opening(path), path.exists()) == ("key_file_missing", False)


@pytest.mark.parametrize("word", [None, WORD], ids=["open", "sealed"])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_keystore_is_refused(path: Path, word: str | None, share: float) -> None:
    keystore(path, word)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    assert reason_of_opening(path, word) == "keystore_damaged"


@pytest.mark.parametrize("word", [None, WORD], ids=["open", "sealed"])
@pytest.mark.parametrize("place", [0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
def test_a_changed_digit_of_the_body_is_refused(path: Path, word: str | None, place: float) -> None:
    keystore(path, word)
    document = json.loads(path.read_text())
    body = document["body"]
    index = int((len(body) - 1) * place)
    flipped = "0" if body[index] != "0" else "1"
    document["body"] = body[:index] + flipped + body[index + 1 :]
    path.write_text(json.dumps(document, separators=(",", ":"), sort_keys=True))
    assert reason_of_opening(path, word) == "keystore_damaged"


def test_bytes_after_the_end_are_refused(path: Path) -> None:
    keystore(path)
    path.write_bytes(path.read_bytes() + b"\n")
    assert reason_of_opening(path) == "keystore_damaged"


def test_a_keystore_with_the_book_of_another_one_is_refused(path: Path) -> None:
    """The checksum fits, but the public keys of the book do not belong to the private ones."""
    keystore(path)
    other = path.with_name("other.json")
    keystore(other)
    mine, theirs = json.loads(path.read_text()), json.loads(other.read_text())
    body = json.loads(bytes.fromhex(mine["body"]))
    body["book"] = json.loads(bytes.fromhex(theirs["body"]))["book"]
    mine["body"] = json.dumps(body, separators=(",", ":"), sort_keys=True).encode().hex()
    mine["check"] = _checksum(Secret(bytes.fromhex(mine["body"])))
    path.write_text(json.dumps(mine, separators=(",", ":"), sort_keys=True))
    assert reason_of_opening(path) == "keystore_damaged"


def test_a_wrong_passphrase_has_another_error_than_damage(path: Path) -> None:
    keystore(path, WORD)
    assert reason_of_opening(path, WORD + "r") == "passphrase_wrong"


def test_a_missing_passphrase_is_refused(path: Path) -> None:
    keystore(path, WORD)
    assert reason_of_opening(path) == "passphrase_missing"


def test_a_passphrase_for_an_open_keystore_is_refused(path: Path) -> None:
    """Else an open file that replaced a sealed one would be used unnoticed."""
    keystore(path)
    assert reason_of_opening(path, WORD) == "keystore_not_sealed"


def test_an_open_file_put_in_place_of_a_sealed_one_in_use_is_refused(path: Path) -> None:
    service = keystore(path, WORD)
    keystore(path.with_name("other.json"))
    path.with_name("other.json").replace(path)
    with pytest.raises(VerificationError) as caught:
        service.book()
    assert caught.value.reason == "keystore_damaged"


@pytest.mark.parametrize("change", [{"salt": "00" * 16}, {"cost_log2": 15}, {"check": "00" * 16}], ids=str)
def test_a_changed_seal_is_refused(path: Path, change: dict[str, object]) -> None:
    keystore(path, WORD)
    document = json.loads(path.read_text())
    document["seal"] |= change
    path.write_text(json.dumps(document, separators=(",", ":"), sort_keys=True))
    assert reason_of_opening(path, WORD) == "passphrase_wrong"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cost_log2": 13}, "scrypt_cost"),
        ({"cost_log2": 40}, "scrypt_cost"),
        ({"kdf": "pbkdf2"}, "seal_malformed"),
        ({"cipher": "rot13"}, "seal_malformed"),
        ({"salt": "zz"}, "seal_malformed"),
    ],
    ids=str,
)
def test_a_seal_of_another_kind_is_refused(path: Path, change: dict[str, object], reason: str) -> None:
    keystore(path, WORD)
    document = json.loads(path.read_text())
    document["seal"] |= change
    path.write_text(json.dumps(document, separators=(",", ":"), sort_keys=True))
    assert reason_of_opening(path, WORD) == reason


def test_a_sealed_keystore_shows_no_key(path: Path) -> None:
    service = keystore(path, WORD)
    store = service._home
    assert isinstance(store, FileKeystore)
    found = [
        name for secret in store._load_content().keys.values() for name in traces(secret.reveal(), path.read_bytes())
    ]
    assert found == []


def test_the_search_finds_every_key_of_an_open_keystore(path: Path) -> None:
    """This shows that the search of the previous test can find keys. The body is the hex of a document with hex."""
    store = keystore(path)._home
    assert isinstance(store, FileKeystore)
    body = bytes.fromhex(json.loads(path.read_text())["body"])
    assert all(traces(secret.reveal(), body) for secret in store._load_content().keys.values())


def test_a_keystore_is_never_overwritten_by_a_new_one(path: Path) -> None:
    before = keystore(path).public_key(KeyRole.SIGNING, 1)
    with pytest.raises(NotAllowedError) as caught:
        create_file_keys(path)
    assert (caught.value.reason, open_file_keys(path).public_key(KeyRole.SIGNING, 1)) == ("key_file_exists", before)


def test_of_many_threads_that_create_one_keystore_one_succeeds(path: Path) -> None:
    barrier = threading.Barrier(8)
    outcomes: list[str] = []

    def create() -> None:
        barrier.wait()
        try:
            FileKeystore.create(path)
            outcomes.append("created")
        except PvdmError as error:
            outcomes.append(error.reason)

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["created"] + ["key_file_exists"] * 7


def test_epochs_that_several_threads_create_are_all_in_the_book(path: Path) -> None:
    create_file_keys(path)
    numbers: list[int] = []

    def create() -> None:
        numbers.extend(change.epoch for change in open_file_keys(path).create_epoch("one of many"))

    threads = [threading.Thread(target=create) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sorted(numbers), [epoch.number for epoch in open_file_keys(path).book().epochs]) == ([*range(1, 7)],) * 2


def test_a_revocation_by_another_service_takes_effect_at_once(path: Path) -> None:
    service = keystore(path)
    open_file_keys(path).revoke_epoch(1, "leaked")
    with pytest.raises(NotAllowedError) as caught:
        service.row_hash_key(attempt_context(), ProjectionName.CONTENT)
    assert caught.value.reason == "epoch_revoked"


def test_an_old_copy_that_is_put_back_is_refused(path: Path) -> None:
    service = keystore(path)
    old = path.with_name("old")
    shutil.copy2(path, old)
    service.revoke_epoch(1, "leaked")
    service.book()
    old.replace(path)
    with pytest.raises(VerificationError) as caught:
        service.book()
    assert caught.value.reason == "keystore_rolled_back"


def test_a_closed_keystore_derives_no_keys(path: Path) -> None:
    service = keystore(path)
    service.close()
    with pytest.raises(UnavailableError) as caught:
        service.row_hash_key(attempt_context(), ProjectionName.CONTENT)
    assert caught.value.reason == "key_home_closed"


def test_a_keystore_that_is_too_large_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keystore(path)
    monkeypatch.setattr("pvdm.trust.keys.file.KEYSTORE_SIZE_MAX_BYTES", 100)
    assert reason_of_opening(path) == "key_file_too_large"


@pytest.mark.parametrize("word", ["", "x" * 1025])
def test_an_empty_or_huge_passphrase_is_refused(word: str) -> None:
    with pytest.raises(InputError) as caught:
        Passphrase(word)
    assert caught.value.reason == "passphrase_invalid"


def test_the_four_keys_of_an_epoch_are_different(path: Path) -> None:
    store = FileKeystore.create(path)
    entries = [store.make(role) for role in KeyRole]
    assert len({store._pending[entry.reference].reveal() for entry in entries}) == 4


def test_a_keystore_without_its_lock_file_still_works(path: Path) -> None:
    service = keystore(path)
    path.with_name(f".{path.name}.lock").unlink()
    service.retire_epoch(1, "test")
    assert service.book().active is None
