"""Idempotent requests: a repetition with the same idempotency key gets the first answer and executes nothing."""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pvdm.errors import Code, StateUnknownError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import requests
from pvdm.ledger.catalog.requests import Request
from pvdm.ledger.record.tokens import Grant
from pvdm.model import canonical_json

# After this time a key and its response are deleted. The catalog's configuration tells clients this time.
REQUEST_KEPT_MAX_SECONDS: Final = 86_400
REQUESTS_FORGOTTEN_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class RequestKey:
    """An idempotency key, with the hash of the caller's identity and the hash of the request's bytes."""

    identity: str
    key: str
    request_sha256: str


def note_request(
    unit: Unit, request: RequestKey | None, facts: Mapping[str, canonical_json.Value], *, status: int = 200
) -> None:
    """Store the facts for the response, in the transaction that executes the request. Without a key, store nothing."""
    if request is not None:
        text = canonical_json.dump(dict(facts)).decode()
        requests.add(unit, Request(request.identity, request.key, request.request_sha256, status, text))


@contextlib.contextmanager
def failures_mean_state_unknown() -> Iterator[None]:
    """Turn a failure after the change into StateUnknownError: the caller must not take it for "nothing happened"."""
    try:
        yield
    except StateUnknownError:
        raise
    except Exception as error:
        raise Code.ANSWER_NOT_MADE() from error


class Requests:
    """Finds earlier requests by their idempotency keys, and deletes old ones."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def identify(self, grant: Grant, key: str, request: bytes) -> RequestKey:
        """Identify the request by caller (role, domain, name, attempt), idempotency key (a UUID) and bytes."""
        try:
            normal_key = str(uuid.UUID(key))
        except ValueError:
            normal_key = ""
        if normal_key != key.lower():
            raise Code.REQUEST_INVALID(reason="idempotency_key_invalid", got="another text")
        identity = canonical_json.dump([grant.role.value, grant.domain, grant.name, grant.attempt_id or ""])
        return RequestKey(hashlib.sha256(identity).hexdigest(), normal_key, hashlib.sha256(request).hexdigest())

    def find_earlier(self, request: RequestKey) -> Mapping[str, object] | None:
        """The stored facts for the response to the first request with this key; None if this is the first one.

        Raises `idempotency_key_reused` if the first request with the key was another one.
        """
        with self._ledger.read() as unit:
            found = requests.find(unit, request.identity, request.key)
        if found is None:
            return None
        if found.request_sha256 != request.request_sha256:
            raise Code.REQUEST_INVALID(reason="idempotency_key_reused", got="the key of another request")
        facts: Mapping[str, object] = json.loads(found.answer)
        return facts

    def forget_old(self, now_micros: int) -> None:
        """Delete the requests whose keys have expired, in short transactions of `REQUESTS_FORGOTTEN_MAX` each."""
        before = now_micros - REQUEST_KEPT_MAX_SECONDS * 1_000_000
        count = REQUESTS_FORGOTTEN_MAX
        while count == REQUESTS_FORGOTTEN_MAX:
            count = self._ledger.transact(
                lambda unit: requests.remove_before(unit, before, count=REQUESTS_FORGOTTEN_MAX), at_micros=now_micros
            )
