"""Every key home derives the same keys from one root, signs what its public key verifies, and raises pvdm's errors."""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import logging
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pvdm.errors import NotAllowedError, PvdmError, UnavailableError
from pvdm.model.projection import ProjectionName
from pvdm.trust.keys.context import Purpose
from pvdm.trust.keys.epochs import EpochBook, KeyEntry, KeyRole
from pvdm.trust.keys.file import FileKeystore
from pvdm.trust.keys.kms import KmsHome, KmsSettings, open_kms_keys
from pvdm.trust.keys.pkcs11 import Pkcs11Home, Pkcs11Settings
from pvdm.trust.keys.seal import Passphrase
from pvdm.trust.keys.service import KeyService, release_keys
from tests.support import fault
from tests.support.for_each import for_each
from tests.support.steward.epoch_file import FileEpochStore
from tests.support.steward.keys import adopt, attempt_context, source_context
from tests.support.steward.secret_search import traces

PIN = "734512"
REGION = "eu-west-1"
CONTENT = ProjectionName.CONTENT


def material_in_moto(reference: str) -> bytes:
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.kms.models import kms_backends

    material: bytes = kms_backends[DEFAULT_ACCOUNT_ID][REGION].keys[reference.rpartition("/")[2]].key_material
    return material


def import_into_token(home: Pkcs11Home, role: KeyRole, material: bytes) -> KeyEntry:
    from pkcs11 import Attribute, KeyType, ObjectClass

    reference = os.urandom(16).hex()
    home._run(
        lambda session: session.create_object(
            {
                Attribute.CLASS: ObjectClass.SECRET_KEY,
                Attribute.KEY_TYPE: KeyType.GENERIC_SECRET,
                Attribute.VALUE: material,
                Attribute.ID: bytes.fromhex(reference),
                Attribute.TOKEN: True,
                Attribute.SIGN: True,
                Attribute.SENSITIVE: True,
                Attribute.EXTRACTABLE: False,
            }
        )
    )
    return KeyEntry(role, reference)


def service_with(service: KeyService, entries: dict[KeyRole, KeyEntry], store: FileEpochStore) -> KeyService:
    """A service on the same home, with these entries in place of the epoch's own."""
    epoch = service.book().epoch(1)
    keys = tuple(entries.get(entry.role, entry) for entry in epoch.keys)
    store.replace(EpochBook(1, (replace(epoch, keys=keys),)))
    return KeyService(service._home, store)


def derive_all_keys(service: KeyService) -> list[bytes]:
    keys = release_keys(service, attempt_context(), ended=True)
    others = [service.row_hash_key(source_context(), CONTENT), service.commitment_key(source_context(), CONTENT)]
    return [key.reveal() for _, key in (*keys.row_hash, *keys.commitment)] + [key.reveal() for key in others]


def test_one_root_gives_the_same_keys_in_all_three_homes(
    tmp_path: Path, kms_keys: KeyService, token_keys: KeyService
) -> None:
    roots = {role: material_in_moto(kms_keys.book().epoch(1).key(role).reference) for role in KeyRole if not role.signs}
    token_home = token_keys._home
    assert isinstance(token_home, Pkcs11Home)
    imported = {role: import_into_token(token_home, role, root) for role, root in roots.items()}
    in_token = service_with(token_keys, imported, FileEpochStore.create(tmp_path / "imported-book"))
    store = FileKeystore.create(tmp_path / "file")
    entries = tuple(store.make(role) for role in KeyRole)
    for entry in entries:
        if entry.role in roots:
            adopt(store, entry.reference, roots[entry.role])
    book, _ = EpochBook().create(1, entries, "imported")
    store.replace(book)
    in_file = KeyService(store, store)
    in_file.activate_epoch(1, "imported")
    assert derive_all_keys(kms_keys) == derive_all_keys(in_token) == derive_all_keys(in_file)


def test_a_key_is_the_hmac_of_its_context_under_the_root(kms_keys: KeyService) -> None:
    root = material_in_moto(kms_keys.book().epoch(1).key(KeyRole.ROW_HASH).reference)
    wanted = hmac.digest(root, attempt_context().message(Purpose.ROW_HASH, CONTENT), hashlib.sha256)
    assert kms_keys.row_hash_key(attempt_context(), CONTENT).reveal() == wanted


@pytest.mark.parametrize("role", [KeyRole.SIGNING, KeyRole.LOG], ids=lambda role: role.value)
@pytest.mark.parametrize("size", [1, 4_096])
def test_a_signature_verifies_under_the_public_key_of_its_role(keys: KeyService, role: KeyRole, size: int) -> None:
    signer = keys.signer(role, 1)
    keys.public_key(role, 1).verify(signer.sign(bytes(size)), bytes(size))


def test_every_role_has_a_key_of_its_own(keys: KeyService) -> None:
    entries = keys.book().epoch(1).keys
    signing, log = keys.public_key(KeyRole.SIGNING, 1), keys.public_key(KeyRole.LOG, 1)
    assert (len({entry.reference for entry in entries}), signing == log) == (4, False)


def test_rotation_in_the_middle_keeps_a_workload_on_its_epoch(keys: KeyService) -> None:
    opened = keys.epoch_for(None)
    before = derive_all_keys(keys)
    keys.create_epoch("rotation")
    keys.activate_epoch(2, "rotation")
    assert (keys.epoch_for(opened), derive_all_keys(keys)) == (1, before)


def test_a_revoked_epoch_derives_nothing(keys: KeyService) -> None:
    keys.revoke_epoch(1, "leaked")
    with pytest.raises(NotAllowedError) as caught:
        keys.row_hash_key(attempt_context(), CONTENT)
    assert caught.value.reason == "epoch_revoked"


def test_several_threads_derive_and_sign_at_once(keys: KeyService) -> None:
    wanted = derive_all_keys(keys)
    signer = keys.signer(KeyRole.SIGNING, 1)
    seen: list[bool] = []

    def work() -> None:
        signer.public.verify(signer.sign(b"data"), b"data")
        seen.append(derive_all_keys(keys) == wanted)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 4


def test_an_epoch_can_be_created_after_a_crash_between_keys_and_book(keys: KeyService) -> None:
    with fault.armed("keys.after_make", fault.Raise(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        keys.create_epoch("dies on the way")
    keys.create_epoch("again")
    assert [epoch.number for epoch in keys.book().epochs] == [1, 2]


def test_the_log_of_every_library_at_level_debug_shows_no_key(kms_keys: KeyService) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    names = ["", *(name for name in logging.root.manager.loggerDict if name.startswith(("boto", "urllib3")))]
    levels = {name: logging.getLogger(name).level for name in names}
    logging.getLogger().addHandler(handler)
    try:
        for name in names:
            logging.getLogger(name).setLevel(logging.DEBUG)
        given = kms_keys.row_hash_key(attempt_context(), CONTENT).reveal()
        logging.getLogger("planted").debug("%s", base64.b64encode(b"planted secret of 24 byte").decode())
    finally:
        logging.getLogger().removeHandler(handler)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
    seen = stream.getvalue()
    assert "POST" in seen, "the libraries' lines are captured"
    assert (traces(b"planted secret of 24 byte", seen) != [], traces(given, seen)) == (True, [])


def reason_of(service: KeyService) -> str:
    with pytest.raises(PvdmError) as caught:
        service.row_hash_key(attempt_context(), CONTENT)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return caught.value.reason


def test_a_kms_that_cannot_be_reached_is_unavailable(tmp_path: Path, kms_keys: KeyService) -> None:
    settings = KmsSettings(REGION, "http://127.0.0.1:9", timeout_seconds=1, tries=1)
    unreachable = open_kms_keys(settings, FileEpochStore(tmp_path / "kms-book"))
    assert reason_of(unreachable) == "kms_unavailable"


def test_a_kms_that_does_not_know_the_key_refuses(tmp_path: Path, kms_keys: KeyService) -> None:
    unknown = KeyEntry(KeyRole.ROW_HASH, f"arn:aws:kms:{REGION}:123456789012:key/00000000-0000-0000-0000-000000000000")
    store = FileEpochStore.create(tmp_path / "other-book")
    assert reason_of(service_with(kms_keys, {KeyRole.ROW_HASH: unknown}, store)) == "kms_refused"


def test_the_number_of_tries_at_kms_is_limited(
    kms_endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from botocore.endpoint import Endpoint
    from botocore.exceptions import ConnectTimeoutError

    requests: list[str] = []

    def time_out(self: object, request: Any) -> None:
        requests.append(request.url)
        raise ConnectTimeoutError(endpoint_url=request.url)

    monkeypatch.setattr(Endpoint, "_send", time_out)
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
    service = open_kms_keys(KmsSettings(REGION, kms_endpoint, tries=3), FileEpochStore.create(tmp_path / "book"))
    with pytest.raises(UnavailableError) as caught:
        service.create_epoch("never")
    assert (caught.value.reason, len(requests)) == ("kms_unavailable", 3)


class _FixedAnswerClient:
    """A client of KMS that always gives the same answer, and records the last arguments."""

    def __init__(self, answer: dict[str, object]) -> None:
        self.answer = answer
        self.arguments: dict[str, object] = {}

    def sign(self, **arguments: object) -> dict[str, object]:
        self.arguments = arguments
        return self.answer

    generate_mac = sign


@for_each(("size", "kind"), [(0, "DIGEST"), (1, "RAW"), (4_096, "RAW"), (4_097, "DIGEST")])
def test_data_that_kms_would_not_accept_is_sent_as_a_digest(size: int, kind: str) -> None:
    data = bytes(size)
    client = _FixedAnswerClient({"KeyId": "arn:key/1", "Signature": b"signature"})
    KmsHome(client).sign(KeyEntry(KeyRole.ROW_HASH, "arn:key/1"), data)
    sent = data if kind == "RAW" else hashlib.sha256(data).digest()
    assert (client.arguments["MessageType"], client.arguments["Message"]) == (kind, sent)


@for_each(
    "answer",
    [{}, {"Mac": bytes(32)}, {"Mac": bytes(32), "KeyId": "arn:key/2"}, {"Mac": "text", "KeyId": "arn:key/1"}],
    ids=["empty", "no key id", "another key", "text"],
)
def test_an_answer_of_kms_that_does_not_fit_the_request_is_refused(answer: dict[str, object]) -> None:
    with pytest.raises(UnavailableError) as caught:
        KmsHome(_FixedAnswerClient(answer)).mac(KeyEntry(KeyRole.ROW_HASH, "arn:key/1"), b"message")
    assert caught.value.reason == "key_home_inconsistent"


def test_a_dropped_key_is_scheduled_for_deletion_in_kms(kms_keys: KeyService) -> None:
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.kms.models import kms_backends

    entry = kms_keys._home.make(KeyRole.ROW_HASH)
    kms_keys._home.drop(entry)
    state = kms_backends[DEFAULT_ACCOUNT_ID][REGION].keys[entry.reference.rpartition("/")[2]].key_state
    assert state == "PendingDeletion"


@for_each(("field", "value"), [("timeout_seconds", 0), ("timeout_seconds", 61), ("tries", 0), ("tries", 11)])
def test_settings_of_kms_that_are_out_of_range_are_refused(field: str, value: int) -> None:
    with pytest.raises(PvdmError) as caught:
        replace(KmsSettings(REGION), **{field: value})  # type: ignore[arg-type]
    assert caught.value.reason == "kms_settings"


def opening_reason(settings: Pkcs11Settings, pin: str) -> str:
    with pytest.raises(PvdmError) as caught:
        Pkcs11Home(settings, Passphrase(pin))
    assert caught.value.__context__ is None
    return caught.value.reason


def test_a_wrong_pin_is_refused(token: Any) -> None:
    assert opening_reason(token.settings(), "000000") == "pkcs11_pin_wrong"


def test_a_wrong_pin_is_refused_also_while_another_home_is_logged_in(token: Any, token_keys: KeyService) -> None:
    assert opening_reason(token.settings(), "000000") == "pkcs11_pin_wrong"


def test_an_unknown_token_is_not_found(token: Any) -> None:
    assert opening_reason(Pkcs11Settings(token.library, "no such token"), PIN) == "pkcs11_not_found"


def test_a_missing_library_is_unavailable(token: Any, tmp_path: Path) -> None:
    assert opening_reason(Pkcs11Settings(str(tmp_path / "none.so"), "t"), PIN) == "pkcs11_unavailable"


def test_a_key_that_the_token_lacks_is_not_found(tmp_path: Path, token_keys: KeyService) -> None:
    missing = KeyEntry(KeyRole.ROW_HASH, "00" * 16)
    store = FileEpochStore.create(tmp_path / "other-book")
    assert reason_of(service_with(token_keys, {KeyRole.ROW_HASH: missing}, store)) == "pkcs11_not_found"


def test_the_token_can_be_used_after_an_error(tmp_path: Path, token_keys: KeyService) -> None:
    missing = KeyEntry(KeyRole.ROW_HASH, "00" * 16)
    reason_of(service_with(token_keys, {KeyRole.ROW_HASH: missing}, FileEpochStore.create(tmp_path / "other-book")))
    assert len(derive_all_keys(token_keys)) == 6


def test_closing_one_of_two_homes_of_a_token_does_not_close_the_other(token: Any, token_keys: KeyService) -> None:
    wanted = derive_all_keys(token_keys)
    second = Pkcs11Home(token.settings(), Passphrase(PIN))
    second.close()
    assert derive_all_keys(token_keys) == wanted


def test_a_closed_home_makes_no_key(token: Any) -> None:
    home = Pkcs11Home(token.settings(), Passphrase(PIN))
    home.close()
    with pytest.raises(UnavailableError) as caught:
        home.make(KeyRole.ROW_HASH)
    assert caught.value.reason == "key_home_closed"


def test_keys_in_a_token_cannot_be_read_out(token_keys: KeyService) -> None:
    from pkcs11 import Attribute, ObjectClass
    from pkcs11.exceptions import AttributeSensitive

    home = token_keys._home
    assert isinstance(home, Pkcs11Home)
    reference = token_keys.book().epoch(1).key(KeyRole.ROW_HASH).reference

    def read(session: Any) -> None:
        key = session.get_key(object_class=ObjectClass.SECRET_KEY, id=bytes.fromhex(reference))
        with pytest.raises(AttributeSensitive):
            key[Attribute.VALUE]

    home._run(read)


def test_a_dropped_key_is_destroyed_in_the_token(token_keys: KeyService) -> None:
    entry = token_keys._home.make(KeyRole.ROW_HASH)
    token_keys._home.drop(entry)
    with pytest.raises(UnavailableError) as caught:
        token_keys._home.mac(entry, b"message")
    assert caught.value.reason == "pkcs11_not_found"
