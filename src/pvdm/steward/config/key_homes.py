"""The key home that the configuration names, opened; the epoch book is in the keystore file, else in the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pvdm.errors import UnavailableError
from pvdm.steward.config.steward import FileKeys, KeysConfig, KmsKeys, Pkcs11Keys
from pvdm.trust.keys import disk
from pvdm.trust.keys.file import create_file_keys, open_file_keys
from pvdm.trust.keys.kms import KmsSettings, open_kms_keys
from pvdm.trust.keys.passphrase import Passphrase
from pvdm.trust.keys.pkcs11 import Pkcs11Settings, open_pkcs11_keys
from pvdm.trust.keys.service import EpochKeyService, EpochStore

PASSPHRASE_FILE_MAX_BYTES: Final = 4_096


def open_keys(config: KeysConfig, book: EpochStore, *, create: bool = False) -> EpochKeyService:
    """The key service; `create` makes a keystore file where that is the home, and never overwrites one."""
    match config:
        case FileKeys(path, passphrase_file):
            secret = None if passphrase_file is None else _read_secret(passphrase_file)
            return create_file_keys(path, secret) if create else open_file_keys(path, secret)
        case KmsKeys():
            settings = KmsSettings(config.region, config.endpoint, config.timeout_seconds, config.tries)
            return open_kms_keys(settings, book)
        case Pkcs11Keys():
            token = Pkcs11Settings(config.library, config.token, config.algorithm)
            return open_pkcs11_keys(token, _read_secret(config.pin_file), book)


def _read_secret(path: Path) -> Passphrase:
    """The file's one line; its owner and mode are judged, its content never shown."""
    try:
        found = disk.read_private(path, size_max_bytes=PASSPHRASE_FILE_MAX_BYTES)
    except UnavailableError as error:
        if error.code == "key_file_missing":
            error.hint = "before the first start make it yourself, one line, mode 0600; later, bring it back"
        raise
    text = found.rstrip(b"\r\n").decode("utf-8", "replace")
    del found
    try:
        return Passphrase(text)
    finally:
        del text
