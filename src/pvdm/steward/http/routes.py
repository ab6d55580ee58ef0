"""Finds the route of a request, by path and then by method, and the route's rule in the table of roles.

A route on the fast path takes all that it needs from the request itself, and the middleware calls it directly.
FastAPI would find the route again and resolve its dependencies, which takes longer than the route's work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import parse_qsl

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from pvdm.errors import Code
from pvdm.steward.http.errors import ALLOW_DETAIL
from pvdm.steward.http.request import RequestContext
from pvdm.steward.http.roles import RULES, Rule, require_complete

_FAST_PATH: Final = "pvdm_fast_path"

Handler: TypeAlias = Callable[[Request], Response]


def fast_path(query: Sequence[str] = ()) -> Callable[[Handler], Handler]:
    """Mark a route for the fast path, with the query parameters it accepts; the middleware calls it in a thread."""

    def mark(handler: Handler) -> Handler:
        setattr(handler, _FAST_PATH, frozenset(query))
        return handler

    return mark


def fast_path_query_names(route: APIRoute) -> frozenset[str] | None:
    """The query parameters that the route accepts on the fast path; None if the route is not on it."""
    names: frozenset[str] | None = getattr(route.endpoint, _FAST_PATH, None)
    return names


@dataclass(frozen=True, slots=True)
class FoundRoute:
    """The route of a request. `fast_path` is its function, or None if it is not on the fast path."""

    rule: Rule
    path_params: Mapping[str, str]
    query_names: frozenset[str]
    fast_path: Handler | None = None


def methods_of(route: APIRoute) -> list[str]:
    """The route's methods, sorted."""
    return sorted(route.methods or ())


class RouteTable:
    """Every route of the app. Raises unless each route has a rule and each rule a route."""

    def __init__(self, routes: Sequence[APIRoute]) -> None:
        self._routes = [(route, method) for route in routes for method in methods_of(route)]
        require_complete(((method, route.path) for route, method in self._routes), RULES)
        self._fast_paths = {id(route): names for route in routes if (names := fast_path_query_names(route)) is not None}
        self._query_names = {
            id(route): frozenset(field.alias for field in route.dependant.query_params) for route in routes
        } | self._fast_paths

    def find(self, method: str, path: str, context: RequestContext) -> FoundRoute:
        """The route, which is also set in the context. Raises for an unknown path or method."""
        allowed = []
        for route, served in self._routes:
            match = route.path_regex.fullmatch(path)  # `match` would accept a line feed at the end
            if match is None:
                continue
            context.route = route.path
            if served == method:
                context.rule = rule = RULES[method, route.path]
                handler = route.endpoint if id(route) in self._fast_paths else None
                return FoundRoute(rule, match.groupdict(), self._query_names[id(route)], handler)
            allowed.append(served)
        if allowed:
            raise Code.METHOD_NOT_ALLOWED(
                expected=" or ".join(sorted(set(allowed))),
                got=ascii(method[:16]),
                **{ALLOW_DETAIL: ", ".join(sorted(set(allowed)))},
            )
        raise Code.ROUTE_UNKNOWN()


def require_query(query: bytes, names: frozenset[str]) -> None:
    """Raise unless the route accepts every parameter, and each occurs once."""
    if not query:
        return
    given_names = [name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)]
    for name in given_names:
        if name not in names or given_names.count(name) > 1:
            expected = ", ".join(sorted(names)) + ", each once" if names else "no parameters"
            got = "another one" if name not in names else f"{name} twice"
            raise Code.REQUEST_INVALID(reason="query_invalid", expected=expected, got=got)
