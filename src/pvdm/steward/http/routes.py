"""The routes as the door finds them: by path first, then by method, each with its line of the table of roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from fastapi.routing import APIRoute

from pvdm.errors import InputError
from pvdm.steward.http.errors import ALLOW_DETAIL
from pvdm.steward.http.fast_path import Work, straight_of
from pvdm.steward.http.request import Asked
from pvdm.steward.http.roles import RULES, Rule, require_complete


@dataclass(frozen=True, slots=True)
class Found:
    """The route of a request: its rule, the values in its path, the names it knows in the query, its straight way."""

    rule: Rule
    path_params: Mapping[str, str]
    query_names: frozenset[str]
    straight: Work | None = None


def methods_of(route: APIRoute) -> list[str]:
    """The methods that the route answers."""
    return sorted(route.methods or ())


class RouteTable:
    """Every route of the app; making it fails unless each has its rule and each rule its route."""

    def __init__(self, routes: Sequence[APIRoute], rules: Mapping[tuple[str, str], Rule] = RULES) -> None:
        self._lines = [(route, method) for route in routes for method in methods_of(route)]
        require_complete(((method, route.path) for route, method in self._lines), rules)
        self._rules = rules
        self._straight = {id(route): straight_of(route) for route in routes}
        self._query_names = {
            id(route): frozenset(field.alias for field in route.dependant.query_params) for route in routes
        }
        self._query_names |= {key: found.query_names for key, found in self._straight.items() if found is not None}

    def find(self, method: str, path: str, asked: Asked) -> Found:
        """The route, noted in `asked`; an unknown path and an unknown method are two errors."""
        allowed = []
        for route, served in self._lines:
            match = route.path_regex.fullmatch(path)  # not `match`: a line feed at the end is no match
            if match is None:
                continue
            asked.route = route.path
            if served == method:
                asked.rule = rule = self._rules[method, route.path]
                way = self._straight[id(route)]
                return Found(rule, match.groupdict(), self._query_names[id(route)], None if way is None else way.work)
            allowed.append(served)
        if allowed:
            raise InputError(
                "method_not_allowed",
                "nobody answers this method here",
                expected=" or ".join(sorted(set(allowed))),
                got=ascii(method[:16]),
                **{ALLOW_DETAIL: ", ".join(sorted(set(allowed)))},
            )
        raise InputError(
            "route_unknown", "there is nothing under this path", hint="/v1/openapi.json lists all there is"
        )


def require_query(query: bytes, names: frozenset[str]) -> None:
    """Every parameter is one that the route knows, and stands there once."""
    if not query:
        return
    given = [name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)]
    for name in given:
        if name not in names or given.count(name) > 1:
            raise InputError(
                "query_invalid",
                "the query cannot be accepted",
                expected=", ".join(sorted(names)) + ", each once" if names else "no parameters",
                got="another one" if name not in names else f"{name} twice",  # a name may be a token in the wrong place
            )
