"""The store as a client is told of it, in the words that Iceberg's own clients read."""

from __future__ import annotations

from collections.abc import Mapping

from pvdm.errors import Code
from pvdm.lake.stores.s3_client import S3Credentials, S3Settings
from pvdm.model.secret import Secret

ACCESS_KEY_ID = "s3.access-key-id"
SECRET_ACCESS_KEY = "s3.secret-access-key"  # noqa: S105 - the name of a field
SESSION_TOKEN = "s3.session-token"  # noqa: S105 - the name of a field
ENDS_MS = "s3.session-token-expires-at-ms"
ENDPOINT = "s3.endpoint"
PATH_STYLE = "s3.path-style-access"
REGION = "client.region"


def open_config(settings: S3Settings) -> dict[str, str]:
    """Address and manners of the store, without any credential."""
    found = {REGION: settings.region, "s3.region": settings.region}
    if settings.endpoint is not None:
        found[ENDPOINT] = settings.endpoint
    if settings.path_style:
        found[PATH_STYLE] = "true"
    else:
        found["s3.force-virtual-addressing"] = "true"
    return found


def credential_config(own: S3Credentials) -> dict[str, str]:
    """A session's credentials, for whoever they were made for."""
    told = {ACCESS_KEY_ID: own.access_key_id, SECRET_ACCESS_KEY: own.secret_access_key.reveal().decode()}
    if own.session_token is not None:
        told[SESSION_TOKEN] = own.session_token.reveal().decode()
    return told


def settings_of(config: Mapping[str, str]) -> S3Settings:
    """The store that a load answer describes; without credentials in it, they are the caller's own."""
    if REGION not in config:
        raise Code.STORE_NOT_CONFIGURED(
            "the Steward does not say where the table's store is", expected=REGION, got="none"
        )
    credentials = None
    if ACCESS_KEY_ID in config:
        credentials = S3Credentials(
            config[ACCESS_KEY_ID],
            Secret(config[SECRET_ACCESS_KEY].encode()),
            Secret(config[SESSION_TOKEN].encode()) if SESSION_TOKEN in config else None,
        )
    return S3Settings(config[REGION], config.get(ENDPOINT), config.get(PATH_STYLE) == "true", credentials=credentials)
