"""The key service: what it allows in each state of an epoch, and how it treats faulty key homes and epoch books."""

from __future__ import annotations

from pathlib import Path

import pytest

from pvdm.errors import InputError, NotAllowedError, PvdmError, UnavailableError, VerificationError
from pvdm.model.projection import ProjectionName
from pvdm.model.statements.epoch import EpochStage
from pvdm.trust.keys.epochs import EpochBook, KeyEntry, KeyRole
from pvdm.trust.keys.file import FileKeystore, create_file_keys
from pvdm.trust.keys.service import KeyService, release_keys
from tests.support.steward.epoch_file import FileEpochStore
from tests.support.steward.keys import attempt_context, keystore, source_context

CONTENT = ProjectionName.CONTENT


@pytest.fixture
def service(tmp_path: Path) -> KeyService:
    return keystore(tmp_path / "keys")


def rotate(service: KeyService) -> None:
    service.create_epoch("rotation")
    service.activate_epoch(2, "rotation")


def test_a_rotation_returns_both_changes_in_order(service: KeyService) -> None:
    service.create_epoch("rotation")
    changes = [(change.epoch, change.before, change.after) for change in service.activate_epoch(2, "rotation")]
    assert changes == [
        (1, EpochStage.ACTIVE, EpochStage.RETIRED),
        (2, EpochStage.CREATED, EpochStage.ACTIVE),
    ]


def test_a_change_names_the_public_keys_of_its_epoch(service: KeyService) -> None:
    (change,) = service.create_epoch("rotation")
    wanted = {role.value: service.public_key(role, 2).key_id for role in (KeyRole.SIGNING, KeyRole.LOG)}
    assert change.to_json() == {
        "epoch": "2",
        "before": None,
        "after": "CREATED",
        "reason": "rotation",
        "key_ids": wanted,
    }


def test_a_workload_stays_on_its_epoch_after_a_rotation(service: KeyService) -> None:
    opened = service.epoch_for(None)
    rotate(service)
    assert (service.epoch_for(opened), service.epoch_for(None)) == (1, 2)


def test_a_retired_epoch_derives_the_same_keys_as_before(service: KeyService) -> None:
    before = service.row_hash_key(attempt_context(), CONTENT).reveal()
    rotate(service)
    assert service.row_hash_key(attempt_context(), CONTENT).reveal() == before


def test_another_epoch_derives_other_keys(service: KeyService) -> None:
    rotate(service)
    one, two = (service.row_hash_key(attempt_context(epoch), CONTENT).reveal() for epoch in (1, 2))
    assert one != two


def test_a_retired_epoch_still_signs_for_its_workloads(service: KeyService) -> None:
    rotate(service)
    signer = service.signer(KeyRole.SIGNING, 1)
    signer.public.verify(signer.sign(b"data"), b"data")


@pytest.mark.parametrize(
    "use",
    [
        lambda service: service.row_hash_key(attempt_context(), CONTENT),
        lambda service: service.commitment_key(attempt_context(), CONTENT),
        lambda service: service.row_hash_key(source_context(), CONTENT),
        lambda service: service.commitment_key(source_context(), CONTENT),
        lambda service: service.signer(KeyRole.SIGNING, 1),
        lambda service: service.signer(KeyRole.LOG, 1),
        lambda service: service.epoch_for(1),
        lambda service: release_keys(service, attempt_context(), ended=True),
    ],
    ids=["row-hash", "commitment", "source-row-hash", "source-commitment", "signing", "log", "epoch_for", "release"],
)
@pytest.mark.parametrize("state", ["REVOKED", "CREATED"])
def test_using_an_epoch_that_is_revoked_or_was_never_active_is_refused(tmp_path: Path, use: object, state: str) -> None:
    service = create_file_keys(tmp_path / "keys")
    service.create_epoch("first")
    if state == "REVOKED":
        service.activate_epoch(1, "first")
        service.revoke_epoch(1, "leaked")
    with pytest.raises(NotAllowedError) as caught:
        use(service)  # type: ignore[operator]
    assert caught.value.reason == {"REVOKED": "epoch_revoked", "CREATED": "epoch_not_active"}[state]


def test_a_signer_taken_before_the_revocation_does_not_sign_after_it(service: KeyService) -> None:
    signer = service.signer(KeyRole.SIGNING, 1)
    service.revoke_epoch(1, "leaked")
    with pytest.raises(NotAllowedError) as caught:
        signer.sign(b"data")
    assert caught.value.reason == "epoch_revoked"


def test_public_keys_of_a_revoked_epoch_can_still_be_read(service: KeyService) -> None:
    before = service.public_key(KeyRole.SIGNING, 1)
    service.revoke_epoch(1, "leaked")
    assert service.public_key(KeyRole.SIGNING, 1) == before


def test_a_new_workload_without_an_active_epoch_is_refused(service: KeyService) -> None:
    service.retire_epoch(1, "pause")
    with pytest.raises(NotAllowedError) as caught:
        service.epoch_for(None)
    assert caught.value.reason == "epoch_none_active"


def test_an_unknown_epoch_is_refused(service: KeyService) -> None:
    with pytest.raises(InputError) as caught:
        service.epoch_for(9)
    assert caught.value.reason == "epoch_unknown"


@pytest.mark.parametrize("reason", ["", "  ", "a\nb", "x" * 1025])
def test_a_change_without_a_proper_reason_is_refused(service: KeyService, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        service.create_epoch(reason)
    assert caught.value.reason == "epoch_reason"


def test_a_new_epoch_is_above_the_highest_one_of_the_log(service: KeyService) -> None:
    (change,) = service.create_epoch("restored from a backup", above=7)
    assert change.epoch == 8


def test_the_public_key_of_a_root_key_is_refused(service: KeyService) -> None:
    with pytest.raises(InputError) as caught:
        service.public_key(KeyRole.ROW_HASH, 1)
    assert caught.value.reason == "key_role"


def test_row_hash_and_commitment_keys_differ_for_one_attempt(service: KeyService) -> None:
    one, two = service.row_hash_key(attempt_context(), CONTENT), service.commitment_key(attempt_context(), CONTENT)
    assert one.reveal() != two.reveal()


def test_the_row_hash_keys_of_an_ended_attempt_are_released(service: KeyService) -> None:
    released = release_keys(service, attempt_context(), ended=True)
    wanted = [service.row_hash_key(attempt_context(), name).reveal() for name in ProjectionName]
    assert [key.reveal() for _, key in released.row_hash] == wanted


def test_the_commitment_keys_of_an_ended_attempt_are_released(service: KeyService) -> None:
    released = release_keys(service, attempt_context(), ended=True)
    wanted = [service.commitment_key(attempt_context(), name).reveal() for name in ProjectionName]
    assert [key.reveal() for _, key in released.commitment] == wanted


@pytest.mark.parametrize("ended", [False, None, 1, "yes"])
def test_the_keys_of_an_attempt_that_has_not_ended_are_not_released(service: KeyService, ended: bool) -> None:
    with pytest.raises(NotAllowedError) as caught:
        release_keys(service, attempt_context(), ended=ended)
    assert caught.value.reason == "attempt_not_closed"


class _BusyStore(FileKeystore):
    def replace(self, book: EpochBook) -> bool:
        return book.revision < 0


def test_a_book_that_others_keep_changing_is_an_error_that_leaves_no_keys(tmp_path: Path) -> None:
    keystore(tmp_path / "keys")
    busy = _BusyStore.open(tmp_path / "keys")
    with pytest.raises(UnavailableError) as caught:
        KeyService(busy, busy).create_epoch("never")
    assert (caught.value.reason, busy._pending) == ("epoch_contention", {})


class _OtherSigner(FileKeystore):
    def sign(self, entry: KeyEntry, data: bytes) -> bytes:
        return super().sign(entry, data + b"!")


def test_a_key_home_that_signs_other_bytes_is_refused(tmp_path: Path) -> None:
    keystore(tmp_path / "keys")
    home = _OtherSigner.open(tmp_path / "keys")
    with pytest.raises(UnavailableError) as caught:
        KeyService(home, home).signer(KeyRole.LOG, 1).sign(b"data")
    assert caught.value.reason == "key_home_inconsistent"


class _FailingHome(FileKeystore):
    def make(self, role: KeyRole) -> KeyEntry:
        if role is KeyRole.LOG:
            raise UnavailableError("away", "the home went away")
        return super().make(role)


def test_keys_of_an_epoch_that_could_not_be_created_are_dropped(tmp_path: Path) -> None:
    keystore(tmp_path / "keys")
    home = _FailingHome.open(tmp_path / "keys")
    with pytest.raises(UnavailableError, match="went away"):
        KeyService(home, home).create_epoch("never")
    assert home._pending == {}


def reason_of_loading(path: Path) -> str:
    with pytest.raises(PvdmError) as caught:
        FileEpochStore(path).load()
    return caught.value.reason


def test_a_missing_book_is_refused(tmp_path: Path) -> None:
    assert reason_of_loading(tmp_path / "book") == "key_file_missing"


@pytest.mark.parametrize("length", [0, 10, -1])
def test_a_truncated_book_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "book"
    FileEpochStore.create(path)
    path.write_bytes(path.read_bytes()[:length])
    assert reason_of_loading(path) == "epoch_book_damaged"


def test_a_book_with_two_active_epochs_is_refused(service: KeyService, tmp_path: Path) -> None:
    rotate(service)
    path = tmp_path / "book"
    FileEpochStore.create(path)
    path.write_bytes(service.book().to_bytes().replace(b'"RETIRED"', b'"ACTIVE"'))
    assert reason_of_loading(path) == "epoch_book_damaged"


def test_an_old_book_that_is_put_back_is_refused(service: KeyService, tmp_path: Path) -> None:
    path = tmp_path / "book"
    store = FileEpochStore.create(path)
    old = path.read_bytes()
    path.write_bytes(service.book().to_bytes())
    store.load()
    path.write_bytes(old)
    with pytest.raises(VerificationError) as caught:
        store.load()
    assert caught.value.reason == "epoch_book_rolled_back"


def test_a_book_is_replaced_only_by_its_next_revision(service: KeyService, tmp_path: Path) -> None:
    store = FileEpochStore.create(tmp_path / "book")
    assert (store.replace(service.book()), store.load()) == (False, EpochBook())
