"""Bearer tokens of the client: their sources, renewal and exchange."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, get_args

from pvdm.api.errors import ErrorResponse, OAuthErrorResponse
from pvdm.api.service import ExchangedToken, Identity
from pvdm.client.responses import read_response, to_error
from pvdm.errors import Code, InputError, PvdmError
from pvdm.model.role import TOKEN_MAX_CHARACTERS, AccessToken
from pvdm.model.secret import Secret

_OAUTH_ERRORS: Final = frozenset(get_args(OAuthErrorResponse.model_fields["error"].annotation))  # RFC 6749

TokenGiver: TypeAlias = Callable[[], "str | AccessToken"]


@dataclass(frozen=True, slots=True)
class AttemptToken:
    """A token for one attempt."""

    token: AccessToken
    identity: Identity


@dataclass(frozen=True, slots=True)
class LentToken:
    """A token for an engine that calls the Steward's catalog by itself, as Spark does.

    With the id the engine exchanges the token for short-lived ones; without an id it sends the token itself.
    """

    token: AccessToken
    token_id: str | None


class TokenSource:
    """Gives the token to send. After the Steward has refused it, the next call fetches a new one for all threads."""

    def __init__(self, fetch: Callable[[], AccessToken], *, renewable: bool) -> None:
        self._fetch = fetch
        self._renewable = renewable
        self._lock = threading.Lock()
        self._token: AccessToken | None = None
        self._number = 0

    def current(self) -> tuple[AccessToken, int]:
        """The token, fetched if there is none, and its number, which counts fetched tokens."""
        with self._lock:
            if self._token is None:
                self._token = self._fetch()
                self._number += 1
            return self._token, self._number

    def renew(self, number: int) -> bool:
        """Let `current` fetch a newer token than the one with this number; False if there cannot be one."""
        if not self._renewable:
            return False
        with self._lock:
            if self._number == number:
                self._token = None
        return True


def token_source(token: str | AccessToken | TokenGiver | None, token_file: Path | None) -> TokenSource | None:
    """The source of the token: a text, or a function or file that is read again after a refusal; else None."""
    if token is not None and token_file is not None:
        del token  # a traceback would show it
        raise Code.CLIENT_SETTING_INVALID(reason="token_given_twice", got="both")
    if token_file is not None:
        return TokenSource(lambda: read_token(Path(token_file)), renewable=True)
    if token is None:
        return None
    if callable(token):
        give = token
        return TokenSource(lambda: _require_token(try_token(give())), renewable=True)
    checked = try_token(token)
    del token  # a traceback would show it
    access_token = _require_token(checked)
    return TokenSource(lambda: access_token, renewable=False)


def read_token(path: Path) -> AccessToken:
    """The token of a file. Raises if other users can read it; the open file is checked, not its name."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        got = str(error.strerror)
    else:
        return _read_descriptor(path, descriptor)
    raise _file_error(path, got)


def _read_descriptor(path: Path, descriptor: int) -> AccessToken:
    try:
        _require_private(path, os.fstat(descriptor))
        checked = _try_token_of(Secret(os.read(descriptor, TOKEN_MAX_CHARACTERS + len("\r\n"))))
    finally:
        os.close(descriptor)
    return _require_token(checked)


def _require_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _file_error(path, stat.filemode(status.st_mode))
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077 or status.st_uid not in {0, os.geteuid()}:
        raise Code.TOKEN_FILE_MODE(
            f"{path.name} may be read or written by others",
            expected=f"mode 0600 and user {os.geteuid()}",
            got=f"mode {mode:04o} and user {status.st_uid}",
            hint=f"find out who could read it, have the token rotated, then chmod 600 {path.name}",
        )


def _require_token(checked: AccessToken | PvdmError) -> AccessToken:
    if isinstance(checked, PvdmError):
        raise checked
    return checked


def _try_token_of(content: Secret) -> AccessToken | PvdmError:
    return try_token(content.reveal().decode("utf-8", "replace").rstrip("\r\n"))


def try_token(text: str | AccessToken) -> AccessToken | PvdmError:
    """The token or the error as a value, so that the caller raises it without the text in a frame."""
    if isinstance(text, AccessToken):
        return text
    try:
        return AccessToken(text)
    except InputError as error:
        return error.with_traceback(None)


def _file_error(path: Path, got: str) -> PvdmError:
    return Code.CLIENT_SETTING_INVALID(f"{path.name} is not a token file", reason="token_file_invalid", got=got)


def read_exchanged(value: object) -> ExchangedToken | PvdmError:
    """The token, or the error, which the Steward sends in the form of RFC 6749 or in its own."""
    fields = value if isinstance(value, Mapping) else {}
    if fields.get("access_token") is not None:
        return read_response(ExchangedToken, value)
    code = fields.get("error")
    if not isinstance(code, str):
        return to_error(read_response(ErrorResponse, value).error, request_id="")
    if code == "temporarily_unavailable":
        return Code.TOKEN_EXCHANGE_UNAVAILABLE(got=code)
    return Code.TOKEN_EXCHANGE_REFUSED(got=code if code in _OAUTH_ERRORS else "another error")
