"""The keystore file: keys and epoch book (the list of key generations) in one file, sealed (encrypted) or not."""

from __future__ import annotations

import hashlib
import hmac
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pvdm.errors import Code, PvdmError
from pvdm.model import canonical_json
from pvdm.model.canonical_json import Value
from pvdm.model.secret import KEY_BYTES, Secret
from pvdm.trust.keys import disk
from pvdm.trust.keys.epochs import EpochBook, KeyEntry, KeyRole
from pvdm.trust.keys.public import PublicKey
from pvdm.trust.keys.seal import SCRYPT_COST_LOG2, Passphrase, Seal
from pvdm.trust.keys.service import KeyService

KEYSTORE_SIZE_MAX_BYTES: Final = 32 * 1024 * 1024

_FORMAT: Final = "pvdm-keystore/v1"
_CHECK_LABEL: Final = b"pvdm/keystore-check/v1\0"
_CLOSED_STAMP: Final = (-1,)  # in place of the file's `disk.stamp` after `close`


@dataclass(frozen=True, slots=True, eq=False)
class _Content:
    book: EpochBook
    keys: Mapping[str, Secret]  # by reference, the name of a key in the book


class FileKeystore:
    """A `KeyHome` and an `EpochStore` in one file: keys and the book that names them change in one write."""

    __slots__ = ("_content", "_lock", "_path", "_pending", "_seal", "_stamp")

    def __init__(self, path: Path, seal: Seal | None) -> None:
        self._path = path
        self._seal = seal
        self._lock = threading.RLock()
        self._pending: dict[str, Secret] = {}  # new keys, by reference, that no stored book names yet
        self._content: _Content | None = None
        self._stamp: tuple[int, ...] = ()

    @classmethod
    def create(
        cls, path: Path, passphrase: Passphrase | None = None, *, cost_log2: int = SCRYPT_COST_LOG2
    ) -> FileKeystore:
        """Create a keystore without epochs. An existing file is never overwritten."""
        seal = None if passphrase is None else Seal.new(passphrase, cost_log2=cost_log2)
        content = _to_file_bytes(_Content(EpochBook(), {}), seal)
        with disk.hold_lock(path):
            disk.write(path, content, mode=disk.PRIVATE_MODE, fresh=True)
        store = cls(path, seal)
        store.load()
        return store

    @classmethod
    def open(cls, path: Path, passphrase: Passphrase | None = None) -> FileKeystore:
        """Open an existing keystore. Its mode, owner, form and seal are checked."""
        stored = _parse_file(path, disk.read_own(path, size_max_bytes=KEYSTORE_SIZE_MAX_BYTES))
        store = cls(path, _open_seal(path, stored, passphrase))
        store.load()
        return store

    def load(self) -> EpochBook:
        """The current book of the file."""
        return self._load_content().book

    def replace(self, book: EpochBook) -> bool:
        """Store this book and the new keys that it names. Returns False unless it is the revision after the file's."""
        with self._lock, disk.hold_lock(self._path):
            content = self._load_content()
            if book.revision != content.book.revision + 1:
                return False
            available = {**content.keys, **self._pending}
            named = [entry.reference for epoch in book.epochs for entry in epoch.keys]
            keys = {reference: _find_key(available, reference) for reference in named}
            disk.write(self._path, _to_file_bytes(_Content(book, keys), self._seal), mode=disk.PRIVATE_MODE)
            for reference in named:
                self._pending.pop(reference, None)
            return True

    def make(self, role: KeyRole) -> KeyEntry:
        """Make a new key in memory. `replace` writes it with the book that names it."""
        secret = Secret(os.urandom(KEY_BYTES))
        reference = os.urandom(16).hex()
        with self._lock:
            self._pending[reference] = secret
        return KeyEntry(role, reference, _derive_public(secret) if role.signs else None)

    def drop(self, entry: KeyEntry) -> None:
        """Forget a key that no book names."""
        with self._lock:
            self._pending.pop(entry.reference, None)

    def mac(self, entry: KeyEntry, message: bytes) -> bytes:
        """HMAC-SHA256 of the message under a root key."""
        return hmac.digest(_find_key(self._load_content().keys, entry.reference).reveal(), message, hashlib.sha256)

    def sign(self, entry: KeyEntry, data: bytes) -> bytes:
        """The Ed25519 signature of the data."""
        return _load_private(_find_key(self._load_content().keys, entry.reference)).sign(data)

    def close(self) -> None:
        """Forget the keys in memory. The file is not changed."""
        with self._lock:
            self._pending.clear()
            self._content = None
            self._seal = None
            self._stamp = _CLOSED_STAMP

    def _load_content(self) -> _Content:
        """The file's content, which is read again only if the file has changed."""
        with self._lock:
            if self._stamp == _CLOSED_STAMP:
                raise Code.KEY_HOME_UNAVAILABLE("the keystore is closed", reason="key_home_closed", got="closed")
            stamp = disk.stamp(self._path)
            if self._content is None or stamp != self._stamp:
                self._content = self._read()
                self._stamp = stamp
            return self._content

    def _read(self) -> _Content:
        stored = _parse_file(self._path, disk.read_own(self._path, size_max_bytes=KEYSTORE_SIZE_MAX_BYTES))
        content = _open_body(stored, self._seal)
        del stored  # a traceback may show locals
        if content is None:
            raise _damaged_error(self._path)
        if self._content is not None and content.book.revision < self._content.book.revision:
            message = f"{self._path.name} is older than what this process has seen"
            expected, got = f"revision {self._content.book.revision} or later", f"revision {content.book.revision}"
            raise Code.KEY_FILES_DAMAGED(message, reason="keystore_rolled_back", expected=expected, got=got)
        return content


def open_file_keys(path: Path, passphrase: Passphrase | None = None) -> KeyService:
    """The key service over an existing keystore file."""
    store = FileKeystore.open(path, passphrase)
    return KeyService(store, store)


def create_file_keys(path: Path, passphrase: Passphrase | None = None) -> KeyService:
    """The key service over a new keystore file without epochs."""
    store = FileKeystore.create(path, passphrase)
    return KeyService(store, store)


@dataclass(frozen=True, slots=True)
class _StoredForm:
    seal: Value  # the seal's header, or None for a keystore without passphrase
    check: str  # the checksum of the body if it is not sealed, else empty
    body: Secret  # book and keys, encrypted if sealed


def _to_file_bytes(content: _Content, seal: Seal | None) -> Secret:
    body = Secret(
        canonical_json.dump(
            {
                "book": content.book.to_json(),
                "keys": {reference: secret.reveal().hex() for reference, secret in content.keys.items()},
            }
        )
    )
    seal_header: Value = None if seal is None else seal.header()
    check = _checksum(body) if seal is None else ""  # a seal has its own check
    if seal is not None:
        body = seal.encrypt(body, bound=canonical_json.dump(seal_header))
    return Secret(
        canonical_json.dump({"format": _FORMAT, "seal": seal_header, "check": check, "body": body.reveal().hex()})
    )


def _checksum(body: Secret) -> str:
    # The hash is stored in clear text. It reveals nothing: the body's only secrets are keys of 256 random bits.
    return hashlib.sha256(_CHECK_LABEL + body.reveal()).hexdigest()


def _parse_file(path: Path, data: bytes) -> _StoredForm:
    stored = _try_parse(data)
    del data  # a traceback may show locals
    if stored is None:
        raise _damaged_error(path)
    return stored


def _try_parse(data: bytes) -> _StoredForm | None:
    # No error leaves this function: its frames hold the file's content, and a traceback may show locals.
    try:
        match canonical_json.parse(data, size_max_bytes=KEYSTORE_SIZE_MAX_BYTES):
            case {"format": str(name), "seal": seal, "check": str(check), "body": str(body), **rest} if (
                name == _FORMAT and not rest
            ):
                return _StoredForm(seal, check, Secret(bytes.fromhex(body)))
    except (PvdmError, ValueError):
        pass
    return None


def _open_seal(path: Path, stored: _StoredForm, passphrase: Passphrase | None) -> Seal | None:
    """The file's seal, opened with the passphrase. None if the file is not sealed; then a passphrase is an error."""
    if stored.seal is None:
        if passphrase is not None:
            message = f"{path.name} is not sealed, but a passphrase was given"
            raise Code.KEY_NOT_OPENED(message, reason="keystore_not_sealed", got="a keystore without a seal")
        return None
    if passphrase is None:
        hint = "give the passphrase"
        raise Code.KEY_INVALID(f"{path.name} is sealed", reason="passphrase_missing", got="none", hint=hint)
    return Seal.from_header(stored.seal, passphrase)


def _open_body(stored: _StoredForm, seal: Seal | None) -> _Content | None:
    # Returns None if the file was changed. No error leaves this function: a traceback may show locals, here keys.
    try:
        if seal is None:
            if stored.seal is not None or not hmac.compare_digest(_checksum(stored.body), stored.check):
                return None
            body = stored.body
        else:
            if stored.seal != seal.header():
                return None
            body = seal.decrypt(stored.body, bound=canonical_json.dump(stored.seal))
        match canonical_json.parse(body.reveal(), size_max_bytes=KEYSTORE_SIZE_MAX_BYTES):
            case {"book": book, "keys": Mapping() as keys, **rest} if not rest:
                content = _Content(
                    EpochBook.from_json(book), {name: Secret(bytes.fromhex(str(keys[name]))) for name in keys}
                )
                return content if _is_consistent(content) else None
    except (PvdmError, ValueError):
        pass
    return None


def _is_consistent(content: _Content) -> bool:
    entries = [entry for epoch in content.book.epochs for entry in epoch.keys]
    if sorted(entry.reference for entry in entries) != sorted(content.keys):
        return False
    if any(len(secret.reveal()) != KEY_BYTES for secret in content.keys.values()):
        return False
    return all(entry.public == _derive_public(content.keys[entry.reference]) for entry in entries if entry.role.signs)


def _find_key(keys: Mapping[str, Secret], reference: str) -> Secret:
    if reference not in keys:
        message, expected = "the keystore has no such key", "a key of its own book"
        raise Code.KEY_HOME_UNAVAILABLE(message, reason="key_reference_unknown", expected=expected, got=reference)
    return keys[reference]


def _load_private(secret: Secret) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(secret.reveal())


def _derive_public(secret: Secret) -> PublicKey:
    return PublicKey.from_loaded(_load_private(secret).public_key())


def _damaged_error(path: Path) -> PvdmError:
    message = f"{path.name} is truncated or was changed"
    return Code.KEY_FILES_DAMAGED(message, reason="keystore_damaged", got="something else")
