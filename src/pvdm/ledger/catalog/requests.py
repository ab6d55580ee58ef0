"""Requests to the catalog that are executed once: idempotency key, hash of the request, and result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import delete, select, tuple_

from pvdm.errors import Code
from pvdm.ledger import ids
from pvdm.ledger.connection import record_if_found
from pvdm.ledger.schema.catalog import catalog_requests
from pvdm.ledger.unit import Unit

REQUEST_ANSWER_MAX_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the caller `identity` that was executed. Its response is made again from `answer`."""

    identity: str
    idempotency_key: str
    request_sha256: str
    status: int
    answer: str


def find(unit: Unit, identity: str, key: str) -> Request | None:
    """The caller's request with this idempotency key, or None."""
    return record_if_found(Request, unit.find(catalog_requests, identity=identity, idempotency_key=key))


def add(unit: Unit, request: Request) -> None:
    """Note the request in the transaction that executes it. Raises `idempotency_key_taken`."""
    added = unit.insert_new(
        catalog_requests,
        identity=ids.require_name(request.identity, "identity"),
        idempotency_key=ids.require_name(request.idempotency_key, "idempotency key"),
        request_sha256=ids.require_sha256(request.request_sha256, "request hash"),
        status=request.status,
        answer=ids.require_text_size(request.answer, REQUEST_ANSWER_MAX_BYTES, "request_answer_too_large"),
    )
    if not added:
        raise Code.IDEMPOTENCY_KEY_TAKEN(got=request.idempotency_key)


def remove_before(unit: Unit, at_micros: int, *, count: int) -> int:
    """Delete the oldest requests from before this time, at most `count`. Returns how many."""
    key = (catalog_requests.c.identity, catalog_requests.c.idempotency_key)
    old = select(*key).where(catalog_requests.c.at_micros < at_micros)
    oldest = old.order_by(catalog_requests.c.at_micros).limit(count)
    return int(unit.execute(delete(catalog_requests).where(tuple_(*key).in_(oldest))).rowcount)
