"""The way to an S3-compatible server: its address and patience by configuration, credentials by AWS's own chain."""

from __future__ import annotations

import errno
import functools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from pvdm.errors import Code, InputError
from pvdm.lake.stores.aws_logs import quieten
from pvdm.lake.stores.timeouts import S3_CONNECT_MAX_SECONDS, note_answers, wait_with_patience
from pvdm.model.secret import Secret

S3_TIMEOUT_MAX_SECONDS: Final = 300
S3_TRIES_MAX: Final = 10
_CONNECTIONS: Final = 16
_FIRST_REGION: Final = "us-east-1"
_making: Final = threading.Lock()

_MISSING: Final = frozenset({"NoSuchBucketPolicy", "NoSuchKey", "NoSuchUpload", "NoSuchVersion", "404"})
_EXISTS: Final = frozenset({"PreconditionFailed", "412"})
_NO_CREDENTIALS: Final = frozenset({"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"})


@dataclass(frozen=True, slots=True, eq=False)
class S3Credentials:
    """Credentials of one session; they show themselves to nobody."""

    access_key_id: str
    secret_access_key: Secret = field(repr=False)
    session_token: Secret | None = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Where the server is and how long to wait for it. Without an endpoint it is AWS's own, in the region.

    Credentials come by AWS's own chain (environment, profile, instance), or are those of a session that was vended;
    they never stand in locations.
    """

    region: str
    endpoint: str | None = None
    path_style: bool = False
    profile: str | None = None
    timeout_seconds: int = 10
    tries: int = 4
    credentials: S3Credentials | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.timeout_seconds <= S3_TIMEOUT_MAX_SECONDS:
            raise _setting("timeout_seconds", f"1 to {S3_TIMEOUT_MAX_SECONDS}", str(self.timeout_seconds))
        if not 1 <= self.tries <= S3_TRIES_MAX:
            raise _setting("tries", f"1 to {S3_TRIES_MAX}", str(self.tries))
        address = urlsplit(self.endpoint or "https://s3")
        if address.scheme not in ("http", "https") or not address.hostname or "@" in address.netloc:
            raise _setting("endpoint", "http(s)://host, without credentials", "another address")
        if address.path not in ("", "/") or address.query or address.fragment:
            raise _setting("endpoint", "http(s)://host without a path", "one with a path")


def own_settings() -> S3Settings:
    """How whoever runs this reaches an object store: as AWS's own tools do, without a Steward that says it.

    The region is that of environment or profile. Another server than AWS's own is named by AWS_ENDPOINT_URL_S3 or
    AWS_ENDPOINT_URL, and asked by paths, which every such server understands.
    """
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or _region_of_profile()
    return S3Settings(region, endpoint, path_style=endpoint is not None)


def open_client(
    settings: S3Settings, service: str = "s3", *, endpoint: str | None = None, asks_always: bool = False
) -> Any:
    """A client of one service; it sends nothing to any host but its own, wherever an answer points.

    One that `asks_always` asks a server that is silent to all others, too.
    """
    try:
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise Code.S3_MISSING(got="none") from None
    quieten()
    own = settings.credentials
    config = Config(
        connect_timeout=min(settings.timeout_seconds, S3_CONNECT_MAX_SECONDS),
        read_timeout=settings.timeout_seconds,
        retries={"mode": "standard", "total_max_attempts": settings.tries},
        max_pool_connections=_CONNECTIONS,
        s3={"addressing_style": "path" if settings.path_style else "virtual"},
    )
    try:
        # The library makes clients of one session safely in one thread at a time only.
        with _making:
            client = _session(settings.profile).client(
                service,
                region_name=settings.region,
                endpoint_url=endpoint or settings.endpoint,
                config=config,
                aws_access_key_id=None if own is None else own.access_key_id,
                aws_secret_access_key=None if own is None else own.secret_access_key.reveal().decode(),
                aws_session_token=None if own is None else _revealed(own.session_token),
            )
    except (BotoCoreError, ValueError) as error:
        raise Code.S3_SETTINGS(
            "these settings of the object store cannot be used",
            expected="a region, an address and a profile that is there",
            got=type(error).__name__,
        ) from None
    client.meta.events.register_first(f"before-send.{service}", _staying_at(client.meta.endpoint_url))
    if asks_always:
        note_answers(client, service)
    else:
        wait_with_patience(client, service, settings.tries)
    return client


def _revealed(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal().decode()


def _region_of_profile() -> str:
    """As the library reads it; where it cannot, whoever opens a client is told why."""
    try:
        from botocore.exceptions import BotoCoreError
    except ImportError:
        return _FIRST_REGION
    try:
        return _session(None).region_name or _FIRST_REGION
    except BotoCoreError:
        return _FIRST_REGION


@functools.cache
def _session(profile: str | None) -> Any:
    """One session a profile: what it has read of the service's models and of the profile is read once."""
    import boto3

    return boto3.session.Session(profile_name=profile)


def _staying_at(endpoint: str) -> Callable[..., None]:
    """A redirect is a place that somebody else names: keys and data go to none."""
    home = urlsplit(endpoint)

    def stay(request: Any, **_: object) -> None:
        asked = urlsplit(request.url)
        same = asked.netloc == home.netloc or asked.netloc.endswith(f".{home.netloc}")
        if asked.scheme != home.scheme or not same:
            raise PermissionError(errno.EACCES, "the store points to another address")

    return stay


def code_of(error: Exception) -> str:
    """The service's own word for what is wrong, or the kind of the error."""
    response = getattr(error, "response", None)
    code = response.get("Error", {}).get("Code", "") if isinstance(response, dict) else ""
    return str(code)[:80] or type(error).__name__


def asked(call: Callable[..., Any], /, *, of_bucket: str | None = None, **arguments: object) -> Any:
    """The answer to a call; what goes wrong is said in the words of files, and nothing of the exchange is kept.

    The store is named by the bucket, `of_bucket` where the arguments have none: never by its address.
    """
    failure: OSError | None = None
    try:
        return call(**arguments)
    except Exception as error:
        bucket = of_bucket or arguments.get("Bucket")
        failure = _failure(error, "the store" if bucket is None else f"the store of the bucket {bucket}")
    raise failure


def _failure(error: Exception, store: str) -> OSError:
    from botocore.exceptions import BotoCoreError, ClientError

    match error:
        case ClientError():
            return _refusal(error, store)
        case BotoCoreError() if type(error).__name__ in _NO_CREDENTIALS:
            return PermissionError(
                errno.EACCES, f"no credentials for {store}: AWS's own chain has none that can be used"
            )
        case BotoCoreError():
            late = type(error).__name__ in ("ConnectTimeoutError", "ReadTimeoutError")
            said = f"{store} does not answer: {type(error).__name__}"
            return TimeoutError(errno.ETIMEDOUT, said) if late else OSError(errno.EIO, said)
        case TimeoutError():
            return TimeoutError(errno.ETIMEDOUT, f"{store} does not answer: {error.strerror}")
        case OSError():
            return OSError(error.errno or errno.EIO, error.strerror or type(error).__name__)
        case _:
            raise error


def _refusal(error: Any, store: str) -> OSError:
    code, status = code_of(error), error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _MISSING:
        return FileNotFoundError(errno.ENOENT, code)
    if code in _EXISTS:
        return FileExistsError(errno.EEXIST, code)
    if status == 403:
        return PermissionError(errno.EACCES, f"{store} refuses: {code}")
    return OSError(errno.EIO, f"{store} answers {code}")


def _setting(name: str, expected: str, got: str) -> InputError:
    return InputError(Code.S3_SETTINGS, f"{name} cannot be used", expected=expected, got=got)
