"""Requests that happen once: with the same key and the same words the first answer comes again, and nothing else."""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pvdm.errors import InputError, StateUnknownError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import requests
from pvdm.ledger.catalog.requests import Request
from pvdm.ledger.record.tokens import Grant
from pvdm.model import canonical_json

# So long a key is remembered at least; clients are told so.
REQUEST_KEPT_MAX_SECONDS: Final = 86_400
REQUESTS_FORGOTTEN_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class Once:
    """A request with a key; what it does and its line in the ledger are one transaction."""

    identity: str
    key: str
    request_sha256: str

    def note(self, unit: Unit, facts: Mapping[str, canonical_json.Value], *, status: int = 200) -> None:
        """Remember that it was done, and what its answer is made of."""
        text = canonical_json.dump(dict(facts)).decode()
        requests.add(unit, Request(self.identity, self.key, self.request_sha256, status, text))


@contextlib.contextmanager
def after_change() -> Iterator[None]:
    """What comes after a change that was made: whatever fails here, nobody may hear that nothing was."""
    try:
        yield
    except StateUnknownError:
        raise
    except Exception as error:
        raise StateUnknownError(
            "answer_not_made",
            "the change was made, but its answer could not be",
            hint="load the table and see",
        ) from error


class Requests:
    """Finds what was done before."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def once(self, grant: Grant, key: str, asked: bytes) -> Once:
        """The request by its caller, its key and its words; tokens of one holder are one caller."""
        try:
            spelled = str(uuid.UUID(key))
        except ValueError:
            spelled = ""
        if spelled != key.lower():
            raise InputError(
                "idempotency_key_invalid", "the Idempotency-Key cannot be accepted", expected="a UUID", got="another"
            )
        identity = canonical_json.dump([grant.role.value, grant.domain, grant.name, grant.attempt_id or ""]).decode()
        return Once(hashlib.sha256(identity.encode()).hexdigest(), spelled, hashlib.sha256(asked).hexdigest())

    def earlier(self, once: Once) -> Mapping[str, object] | None:
        """What the first answer was made of; the key with other words is refused."""
        with self._ledger.read() as unit:
            found = requests.find(unit, once.identity, once.key)
        if found is None:
            return None
        if found.request_sha256 != once.request_sha256:
            raise InputError(
                "idempotency_key_reused",
                "the Idempotency-Key was used for another request",
                expected="a new key for a new request",
                got="an old one",
            )
        told: Mapping[str, object] = json.loads(found.answer)
        return told

    def forget_old(self, now_micros: int) -> int:
        """Forget all requests whose keys are no longer promised, a few in each of many short transactions."""
        before = now_micros - REQUEST_KEPT_MAX_SECONDS * 1_000_000
        forgotten = 0
        while True:
            count = self._ledger.transact(
                lambda unit: requests.remove_before(unit, before, count=REQUESTS_FORGOTTEN_MAX),
                at_micros=now_micros,
            )
            forgotten += count
            if count < REQUESTS_FORGOTTEN_MAX:
                return forgotten
