"""Sends requests to the Steward: time-outs, sizes, retries, and errors for lost responses."""

from __future__ import annotations

import copy
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar
from urllib.parse import urlencode

import httpx

from pvdm.client.responses import read_error, unreadable
from pvdm.client.settings import Retries, TimeOuts
from pvdm.client.token import TokenSource
from pvdm.client.transport import BoundedTransport, deadline
from pvdm.errors import Code, PvdmError, StateUnknownError, UnavailableError
from pvdm.model.role import AccessToken

_T = TypeVar("_T")
_NOTICE_SECONDS: Final = 3.0  # a call that has waited this long calls `notify_waiting` once
_RETRY_STATUSES: Final = frozenset({429, 503})
_GATEWAY_STATUSES: Final = frozenset({502, 504})
_random: Final = secrets.SystemRandom()


@dataclass(frozen=True, slots=True)
class Call:
    """A request. After a lost response a `repeatable` request is sent again; for others, `lost_hint` says what to do.

    A job's calls are `patient`: they wait for a Steward that is restarting. A `long` call has more time; once sent it
    is not sent again, since that would start the Steward's work again. Responses with a status in `also_answers` are
    read like a success. `read_refusal` reads error responses that do not have the Steward's own form.
    """

    method: str
    path: str
    lost_hint: str = ""
    query: tuple[tuple[str, str], ...] = ()
    content: bytes | None = None
    content_type: str = "application/json"
    repeatable: bool = True
    with_token: bool = True
    also_answers: frozenset[int] = frozenset()
    patient: bool = False
    long: bool = False
    read_refusal: Callable[[Response], PvdmError] | None = None

    def __repr__(self) -> str:
        return f"Call({self.method} {self.path})"  # no content: a form may hold a secret


@dataclass(frozen=True, slots=True)
class Response:
    """A response, read to its end."""

    status: int
    retry_after: str | None
    request_id: str
    content_type: str
    body: bytes

    def __repr__(self) -> str:
        return f"Response({self.status}, {len(self.body)} bytes)"  # no body: it may hold keys


@dataclass(frozen=True, slots=True)
class Failure:
    """The response is missing, compressed, or was not read to its end; `code` is that of the error to raise."""

    code: Code
    got: str


TryOutcome: TypeAlias = Response | Failure


@dataclass(eq=False, repr=False)
class Wire:
    """Connections to one Steward; safe for threads. With `patient`, all calls wait for a Steward that is restarting."""

    address: httpx.URL
    transport: BoundedTransport
    tokens: TokenSource | None  # None: requests carry no token
    time_outs: TimeOuts
    retries: Retries
    answer_max_bytes: int
    patient: bool = False
    notify_waiting: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        self._process = os.getpid()
        # Nothing from the environment: a proxy would see the token, a password file would replace it.
        self._http = httpx.Client(
            transport=self.transport,
            trust_env=False,
            follow_redirects=False,
            headers={"accept-encoding": "identity", "user-agent": "pvdm"},
        )

    def __repr__(self) -> str:
        return f"Wire({str(self.address)!r})"

    def close(self) -> None:
        """Close every connection."""
        self._http.close()

    def with_patience(self, patient: bool) -> Wire:
        """The same connections with another `patient`."""
        found = copy.copy(self)
        found.patient = patient
        return found

    def send(self, call: Call, read: Callable[[Response], _T | PvdmError]) -> _T:
        """Send the call and read its response. Errors are raised here, where no frame of the traceback has a secret."""
        done = self._send(call, read)
        if isinstance(done, PvdmError):
            raise done
        return done

    def _send(self, call: Call, read: Callable[[Response], _T | PvdmError]) -> _T | PvdmError:
        request_id = secrets.token_hex(16)
        try:
            outcome, tries, sent = self._send_with_retries(call, request_id)
        except PvdmError as error:
            return error.with_traceback(None)
        if isinstance(outcome, Failure):
            return _failure_error(call, outcome, self.address.host, sent, request_id=request_id, tries=tries)
        try:
            if outcome.status < 300 or outcome.status in call.also_answers:
                return read(outcome)
            if outcome.status < 400:
                return Code.STEWARD_REDIRECTED(got=f"status {outcome.status}", request_id=outcome.request_id)
            if call.read_refusal is not None:
                return call.read_refusal(outcome)
            return read_error(outcome.body, request_id=outcome.request_id)
        except UnavailableError as error:
            return _unreadable_error(call, outcome, error)
        except PvdmError as error:
            return error.with_traceback(None)

    def _send_with_retries(self, call: Call, request_id: str) -> tuple[TryOutcome, int, bool]:
        """The outcome of the last try, the number of tries, and whether the Steward may have carried one out."""
        started = time.monotonic()
        deadline_at = started + (self.time_outs.long_seconds if call.long else self.retries.total_seconds)
        tries, sent, renewed, notified = 0, False, False, False
        while True:
            self._require_usable()
            token_number, headers = self._headers(call, request_id)
            try_seconds = self.time_outs.long_seconds if call.long else self.time_outs.total_seconds
            outcome = self._try(call, headers, min(deadline_at, time.monotonic() + try_seconds))
            del headers
            refused = isinstance(outcome, Response) and outcome.status == 401
            if refused and not renewed and token_number is not None and self._renew(token_number):
                # The Steward does nothing for a token that it refuses, so any call may be sent once more.
                renewed = True
                continue
            tries += 1
            sent = sent or _may_be_working(outcome)
            wait = self._wait_before_retry(call, outcome, tries, time.monotonic() - started)
            if wait is None or time.monotonic() + wait >= deadline_at:
                return outcome, tries, sent
            if not notified and self.notify_waiting is not None and time.monotonic() - started >= _NOTICE_SECONDS:
                notified = True
                self.notify_waiting()
            time.sleep(wait)

    def _require_usable(self) -> None:
        if self._http.is_closed:
            raise Code.CLIENT_CLOSED(got="a closed client")
        if os.getpid() != self._process:
            # Two processes on one connection would read each other's responses.
            raise Code.CLIENT_FORKED(got="a client of the parent process")

    def _headers(self, call: Call, request_id: str) -> tuple[int | None, httpx.Headers]:
        headers = httpx.Headers({"x-request-id": request_id})
        if call.content is not None:
            headers["content-type"] = call.content_type
        if self.tokens is None or not call.with_token:
            return None, headers
        token, number = self.tokens.current()
        headers["authorization"] = f"Bearer {token.text}"
        return number, headers

    def token(self) -> AccessToken:
        """The token that the next request carries."""
        if self.tokens is None:
            raise AssertionError("the client has no token, and so no identity")
        return self.tokens.current()[0]

    def _renew(self, token_number: int) -> bool:
        return self.tokens is not None and self.tokens.renew(token_number)

    def _try(self, call: Call, headers: httpx.Headers, deadline_at: float) -> TryOutcome:
        limits = self.time_outs
        seconds = httpx.Timeout(
            connect=limits.connect_seconds,
            read=limits.long_seconds if call.long else limits.read_seconds,
            write=limits.read_seconds,
            pool=limits.connect_seconds,
        )
        try:
            with deadline(deadline_at):
                return self._exchange(call, headers, seconds)
        except (httpx.ConnectTimeout, httpx.PoolTimeout):
            return Failure(Code.STEWARD_UNREACHABLE, f"no connection within {limits.connect_seconds:g} seconds")
        except httpx.ConnectError as error:
            return Failure(Code.STEWARD_UNREACHABLE, _error_text(error))
        except httpx.TimeoutException:
            return Failure(Code.STEWARD_TIMEOUT, "nothing in time")
        except httpx.TransportError as error:
            return Failure(Code.STEWARD_CONNECTION_LOST, _error_text(error))

    def _exchange(self, call: Call, headers: httpx.Headers, seconds: httpx.Timeout) -> TryOutcome:
        query = f"?{urlencode(call.query)}" if call.query else ""
        url = self.address.copy_with(raw_path=self.address.raw_path.rstrip(b"/") + (call.path + query).encode("ascii"))
        request = self._http.build_request(call.method, url, content=call.content, headers=headers, timeout=seconds)
        response = self._http.send(request, stream=True)
        try:
            if response.headers.get("content-encoding", "identity") != "identity":
                return Failure(Code.STEWARD_ANSWER_INVALID, "a compressed response")
            body = bytearray()
            for piece in response.iter_raw():
                body += piece
                if len(body) > self.answer_max_bytes:
                    return Failure(Code.STEWARD_ANSWER_TOO_LARGE, "more")
            return Response(
                response.status_code,
                response.headers.get("retry-after"),
                response.headers.get("x-request-id", headers["x-request-id"])[:64],
                response.headers.get("content-type", "").partition(";")[0].strip().lower(),
                bytes(body),
            )
        finally:
            response.close()

    def _wait_before_retry(self, call: Call, outcome: TryOutcome, tries: int, waited: float) -> float | None:
        """Seconds until the next try; None if there is none."""
        patient = call.patient or self.patient
        may_be_restarting = patient and _is_unreachable(outcome) and waited < self.retries.restart_seconds
        not_sent = isinstance(outcome, Failure) and outcome.code is Code.STEWARD_UNREACHABLE
        may_repeat = call.repeatable or (patient and not_sent)
        if not may_repeat or (tries >= self.retries.tries and not may_be_restarting):
            return None
        if call.long and _may_be_working(outcome):
            return None
        longest = min(self.retries.longest_wait_seconds, self.retries.first_wait_seconds * 2 ** (tries - 1))
        wait = _random.uniform(0, longest)
        match outcome:
            case Failure(code=Code.STEWARD_ANSWER_TOO_LARGE | Code.STEWARD_ANSWER_INVALID):
                return None
            case Failure():
                return wait
            case Response(status=status) if status in call.also_answers:
                return None
            case Response(status=status) if status in _GATEWAY_STATUSES:
                return wait
            case Response(status=status) if status in _RETRY_STATUSES and not _is_state_unknown(outcome):
                return self._wait_with_retry_after(outcome, wait)
        return None

    def _wait_with_retry_after(self, response: Response, wait: float) -> float | None:
        """The `Retry-After` of the response plus the wait; None if `Retry-After` is longer than the client allows."""
        text = response.retry_after or ""
        seconds = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
        return None if seconds > self.retries.retry_after_longest_seconds else seconds + wait


def _is_unreachable(outcome: TryOutcome) -> bool:
    """Whether the connection failed or was lost, or a proxy in front of the Steward could not reach it."""
    if isinstance(outcome, Failure):
        return outcome.code in (Code.STEWARD_UNREACHABLE, Code.STEWARD_CONNECTION_LOST)
    return outcome.status in _GATEWAY_STATUSES


def _may_be_working(outcome: TryOutcome) -> bool:
    """Whether the Steward may work on the call although its response did not arrive."""
    if isinstance(outcome, Failure):
        return outcome.code is not Code.STEWARD_UNREACHABLE
    return outcome.status in _GATEWAY_STATUSES


def _is_state_unknown(response: Response) -> bool:
    try:
        return isinstance(read_error(response.body, request_id=""), StateUnknownError)
    except UnavailableError:
        return False


def _error_text(error: Exception) -> str:
    """The library's message, short and on one line."""
    return ascii(str(error))[1:-1][:200] or type(error).__name__


def _failure_error(call: Call, failure: Failure, host: str, sent: bool, *, request_id: str, tries: int) -> PvdmError:
    if failure.code is Code.STEWARD_UNREACHABLE:
        earlier = "an earlier try was sent, so it may have happened or not" if sent else "nothing was sent"
        message = f"the Steward at {host} cannot be reached; {earlier}"
        return Code.STEWARD_UNREACHABLE(message, got=failure.got, request_id=request_id, tries=tries)
    if not call.repeatable:
        return _answer_lost_error(call, failure.got, request_id)
    return failure.code(
        "the Steward's response did not arrive",
        expected="a whole response within the time and size that the client allows",
        got=failure.got,
        hint="the Steward may still work on it: call again later" if call.long else "it is safe to send it again",
        request_id=request_id,
        tries=tries,
    )


def _unreadable_error(call: Call, response: Response, error: UnavailableError) -> PvdmError:
    """The error for an unreadable response; unless its status is 4xx, the Steward may have changed something."""
    if not call.repeatable and not 400 <= response.status < 500:
        return _answer_lost_error(call, f"status {response.status} and an unreadable response", response.request_id)
    error.details.update(request_id=response.request_id, status=response.status)
    return error.with_traceback(None)


def _answer_lost_error(call: Call, got: str, request_id: str) -> PvdmError:
    message = f"{call.method} {call.path} was sent and its response was lost: it may have happened or not"
    hint = f"do not send it again yet: {call.lost_hint}"
    return Code.ANSWER_LOST(message, got=got, hint=hint, request_id=request_id)


def require_json(response: Response, what: str) -> bytes:
    """The body; raises unless its content type is JSON."""
    if response.content_type != "application/json":
        raise unreadable(what, "application/json", ascii(response.content_type)[:80])
    return response.body
