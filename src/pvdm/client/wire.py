"""Requests to the Steward and their answers: time-outs, sizes, tries, and what a lost answer means."""

from __future__ import annotations

import copy
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias, TypeVar
from urllib.parse import urlencode

import httpx

from pvdm.client.responses import read_error, unreadable
from pvdm.client.settings import Retries, TimeOuts
from pvdm.client.token import TokenSource
from pvdm.client.transport import BoundedTransport, until
from pvdm.errors import InputError, PvdmError, StateUnknownError, UnavailableError
from pvdm.model.token_text import AccessToken

_T = TypeVar("_T")
_TOLD_SECONDS: Final = 3.0  # who watches a call is told by then that it waits
_AGAIN: Final = frozenset({429, 503})
_GATEWAYS: Final = frozenset({502, 504})
_HARMLESS: Final = "nothing is harmed if it is sent again"
_random: Final = secrets.SystemRandom()


@dataclass(frozen=True, slots=True)
class Call:
    """What is asked; `repeatable` if twice is as good as once; `look` says where to look when the answer was lost.

    `patient` is a job's call, which waits for a Steward that is starting again. `long` is one that takes the Steward
    long: it has more time, and once it was sent it is not sent again, which would start the work again.
    `refusal` reads an error's answer where it is not in the Steward's own form.
    """

    method: str
    path: str
    look: str = ""
    query: tuple[tuple[str, str], ...] = ()
    content: bytes | None = None
    content_type: str = "application/json"
    repeatable: bool = True
    with_token: bool = True
    also_answers: frozenset[int] = frozenset()
    patient: bool = False
    long: bool = False
    refusal: Callable[[Answer], PvdmError] | None = None

    def __repr__(self) -> str:
        # A form may hold a secret.
        return f"Call({self.method} {self.path})"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    retry_after: str | None
    request_id: str
    content_type: str
    body: bytes

    def __repr__(self) -> str:
        # Bodies may hold keys.
        return f"Answer({self.status}, {len(self.body)} bytes)"


class Missed(Enum):
    """How there came to be no answer."""

    NOT_SENT = "steward_unreachable"
    TIME_OUT = "steward_timeout"
    LOST = "steward_connection_lost"
    TOO_LARGE = "steward_answer_too_large"
    ENCODED = "steward_answer_invalid"


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer, or none that is read to its end."""

    how: Missed
    got: str


Outcome: TypeAlias = Answer | Failure


class Wire:
    """Connections to one Steward; safe for threads."""

    def __init__(
        self,
        address: httpx.URL,
        transport: BoundedTransport,
        tokens: TokenSource | None,
        *,
        time_outs: TimeOuts,
        retries: Retries,
        answer_max_bytes: int,
        patient: bool = False,
    ) -> None:
        """Where `patient`, every call waits for a Steward that is starting again."""
        self.address = address
        self.tokens = tokens
        self.time_outs = time_outs
        self.retries = retries
        self.answer_max_bytes = answer_max_bytes
        self.patient = patient
        self.waiting: Callable[[], None] | None = None
        self._process = os.getpid()
        # Nothing of the environment: no proxy that would see the token, no password file that would replace it.
        self._http = httpx.Client(
            transport=transport,
            trust_env=False,
            follow_redirects=False,
            headers={"accept-encoding": "identity", "user-agent": "pvdm"},
        )

    def __repr__(self) -> str:
        return f"Wire({str(self.address)!r})"

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._http.is_closed

    def close(self) -> None:
        """Close every connection."""
        self._http.close()

    def with_patience(self, patient: bool) -> Wire:
        """The same connections with another `patient`."""
        found = copy.copy(self)
        found.patient = patient
        return found

    def ask(self, call: Call, read: Callable[[Answer], _T | PvdmError]) -> _T:
        """Send the call and read its answer; the error, if there is one, is raised where no secret is in a frame."""
        done = self._done(call, read)
        if isinstance(done, PvdmError):
            raise done
        return done

    def _done(self, call: Call, read: Callable[[Answer], _T | PvdmError]) -> _T | PvdmError:
        request_id = secrets.token_hex(16)
        try:
            outcome, tries = self._outcome(call, request_id)
        except PvdmError as error:
            return error.with_traceback(None)
        if isinstance(outcome, Failure):
            return _missed(call, outcome, self.address.host, request_id=request_id, tries=tries)
        try:
            if outcome.status < 300 or outcome.status in call.also_answers:
                return read(outcome)
            if outcome.status < 400:
                return _redirected(outcome)
            return _refused(call, outcome)
        except UnavailableError as error:
            return _unread(call, outcome, error)
        except PvdmError as error:
            return error.with_traceback(None)

    def _outcome(self, call: Call, request_id: str) -> tuple[Outcome, int]:
        """The last of as many tries as are sensible, and how many there were."""
        begun = time.monotonic()
        ends = begun + (self.time_outs.long_seconds if call.long else self.retries.total_seconds)
        tries, renewed, told = 0, False, False
        while True:
            self._require_usable()
            number, headers = self._headers(call, request_id)
            longest = self.time_outs.long_seconds if call.long else self.time_outs.total_seconds
            outcome = self._try(call, headers, min(ends, time.monotonic() + longest))
            del headers
            if _unauthorized(outcome) and not renewed and number is not None and self._renew(number):
                # The Steward did nothing for a token that it does not take, so any call may be sent once more.
                renewed = True
                continue
            tries += 1
            wait = self._wait(call, outcome, tries, time.monotonic() - begun)
            if wait is None or time.monotonic() + wait >= ends:
                return outcome, tries
            if not told and self.waiting is not None and time.monotonic() - begun >= _TOLD_SECONDS:
                told = True
                self.waiting()
            time.sleep(wait)

    def _require_usable(self) -> None:
        if self.closed:
            raise InputError("client_closed", "the client is closed", expected="an open client", got="a closed one")
        if os.getpid() != self._process:
            # Two processes on one connection would read each other's answers.
            raise InputError(
                "client_forked",
                "the client belongs to the process that this one was forked from",
                expected="a client of its own for each process",
                got="a forked one",
            )

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
            raise AssertionError("who was told its identity has a token")
        return self.tokens.current()[0]

    def _renew(self, number: int) -> bool:
        return self.tokens is not None and self.tokens.renew(number)

    def _try(self, call: Call, headers: httpx.Headers, ends: float) -> Outcome:
        limits = self.time_outs
        seconds = httpx.Timeout(
            connect=limits.connect_seconds,
            read=limits.long_seconds if call.long else limits.read_seconds,
            write=limits.read_seconds,
            pool=limits.connect_seconds,
        )
        try:
            with until(ends):
                return self._exchange(call, headers, seconds)
        except (httpx.ConnectTimeout, httpx.PoolTimeout):
            return Failure(Missed.NOT_SENT, f"no connection within {limits.connect_seconds:g} seconds")
        except httpx.ConnectError as error:
            return Failure(Missed.NOT_SENT, _words(error))
        except httpx.TimeoutException:
            return Failure(Missed.TIME_OUT, "nothing in time")
        except httpx.TransportError as error:
            return Failure(Missed.LOST, _words(error))

    def _exchange(self, call: Call, headers: httpx.Headers, seconds: httpx.Timeout) -> Outcome:
        query = f"?{urlencode(call.query)}" if call.query else ""
        url = self.address.copy_with(raw_path=self.address.raw_path.rstrip(b"/") + (call.path + query).encode("ascii"))
        request = self._http.build_request(call.method, url, content=call.content, headers=headers, timeout=seconds)
        response = self._http.send(request, stream=True)
        try:
            if response.headers.get("content-encoding", "identity") != "identity":
                return Failure(Missed.ENCODED, "a compressed answer")
            body = bytearray()
            for piece in response.iter_raw():
                body += piece
                if len(body) > self.answer_max_bytes:
                    return Failure(Missed.TOO_LARGE, "more")
            return Answer(
                response.status_code,
                response.headers.get("retry-after"),
                response.headers.get("x-request-id", headers["x-request-id"])[:64],
                response.headers.get("content-type", "").partition(";")[0].strip().lower(),
                bytes(body),
            )
        finally:
            response.close()

    def _wait(self, call: Call, outcome: Outcome, tries: int, waited: float) -> float | None:
        """Seconds until the next try; None if this was the last."""
        patient = call.patient or self.patient
        away = patient and _is_away(outcome) and waited < self.retries.restart_seconds
        not_sent = isinstance(outcome, Failure) and outcome.how is Missed.NOT_SENT
        if not (call.repeatable or (patient and not_sent)) or (tries >= self.retries.tries and not away):
            return None
        if call.long and _is_working(outcome):
            return None
        longest = min(self.retries.longest_wait_seconds, self.retries.first_wait_seconds * 2 ** (tries - 1))
        wait = _random.uniform(0, longest)
        match outcome:
            case Failure(how=Missed.TOO_LARGE | Missed.ENCODED):
                return None
            case Failure():
                return wait
            case Answer(status=status) if status in call.also_answers:
                return None
            case Answer(status=status) if status in _GATEWAYS:
                return wait
            case Answer(status=status) if status in _AGAIN and not _state_unknown(outcome):
                return self._retry_after(outcome, wait)
        return None

    def _retry_after(self, answer: Answer, wait: float) -> float | None:
        """At least as long as the Steward asks; longer than the caller is willing to wait: not at all."""
        text = answer.retry_after or ""
        asked = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
        return None if asked > self.retries.retry_after_longest_seconds else asked + wait


def _is_away(outcome: Outcome) -> bool:
    """Whether there was no answer; a proxy in front of a Steward that is away answers in its place."""
    match outcome:
        case Failure(how=how):
            return how in (Missed.NOT_SENT, Missed.LOST)
        case Answer(status=status):
            return status in _GATEWAYS


def _is_working(outcome: Outcome) -> bool:
    """Whether the Steward may be at work on the call, though its answer did not come."""
    match outcome:
        case Failure(how=how):
            return how is not Missed.NOT_SENT
        case Answer(status=status):
            return status in _GATEWAYS


def _refused(call: Call, answer: Answer) -> PvdmError:
    if call.refusal is not None:
        return call.refusal(answer)
    return read_error(answer.body, request_id=answer.request_id)


def _unauthorized(outcome: Outcome) -> bool:
    return isinstance(outcome, Answer) and outcome.status == 401


def _state_unknown(answer: Answer) -> bool:
    try:
        return isinstance(read_error(answer.body, request_id=""), StateUnknownError)
    except UnavailableError:
        return False


def _words(error: Exception) -> str:
    """The library's words, short and on one line."""
    return ascii(str(error))[1:-1][:200] or type(error).__name__


def _missed(call: Call, failure: Failure, host: str, *, request_id: str, tries: int) -> PvdmError:
    if failure.how is Missed.NOT_SENT:
        return UnavailableError(
            "steward_unreachable",
            f"the Steward at {host} cannot be reached; nothing was sent",
            expected="a connection",
            got=failure.got,
            hint="see that it runs, and that address, port and certificates are right",
            request_id=request_id,
            tries=tries,
        )
    if not call.repeatable:
        return _lost(call, failure.got, request_id)
    return UnavailableError(
        failure.how.value,
        "the Steward's answer did not arrive",
        expected="a whole answer within the time and size that the client allows",
        got=failure.got,
        hint="the Steward may still be at work on it: ask again later" if call.long else _HARMLESS,
        request_id=request_id,
        tries=tries,
    )


def _unread(call: Call, answer: Answer, error: UnavailableError) -> PvdmError:
    """An answer that cannot be read: a refusal refused all the same, a success may have changed something."""
    if not call.repeatable and not 400 <= answer.status < 500:
        return _lost(call, f"status {answer.status} and an answer that cannot be read", answer.request_id)
    error.details.update(request_id=answer.request_id, status=answer.status)
    return error.with_traceback(None)


def _lost(call: Call, got: str, request_id: str) -> StateUnknownError:
    return StateUnknownError(
        "answer_lost",
        f"{call.method} {call.path} was sent and its answer was lost: it may have happened or not",
        expected="an answer",
        got=got,
        hint=f"do not send it again yet: {call.look}",
        request_id=request_id,
    )


def _redirected(answer: Answer) -> UnavailableError:
    return UnavailableError(
        "steward_redirected",
        "the Steward's address leads elsewhere, and a token is not sent after it",
        expected="an answer",
        got=f"status {answer.status}",
        hint="connect to the Steward's own address",
        request_id=answer.request_id,
    )


def require_json(answer: Answer, what: str) -> bytes:
    """The body, if it says that it is JSON."""
    if answer.content_type != "application/json":
        raise unreadable(what, "application/json", ascii(answer.content_type)[:80])
    return answer.body
