"""Who caused a change: the name of the token that a person came with, noted in the step log by the change itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

ASKED: Final = "asked"
REQUESTS: Final = "requests"


@dataclass(frozen=True, slots=True)
class Actor:
    """A person's request: the token's name, the request's id, and what else the step log says of it."""

    name: str
    request_id: str
    facts: Mapping[str, str]


_actor: ContextVar[Actor | None] = ContextVar("pvdm_store_actor", default=None)


def actor() -> Actor | None:
    """Who this thread or task works for; None for jobs, and for the Steward's own work."""
    return _actor.get()


@contextlib.contextmanager
def acting(who: Actor | None) -> Iterator[None]:
    """Every transaction inside that changes something says in the step log who asked for it."""
    token = _actor.set(who)
    try:
        yield
    finally:
        _actor.reset(token)
