"""Routes that the door serves straight away: they are asked most, and take all they need from the request itself.

What FastAPI does between the door and such a route costs more than the route: it looks for the route again, and solves
a tree of dependencies. Such a route stands among the others for the table of roles; nothing else calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

_ATTRIBUTE: Final = "pvdm_straight"

Work = Callable[[Request], Response]


@dataclass(frozen=True, slots=True)
class Straight:
    """What is done, in a thread, and the names that it knows in the query."""

    work: Work
    query_names: frozenset[str]


def straight(query: Sequence[str] = ()) -> Callable[[Work], Work]:
    """Mark a route: the door calls it with the request, whose body has been read and whose caller is known."""

    def marked(work: Work) -> Work:
        setattr(work, _ATTRIBUTE, Straight(work, frozenset(query)))
        return work

    return marked


def straight_of(route: APIRoute) -> Straight | None:
    """The mark of a route, if it has one."""
    found = getattr(route.endpoint, _ATTRIBUTE, None)
    return found if isinstance(found, Straight) else None
