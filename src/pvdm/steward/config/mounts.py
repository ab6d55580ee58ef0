"""The upstream catalogs that a configuration names, opened; what they need is a part of its own (`pvdm[upstream]`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pvdm.catalog.upstream.tables import Mount
from pvdm.errors import InputError, UnavailableError
from pvdm.lake.stores.s3_client import S3Settings
from pvdm.lake.upstream import Upstream
from pvdm.model.secret import Secret
from pvdm.steward.config.upstreams import GlueUpstreamConfig, RestUpstreamConfig, UpstreamConfig

SECRET_FILE_MAX_BYTES: Final = 65_536


def open_mounts(configured: Sequence[UpstreamConfig], store: S3Settings | None = None) -> tuple[Mount, ...]:
    """Each with its own client; none of them is asked anything yet. What lies in objects is in the Steward's store."""
    return tuple(Mount(each.name, each.namespace, each.there, _opened(each, store), each.places) for each in configured)


def _opened(config: UpstreamConfig, store: S3Settings | None) -> Upstream:
    try:
        match config.settings:
            case RestUpstreamConfig() as given:
                from pvdm.lake.upstream.rest import RestSettings, RestUpstream

                token, credential = _secret(given.token_file), _secret(given.credential_file)
                return RestUpstream(
                    config.name,
                    RestSettings(given.uri, given.warehouse, token, credential, given.timeout_seconds),
                )
            case GlueUpstreamConfig() as found:
                from pvdm.lake.upstream.glue import GlueSettings, GlueUpstream

                settings = GlueSettings(found.region, found.endpoint, found.catalog_id, found.timeout_seconds, store)
                return GlueUpstream(config.name, settings)
    except ImportError as error:
        raise UnavailableError(
            "upstream_not_installed",
            "upstream catalogs need PyIceberg",
            expected="the extra `pvdm[upstream]`",
            got=str(error.name),
            hint="pip install 'pvdm[upstream]'",
        ) from None


def _secret(path: Path | None) -> Secret | None:
    if path is None:
        return None
    try:
        data = path.read_bytes()[: SECRET_FILE_MAX_BYTES + 1].strip()
    except OSError as error:
        raise InputError(
            "config_invalid", "a secret of an upstream catalog cannot be read", expected=str(path), got=error.strerror
        ) from None
    if not 0 < len(data) <= SECRET_FILE_MAX_BYTES:
        raise InputError(
            "config_invalid",
            "a secret of an upstream catalog cannot be accepted",
            expected=f"1 to {SECRET_FILE_MAX_BYTES} bytes in {path}",
            got=f"{len(data)} bytes",
        )
    return Secret(data)
