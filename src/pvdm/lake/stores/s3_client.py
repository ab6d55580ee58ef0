"""Clients of S3-compatible servers: settings, credentials, time limits, and errors as OSError."""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from pvdm.errors import Code
from pvdm.lake.stores.circuit_breaker import breaker_of
from pvdm.model.secret import Secret

S3_TIMEOUT_MAX_SECONDS: Final = 300
S3_TRIES_MAX: Final = 10
S3_CONNECT_MAX_SECONDS: Final = 5
S3_SILENT_TRIES_MAX: Final = 2
"""How often a request that times out is sent. A request whose connection breaks may be sent more often."""
_CONNECTIONS: Final = 16
_DEFAULT_REGION: Final = "us-east-1"
_NEW_CLIENT_LOCK: Final = threading.Lock()

_MISSING_CODES: Final = frozenset({"NoSuchBucketPolicy", "NoSuchKey", "NoSuchUpload", "NoSuchVersion", "404"})
_EXISTS_CODES: Final = frozenset({"PreconditionFailed", "412"})
_NO_CREDENTIALS: Final = frozenset({"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"})


@dataclass(frozen=True, slots=True, eq=False)
class S3Credentials:
    """Credentials of one session; secrets are not in their repr."""

    access_key_id: str
    secret_access_key: Secret = field(repr=False)
    session_token: Secret | None = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class S3Settings:
    """The server's address and the limits of calls to it. Without `endpoint` the server is AWS's own in the region.

    `credentials` are those of a session that a Steward, pvdm's service, opened for its client (`roles.Sts`). If they
    are None, AWS's own chain finds others: in the environment, a profile or the instance.
    """

    region: str
    endpoint: str | None = None
    path_style: bool = False
    profile: str | None = None
    timeout_seconds: int = 10
    tries: int = 4
    credentials: S3Credentials | None = None

    def __post_init__(self) -> None:
        for name, most in {"timeout_seconds": S3_TIMEOUT_MAX_SECONDS, "tries": S3_TRIES_MAX}.items():
            if not 1 <= getattr(self, name) <= most:
                words, expected, got = f"{name} is not valid", f"1 to {most}", str(getattr(self, name))
                raise Code.CONFIG_INVALID(words, reason="s3_settings", expected=expected, got=got)
        address = urlsplit(self.endpoint or "https://s3")
        if address.scheme not in ("http", "https") or not address.hostname or "@" in address.netloc:
            words, expected = "endpoint is not valid", "http(s)://host, without credentials"
            raise Code.CONFIG_INVALID(words, reason="s3_settings", expected=expected, got="another address")
        if address.path not in ("", "/") or address.query or address.fragment:
            words, expected = "endpoint is not valid", "http(s)://host without a path"
            raise Code.CONFIG_INVALID(words, reason="s3_settings", expected=expected, got="one with a path or query")


def settings_from_environment() -> S3Settings:
    """The settings of AWS's own tools in this environment, for use without a Steward.

    The region is that of environment or profile, else us-east-1. AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL name another
    server than AWS's own. Such a server is called with path-style addresses.
    """
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or _region_of_profile()
    return S3Settings(region, endpoint, path_style=endpoint is not None)


def open_client(
    settings: S3Settings, service: str = "s3", *, endpoint: str | None = None, ignores_breaker: bool = False
) -> Any:
    """A client of one service. It follows no redirect to another host.

    With `ignores_breaker` the client also calls a server that did not answer just now (its circuit breaker is open).
    """
    try:
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise Code.DEPENDENCY_MISSING(reason="s3_missing", got="none") from None
    hide_bodies()
    credentials = {} if settings.credentials is None else credential_properties(settings.credentials)
    config = Config(
        connect_timeout=min(settings.timeout_seconds, S3_CONNECT_MAX_SECONDS),
        read_timeout=settings.timeout_seconds,
        retries={"mode": "standard", "total_max_attempts": settings.tries},
        max_pool_connections=_CONNECTIONS,
        s3={"addressing_style": "path" if settings.path_style else "virtual"},
    )
    try:
        # AWS's library is not thread-safe when it makes clients of one session.
        with _NEW_CLIENT_LOCK:
            client = _session(settings.profile).client(
                service,
                region_name=settings.region,
                endpoint_url=endpoint or settings.endpoint,
                config=config,
                aws_access_key_id=credentials.get(ACCESS_KEY_ID),
                aws_secret_access_key=credentials.get(SECRET_ACCESS_KEY),
                aws_session_token=credentials.get(SESSION_TOKEN),
            )
    except (BotoCoreError, ValueError) as error:
        expected = "a valid region and address, and a profile that exists"
        words = "the settings of the object store cannot be used"
        raise Code.CONFIG_INVALID(words, reason="s3_settings", expected=expected, got=type(error).__name__) from None
    client.meta.events.register_first(f"before-send.{service}", _refuse_other_hosts(client.meta.endpoint_url))
    limit_tries(client, service, None if ignores_breaker else settings.tries)
    return client


def _region_of_profile() -> str:
    """The profile's region; the default if it has none or cannot be read. `open_client` raises if it cannot be read."""
    with contextlib.suppress(ImportError):
        from botocore.exceptions import BotoCoreError

        with contextlib.suppress(BotoCoreError):
            return _session(None).region_name or _DEFAULT_REGION
    return _DEFAULT_REGION


@functools.cache
def _session(profile: str | None) -> Any:
    """One session for each profile, so that service models and profile are read once."""
    import boto3

    return boto3.session.Session(profile_name=profile)


def _refuse_other_hosts(endpoint: str) -> Callable[..., None]:
    """A handler that refuses requests to other hosts, so that keys and data do not follow a redirect."""
    home = urlsplit(endpoint)

    def require_same_host(request: Any, **_: object) -> None:
        url = urlsplit(request.url)
        same_host = url.netloc == home.netloc or url.netloc.endswith(f".{home.netloc}")  # <bucket>.<host>
        if url.scheme != home.scheme or not same_host:
            raise PermissionError(errno.EACCES, "the store points to another address")

    return require_same_host


def call_store(call: Callable[..., Any], /, *, of_bucket: str | None = None, **arguments: object) -> Any:
    """Make a call and return its response. Raises OSError and its subclasses, without details of request or response.

    Errors name the store by its bucket (`of_bucket`, or else the argument `Bucket`), never by its address.
    """
    try:
        return call(**arguments)
    except Exception as error:
        bucket = of_bucket or arguments.get("Bucket")
        failure = _to_os_error(error, "the store" if bucket is None else f"the store of the bucket {bucket}")
    raise failure  # outside `except`, so that the library's error is not its context


def _to_os_error(error: Exception, store: str) -> OSError:
    from botocore.exceptions import BotoCoreError, ClientError

    match error:
        case ClientError():
            return _error_of_response(error, store)
        case BotoCoreError() if type(error).__name__ in _NO_CREDENTIALS:
            words = f"no credentials for {store}: AWS's own chain has none that can be used"
            return PermissionError(errno.EACCES, words)
        case BotoCoreError():
            is_timeout = type(error).__name__ in ("ConnectTimeoutError", "ReadTimeoutError")
            words = f"{store} does not answer: {type(error).__name__}"
            return TimeoutError(errno.ETIMEDOUT, words) if is_timeout else OSError(errno.EIO, words)
        case TimeoutError():
            return TimeoutError(errno.ETIMEDOUT, f"{store} does not answer: {error.strerror}")
        case OSError():
            return OSError(error.errno or errno.EIO, error.strerror or type(error).__name__)
        case _:
            raise error


def _error_of_response(error: Any, store: str) -> OSError:
    code = str(error.response.get("Error", {}).get("Code", ""))[:80] or type(error).__name__
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _MISSING_CODES:
        return FileNotFoundError(errno.ENOENT, code)
    if code in _EXISTS_CODES:
        return FileExistsError(errno.EEXIST, code)
    if status == 403:
        return PermissionError(errno.EACCES, f"{store} refuses: {code}")
    return OSError(errno.EIO, f"{store} answers {code}")


_BEGUN_KEY: Final = "pvdm_begun"  # the library keeps a dictionary for each call; this key has the start time


def limit_tries(client: Any, service: str, tries: int | None, *, counts_broken: bool = True) -> None:
    """Limit the client's tries, and let the server's circuit breaker refuse and record its calls.

    With `counts_broken` a server that breaks all connections counts as silent too. If `tries` is None no call is
    refused, and only answers are recorded.
    """
    from botocore import exceptions

    breaker = breaker_of(client.meta.endpoint_url)
    timeouts = (exceptions.ConnectTimeoutError, exceptions.ReadTimeoutError)
    broken = (exceptions.ConnectionClosedError, exceptions.EndpointConnectionError, exceptions.ProxyConnectionError)
    counted = (*timeouts, *broken) if counts_broken else timeouts

    def begin(context: dict[str, Any], **_: object) -> None:
        context[_BEGUN_KEY] = breaker.begin()

    def end(response: Any, attempts: int, caught_exception: Exception | None, request_dict: Any, **_: object) -> None:
        if response is not None:
            breaker.record_answer()
        elif tries is not None and isinstance(caught_exception, counted):
            max_tries = min(tries, S3_SILENT_TRIES_MAX) if isinstance(caught_exception, timeouts) else tries
            if attempts >= max_tries:
                breaker.record_silence(request_dict["context"][_BEGUN_KEY])
                # The library has no other way to stop retrying.
                raise caught_exception

    if tries is not None:
        client.meta.events.register_first(f"before-call.{service}", begin)
    client.meta.events.register_first(f"needs-retry.{service}", end)


# The loggers of botocore that write headers and bodies at level DEBUG.
_LOGGERS_OF_BODIES: Final = ("auth", "credentials", "endpoint", "hooks", "httpsession", "parsers", "retryhandler")


def hide_bodies() -> None:
    """Keep requests and responses of AWS's library, with their session tokens, out of every log."""
    for name in _LOGGERS_OF_BODIES:
        logging.getLogger(f"botocore.{name}").addFilter(_is_info_or_higher)


def _is_info_or_higher(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.INFO


# Names of Iceberg's client properties.
ACCESS_KEY_ID = "s3.access-key-id"
SECRET_ACCESS_KEY = "s3.secret-access-key"  # noqa: S105 - a name
SESSION_TOKEN = "s3.session-token"  # noqa: S105 - a name
ENDS_MS = "s3.session-token-expires-at-ms"
ENDPOINT = "s3.endpoint"
PATH_STYLE = "s3.path-style-access"
REGION = "client.region"


def store_properties(settings: S3Settings) -> dict[str, str]:
    """The store's region, address and addressing style as Iceberg's client properties, without credentials."""
    properties = {REGION: settings.region, "s3.region": settings.region}
    if settings.endpoint is not None:
        properties[ENDPOINT] = settings.endpoint
    return properties | {PATH_STYLE if settings.path_style else "s3.force-virtual-addressing": "true"}


def credential_properties(credentials: S3Credentials) -> dict[str, str]:
    """The credentials as Iceberg's client properties."""
    secret = credentials.secret_access_key.reveal().decode()
    properties = {ACCESS_KEY_ID: credentials.access_key_id, SECRET_ACCESS_KEY: secret}
    if credentials.session_token is not None:
        properties[SESSION_TOKEN] = credentials.session_token.reveal().decode()
    return properties


def settings_from_config(config: Mapping[str, str]) -> S3Settings:
    """The store's settings from the `config` of a loadTable response; without credentials if it has none."""
    if REGION not in config:
        words = "the Steward's response does not describe the table's store"
        raise Code.STORE_NOT_CONFIGURED(words, expected=REGION, got="none")
    credentials = None
    if ACCESS_KEY_ID in config:
        token = Secret(config[SESSION_TOKEN].encode()) if SESSION_TOKEN in config else None
        credentials = S3Credentials(config[ACCESS_KEY_ID], Secret(config[SECRET_ACCESS_KEY].encode()), token)
    return S3Settings(config[REGION], config.get(ENDPOINT), config.get(PATH_STYLE) == "true", credentials=credentials)
