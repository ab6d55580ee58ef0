"""Opens what the configuration names: key service, upstream catalogs, outside checkpoint and archive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pvdm.catalog.upstreams import Mount
from pvdm.errors import Code, UnavailableError
from pvdm.lake.stores.s3_client import S3Settings
from pvdm.lake.stores.stores import FilePath, Stores, path_at
from pvdm.lake.upstream import GlueSettings, Upstream
from pvdm.model.secret import Secret
from pvdm.steward.config.sections import RestUpstreamConfig, UpstreamConfig
from pvdm.steward.config.steward import FileKeys, KeysConfig, Pkcs11Keys, StewardConfig
from pvdm.trust.keys import disk
from pvdm.trust.keys.file import create_file_keys, open_file_keys
from pvdm.trust.keys.kms import KmsSettings, open_kms_keys
from pvdm.trust.keys.pkcs11 import Pkcs11Settings, open_pkcs11_keys
from pvdm.trust.keys.seal import Passphrase
from pvdm.trust.keys.service import EpochStore, KeyService

SECRET_FILE_MAX_BYTES: Final = 65_536
PASSPHRASE_FILE_MAX_BYTES: Final = 4_096
_ALERT_SECRET_BYTES_LEAST: Final = 16


def open_mounts(configured: Sequence[UpstreamConfig], store: S3Settings | None = None) -> tuple[Mount, ...]:
    """Make a client for each upstream catalog, and send no request. A Glue catalog's files are read from `store`."""
    return tuple(
        Mount(each.name, each.namespace, each.upstream_root, _open_upstream(each, store), each.places)
        for each in configured
    )


def _open_upstream(config: UpstreamConfig, store: S3Settings | None) -> Upstream:
    try:
        match config.settings:
            case RestUpstreamConfig() as rest:
                from pvdm.lake.upstream.rest import RestSettings, RestUpstream

                token, credential = map(_read_upstream_secret, (rest.token_file, rest.credential_file))
                rest_settings = RestSettings(rest.uri, rest.warehouse, token, credential, rest.timeout_seconds)
                return RestUpstream(config.name, rest_settings)
            case GlueSettings() as glue:
                from pvdm.lake.upstream.glue import GlueUpstream

                return GlueUpstream(config.name, replace(glue, store=store))
    except ImportError as error:
        raise Code.DEPENDENCY_MISSING(reason="upstream_not_installed", got=str(error.name)) from None


def _read_upstream_secret(path: Path | None) -> Secret | None:
    if path is None:
        return None
    try:
        data = path.read_bytes()[: SECRET_FILE_MAX_BYTES + 1].strip()
    except OSError as error:
        message = "a secret of an upstream catalog cannot be read"
        raise Code.CONFIG_INVALID(message, expected=str(path), got=error.strerror) from None
    if not 0 < len(data) <= SECRET_FILE_MAX_BYTES:
        message, expected = "a secret of an upstream catalog has a wrong size", f"1 to {SECRET_FILE_MAX_BYTES} bytes"
        raise Code.CONFIG_INVALID(message, expected=f"{expected} in {path}", got=f"{len(data)} bytes")
    return Secret(data)


def read_alert_secret(path: Path) -> Secret:
    """Read the secret under which alerts are signed: a file of this user with mode 0600 and one line."""
    data = disk.read_own(path, size_max_bytes=SECRET_FILE_MAX_BYTES).strip()
    if len(data) < _ALERT_SECRET_BYTES_LEAST:
        message, expected = "the secret of [alerts] is too short", f"at least {_ALERT_SECRET_BYTES_LEAST} bytes"
        raise Code.CONFIG_INVALID(message, expected=expected, got=str(len(data)))
    return Secret(data)


def open_keys(config: KeysConfig, book: EpochStore, *, create: bool = False) -> KeyService:
    """Open the Steward's keys. `create` makes a new keystore file; `book` lists the epochs of KMS and PKCS#11 keys."""
    match config:
        case FileKeys(path, passphrase_file):
            secret = None if passphrase_file is None else _read_passphrase(passphrase_file)
            return create_file_keys(path, secret) if create else open_file_keys(path, secret)
        case KmsSettings():
            return open_kms_keys(config, book)
        case Pkcs11Keys():
            token = Pkcs11Settings(config.library, config.token, config.algorithm)
            return open_pkcs11_keys(token, _read_passphrase(config.pin_file), book)


def _read_passphrase(path: Path) -> Passphrase:
    """Read a passphrase or PIN from the file's one line. Owner and mode are checked; errors never show the content."""
    try:
        content = disk.read_own(path, size_max_bytes=PASSPHRASE_FILE_MAX_BYTES)
    except UnavailableError as error:
        if error.code == Code.KEY_FILE_MISSING:
            error.hint = "before the first start create it with one line and mode 0600; later restore it from a backup"
        raise
    text = content.rstrip(b"\r\n").decode("utf-8", "replace")
    del content  # error reports may show the locals of each frame
    try:
        return Passphrase(text)
    finally:
        del text


def outside_file(config: StewardConfig) -> FilePath:
    """The file of the outside checkpoint."""
    return path_at(config.outside_store_location or config.outside_path, Stores(config.s3))


def archive_folder(config: StewardConfig) -> FilePath | None:
    """The folder of the archive, if there is one."""
    place = config.archive_store_location or config.archive
    return None if place is None else path_at(place, Stores(config.s3))
