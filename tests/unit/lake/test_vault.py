"""The vault: a file is never overwritten, unfinished files are not listed, and files outside are refused."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from pvdm.errors import InputError, UnavailableError, VerificationError
from pvdm.lake.paths import parse_location
from pvdm.lake.vault import Vault, VaultKind
from tests.support import fault

UUID = "4f0c2d5e-1111-4222-8333-9a8b7c6d5e4f"
ATTEMPT = "ab" * 16


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(tmp_path / "vault")


def test_a_file_lies_in_the_folder_of_its_table_and_kind(vault: Vault, tmp_path: Path) -> None:
    location = vault.write(UUID, VaultKind.METADATA, "m.avro", b"data")
    assert (
        location
        == vault.location(UUID, VaultKind.METADATA, "m.avro")
        == f"file://{tmp_path}/vault/{UUID}/metadata/m.avro"
    )
    assert vault.read(location, sha256=sha(b"data"), max_bytes=10) == b"data"
    assert parse_location(location).is_under(vault.root)


def test_writing_the_same_bytes_again_changes_nothing(vault: Vault) -> None:
    location = vault.write(UUID, VaultKind.METADATA, "m.avro", b"data")
    before = parse_location(location).local.stat().st_ino
    assert vault.write(UUID, VaultKind.METADATA, "m.avro", b"data") == location
    assert parse_location(location).local.stat().st_ino == before


@pytest.mark.parametrize("other", [b"other", b"dat", b"data and more"])
def test_writing_other_bytes_under_a_used_name_is_refused(vault: Vault, other: bytes) -> None:
    location = vault.write(UUID, VaultKind.METADATA, "m.avro", b"data")
    with pytest.raises(VerificationError) as caught:
        vault.write(UUID, VaultKind.METADATA, "m.avro", other)
    assert caught.value.reason == "vault_file_differs"
    assert parse_location(location).local.read_bytes() == b"data"


def test_a_write_leaves_no_other_file(vault: Vault) -> None:
    location = vault.write(UUID, VaultKind.METADATA, "m.avro", b"data")
    vault.write(UUID, VaultKind.METADATA, "m.avro", b"data")
    assert [path.name for path in parse_location(location).local.parent.iterdir()] == ["m.avro"]


def test_an_interrupted_copy_is_not_listed_as_finished(vault: Vault, tmp_path: Path) -> None:
    with fault.armed("lake.vault.after_temp", fault.Raise(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        vault.copy_in(UUID, ATTEMPT, 0, b"data", sha(b"data"))
    assert vault.finished(UUID, VaultKind.DATA, ATTEMPT) == []


def test_reading_a_changed_file_is_refused(vault: Vault) -> None:
    location = vault.write(UUID, VaultKind.METADATA, "m.avro", b"data")
    parse_location(location).local.write_bytes(b"date")
    with pytest.raises(VerificationError) as caught:
        vault.read(location, sha256=sha(b"data"), max_bytes=10)
    assert caught.value.reason == "vault_file_changed"


@pytest.mark.parametrize("limit", [3, 2])
def test_reading_a_file_above_the_limit_is_refused_even_if_the_hash_fits(vault: Vault, limit: int) -> None:
    location = vault.write(UUID, VaultKind.METADATA, "m.avro", b"data")
    assert vault.read(location, sha256=sha(b"data"), max_bytes=4) == b"data"
    with pytest.raises(VerificationError) as caught:
        vault.read(location, sha256=sha(b"data"), max_bytes=limit)
    assert (caught.value.reason, caught.value.got) == ("vault_file_changed", f"more than {limit} bytes")


def test_reading_a_missing_file_is_refused(vault: Vault) -> None:
    with pytest.raises(VerificationError) as caught:
        vault.read(vault.location(UUID, VaultKind.METADATA, "m.avro"), sha256=sha(b""), max_bytes=10)
    assert caught.value.reason == "vault_file_missing"


def test_reading_or_removing_a_file_outside_is_refused(vault: Vault, tmp_path: Path) -> None:
    outside = tmp_path / "file"
    outside.write_bytes(b"data")
    for call in (
        lambda: vault.read(f"file://{outside}", sha256=sha(b"data"), max_bytes=10),
        lambda: vault.remove(str(outside)),
    ):
        with pytest.raises(VerificationError) as caught:
            call()
        assert caught.value.reason == "vault_file_foreign"
    assert outside.exists()


def test_a_link_in_the_vault_is_not_followed(vault: Vault, tmp_path: Path) -> None:
    location = vault.write(UUID, VaultKind.METADATA, "m.avro", b"data")
    path = parse_location(location).local
    (tmp_path / "outside").write_bytes(b"data")
    path.unlink()
    path.symlink_to(tmp_path / "outside")
    with pytest.raises(VerificationError):
        vault.read(location, sha256=sha(b"data"), max_bytes=10)
    with pytest.raises(VerificationError):
        vault.remove(location)


@pytest.mark.parametrize("name", ["", "..", "a/..", "../a", "/a", "a/b/c", ".hidden", "a//b", "a\0", "a b"])
def test_a_name_that_could_lead_elsewhere_is_refused(vault: Vault, name: str) -> None:
    with pytest.raises(InputError) as caught:
        vault.location(UUID, VaultKind.DATA, name)
    assert caught.value.reason == "vault_name_invalid"


def test_a_folder_that_is_no_table_uuid_is_refused(vault: Vault) -> None:
    with pytest.raises(InputError):
        vault.location("..", VaultKind.DATA, "a")


def test_equal_bytes_of_two_files_have_two_copies(vault: Vault) -> None:
    first, second = (vault.copy_in(UUID, ATTEMPT, at, b"data", sha(b"data")) for at in range(2))
    assert first != second
    assert vault.finished(UUID, VaultKind.DATA, ATTEMPT) == [first, second]


def test_a_quarantined_file_is_named_by_its_hash(vault: Vault) -> None:
    location = vault.quarantine(UUID, ATTEMPT, b"data")
    assert location.endswith(f"/quarantine/{ATTEMPT}/{sha(b'data')}")


def test_removing_the_last_file_of_an_attempt_removes_its_folder(vault: Vault) -> None:
    first, second = (vault.copy_in(UUID, ATTEMPT, at, b"data", sha(b"data")) for at in range(2))
    vault.remove(first)
    vault.remove(first)
    assert vault.finished(UUID, VaultKind.DATA, ATTEMPT) == [second]
    vault.remove(second)
    assert not parse_location(second).local.parent.exists()
    assert vault.copy_in(UUID, ATTEMPT, 0, b"data", sha(b"data")) == first


def test_a_folder_that_cannot_be_created_is_unavailable(vault: Vault, tmp_path: Path) -> None:
    (tmp_path / "vault").write_text("a file where the folder should be")
    with pytest.raises(UnavailableError) as caught:
        vault.write(UUID, VaultKind.METADATA, "m.avro", b"data")
    assert caught.value.reason == "vault_unavailable"


def test_file_and_folder_are_synced_before_the_write_returns(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    location = vault.write(UUID, VaultKind.METADATA, "m.avro", b"data")
    folder = str(parse_location(location).local.parent)
    assert synced[-1] == folder
    assert any(path.startswith(f"{folder}/.pvdm-new-") for path in synced)
