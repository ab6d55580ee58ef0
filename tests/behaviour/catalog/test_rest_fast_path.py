"""Routes on the fast path answer, refuse, log and count as they would behind all of FastAPI."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from fastapi.routing import APIRoute

from pvdm.catalog.responses import TableResponses
from pvdm.model.role import Role
from pvdm.steward.http import body
from pvdm.steward.http.app import create_app
from pvdm.steward.http.request import RequestContext
from pvdm.steward.http.routes import FoundRoute, RouteTable, fast_path_query_names, methods_of
from tests.support.catalog.http import V1, Lake, lake_at, namespace_path
from tests.support.ledger.databases import memory_folder
from tests.support.steward.http import RawConnection

T = f"{V1}/namespaces/sales/tables/t"
JSON = {"content_type": "application/json"}
EMPTY_COMMIT = b'{"requirements": [], "updates": []}'
# Differs at every request, whichever path it takes.
_DATE_HEADER = re.compile(rb"(?i)(?<=\r\n)date: [^\r]*\r\n")
_VARYING_FIELDS = frozenset({"time", "milliseconds", "frames"})


@dataclass(frozen=True)
class Server:
    """A served catalog. Its requests take the fast path, or all of FastAPI if `through_fastapi` holds True."""

    lake: Lake
    through_fastapi: list[bool]
    tokens: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    through_fastapi = [False]
    find = RouteTable.find

    def find_route(routes: RouteTable, method: str, path: str, context: RequestContext) -> FoundRoute:
        result = find(routes, method, path, context)
        return replace(result, fast_path=None) if through_fastapi[0] else result

    with (
        pytest.MonkeyPatch.context() as patched,
        memory_folder() as folder,
        lake_at(folder, envelope_max_bytes=4_096) as lake,
    ):
        patched.setattr(RouteTable, "find", find_route)
        patched.setattr(body, "LINGER_MAX_SECONDS", 0.05)
        made = Server(lake, through_fastapi)
        operator = lake.caller()
        for name in ("t", "a.b", "x/y", "per%cent", "pl us", "plus+", "é", "metrics"):
            operator.make(name)
        operator.done("POST", "/namespaces", json={"namespace": ["deep"]})
        operator.done("POST", "/namespaces", json={"namespace": ["deep", "e.r"]})
        operator.make("t", namespace=namespace_path("deep", "e.r"))
        for name, role, domain in (
            ("operator", Role.OPERATOR, "*"),
            ("producer", Role.PRODUCER, "sales"),
            ("stranger", Role.PRODUCER, "risk"),
            ("consumer", Role.CONSUMER, "sales"),
            ("attestor", Role.ATTESTOR, "sales"),
        ):
            made.tokens[name] = lake.steward.headers(role, domain, name)["authorization"]
        yield made


@dataclass(frozen=True)
class Observed:
    """What can be observed of a request: the bytes of its answer, its lines in the log, and the change of counters."""

    answer: bytes
    log: list[dict[str, Any]]
    counted: dict[str, float]

    @property
    def status(self) -> int:
        return int(self.answer.split(b" ")[1])


def counts(server: Server) -> dict[str, float]:
    """The values of the service's counters, without the durations."""
    state = server.lake.steward.server._server.config.app.state  # type: ignore[union-attr]
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in state.metrics.registry.collect()
        for sample in family.samples
        if sample.name.endswith(("_total", "_seconds_count"))
    }


def observe(server: Server, caplog: pytest.LogCaptureFixture, request: bytes) -> Observed:
    """Send the request and observe it."""
    before = counts(server)
    caplog.clear()
    with caplog.at_level(logging.INFO, "pvdm.steward"), RawConnection(server.lake.steward.server.port) as rude:
        rude.send(request)
        answer = _DATE_HEADER.sub(b"", rude.read())
    lines = [json.loads(record.message) for record in caplog.records]
    log = [{key: value for key, value in line.items() if key not in _VARYING_FIELDS} for line in lines]
    return Observed(answer, log, {key: value - before.get(key, 0) for key, value in counts(server).items()})


def raw_request(
    server: Server,
    method: str = "GET",
    path: str = T,
    *,
    who: str | None = "operator",
    body: bytes | None = None,
    pieces: bytes | None = None,
    **headers: str,
) -> bytes:
    """A request as bytes; what follows two underscores in a header's name is left out, so that a header can repeat."""
    named = [("host", "steward"), ("connection", "close"), ("x-request-id", "the-same-each-time")]
    if who is not None:
        named.append(("authorization", server.tokens.get(who, who)))
    if body is not None and pieces is None:
        named.append(("content-length", str(len(body))))
    if pieces is not None:
        named.append(("transfer-encoding", "chunked"))
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(pieces), pieces)
    named += [(name.partition("__")[0].replace("_", "-"), value) for name, value in headers.items()]
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named), "", ""]
    return "\r\n".join(lines).encode("latin-1") + (body or b"")


def post(body: bytes = EMPTY_COMMIT, **more: Any) -> dict[str, Any]:
    return {"method": "POST", "body": body, "content_type": "application/json", **more}


def table_path(namespace: str, name: str) -> dict[str, Any]:
    return {"path": f"{V1}/namespaces/{namespace}/tables/{name}"}


CASES: dict[str, tuple[int, dict[str, Any]]] = {
    # what works
    "load": (200, {}),
    "exists": (204, {"method": "HEAD"}),
    "commit": (200, post()),
    "commit with a key": (200, post(idempotency_key="017f22e2-79b0-7cc3-98c4-dc0c0c07398f")),
    "load as a producer": (200, {"who": "producer"}),
    "load as a consumer": (200, {"who": "consumer"}),
    "commit as a producer": (200, post(who="producer")),
    # names and paths
    "a dot": (200, table_path("sales", "a.b")),
    "a dot in percent": (200, table_path("sales", "a%2Eb")),
    "a slash in percent": (200, table_path("sales", "x%2Fy")),
    "a slash as it is": (404, table_path("sales", "x/y")),
    "a percent sign": (200, table_path("sales", "per%25cent")),
    "a space as a plus sign": (200, table_path("sales", "pl+us")),
    "a space in percent": (200, table_path("sales", "pl%20us")),
    "a plus sign in percent": (200, table_path("sales", "plus%2B")),
    "beyond ASCII": (200, table_path("sales", "%C3%A9")),
    "no UTF-8": (400, table_path("sales", "%FF")),
    "a letter in percent": (200, table_path("s%61les", "%74")),
    "a level with a dot": (200, table_path("deep%1Fe.r", "t")),
    "existence of a level with a dot": (204, {"method": "HEAD", **table_path("deep%1Fe.r", "t")}),
    "commit under a level with a dot": (200, post(**table_path("deep%1Fe%2Er", "t"))),
    "the name of another route": (200, table_path("sales", "metrics")),
    "dots for the folder above": (404, table_path("sales", "../t")),
    "a name of dots": (400, table_path("sales", "..")),
    "a line feed": (400, table_path("sales", "t%0A")),
    "a NUL": (400, table_path("sales", "t%00")),
    "a name that is too long": (400, table_path("sales", "n" * 256)),
    "an empty name": (404, table_path("sales", "")),
    "a slash at the end": (404, {"path": f"{T}/"}),
    "a slash at the end of a commit": (404, post(path=f"{T}/")),
    "two slashes": (404, {"path": T.replace("/tables", "//tables")}),
    "capitals": (404, {"path": T.replace("tables", "Tables")}),
    "no such table": (404, table_path("sales", "none")),
    "no such namespace": (404, table_path("none", "t")),
    "existence of no such table": (404, {"method": "HEAD", **table_path("sales", "none")}),
    "commit to no such table": (404, post(**table_path("sales", "none"))),
    # methods
    "PUT": (405, post() | {"method": "PUT"}),
    "PATCH": (405, post() | {"method": "PATCH"}),
    "OPTIONS": (405, {"method": "OPTIONS"}),
    "TRACE": (405, {"method": "TRACE"}),
    "a method of nobody's": (405, {"method": "BREW"}),
    "a method in small letters": (405, {"method": "get"}),
    # queries
    "snapshots": (200, {"path": f"{T}?snapshots=refs"}),
    "snapshots and by whom": (200, {"path": f"{T}?snapshots=all&referenced-by=ns%1Fv"}),
    "snapshots in percent": (200, {"path": f"{T}?snap%73hots=refs"}),
    "an empty query": (200, {"path": f"{T}?"}),
    "an unknown mode": (400, {"path": f"{T}?snapshots=some"}),
    "an empty mode": (400, {"path": f"{T}?snapshots="}),
    "a mode twice": (400, {"path": f"{T}?snapshots=all&snapshots=all"}),
    "an unknown parameter": (400, {"path": f"{T}?snapshot=all"}),
    "a parameter of existence": (400, {"method": "HEAD", "path": f"{T}?snapshots=all"}),
    "a parameter of a commit": (400, post(path=f"{T}?snapshots=all")),
    "a parameter that is too long": (400, {"path": f"{T}?referenced-by={'v' * 16_385}"}),
    # tokens and roles
    "no token": (401, {"who": None}),
    "no token for existence": (401, {"method": "HEAD", "who": None}),
    "no token for a commit": (401, post(who=None)),
    "no bearer": (401, {"who": "Basic b3BlcmF0b3I6"}),
    "a bearer of nothing": (401, {"who": "Bearer "}),
    "the bearer None": (401, {"who": "Bearer None"}),
    "an unknown token": (401, {"who": "Bearer pvdm_" + "x" * 43}),
    "an unknown token and a commit": (401, post(who="Bearer pvdm_" + "x" * 43)),
    "a token beyond ASCII": (401, {"who": "Bearer \xe9"}),
    "two tokens": (401, {"authorization__again": "Bearer pvdm_other"}),
    "another domain's token": (403, post(who="stranger")),
    "a consumer's commit": (403, post(who="consumer")),
    "an attestor's load": (403, {"who": "attestor"}),
    "an attestor's commit": (403, post(who="attestor")),
    # bodies
    "a body to a load": (400, {"body": b"{}", **JSON}),
    "a body to existence": (400, {"method": "HEAD", "body": b"{}"}),
    "no body": (415, {"method": "POST"}),
    "an empty body": (400, post(b"")),
    "no type": (415, {"method": "POST", "body": EMPTY_COMMIT}),
    "another type": (415, post(content_type="text/plain")),
    "another charset": (415, post(content_type="application/json; charset=latin-1")),
    "a charset": (200, post(content_type='application/json; charset="UTF-8"')),
    "a body that is too large": (413, post(b" " * 4_097)),
    "a body as large as may be": (200, post(EMPTY_COMMIT.ljust(4_096))),
    "a body that says it is too large": (413, {"method": "POST", "content_length": "9" * 19, **JSON}),
    "a body that is too large and comes in pieces": (413, {"method": "POST", "pieces": b" " * 4_097, **JSON}),
    "a body in pieces": (200, {"method": "POST", "pieces": EMPTY_COMMIT, **JSON}),
    "two lengths": (400, post(transfer_encoding="chunked")),
    "no JSON": (400, post(b"{")),
    "no object": (400, post(b"[]")),
    "no UTF-8 in the body": (400, post(b'{"updates": "\xff"}')),
    "a key twice": (400, post(b'{"updates": [], "updates": []}')),
    "no number": (400, post(b'{"updates": [NaN]}')),
    "deeply nested": (400, post(b"[" * 4_000)),
    "no updates": (400, post(b"{}")),
    "updates of another kind": (400, post(b'{"updates": {}}')),
    "an unknown update": (400, post(b'{"updates": [{"action": "do-it"}]}')),
    "a requirement that does not hold": (
        409,
        post(b'{"requirements": [{"type": "assert-table-uuid", "uuid": "' + b"0" * 36 + b'"}], "updates": []}'),
    ),
    "another table in the body": (
        400,
        post(b'{"identifier": {"namespace": ["sales"], "name": "x"}, "requirements": [], "updates": []}'),
    ),
    "a key that is none": (400, post(idempotency_key="x")),
}


def observe_both(server: Server, caplog: pytest.LogCaptureFixture, request: bytes) -> Observed:
    """What is observed of the request on the fast path; requires that it is the same through FastAPI."""
    fast_path = observe(server, caplog, request)
    server.through_fastapi[0] = True
    through_fastapi = observe(server, caplog, request)
    server.through_fastapi[0] = False  # it holds for all services of this process
    assert fast_path.answer == through_fastapi.answer
    assert fast_path.log == through_fastapi.log
    assert fast_path.counted == through_fastapi.counted
    assert [line["event"] for line in fast_path.log][-1] == "request"
    assert sum(value for key, value in fast_path.counted.items() if "requests_total" in key) == 1
    return fast_path


@pytest.mark.parametrize("case", CASES)
def test_a_request_is_answered_logged_and_counted_as_behind_fastapi(
    server: Server, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    status, given = CASES[case]
    found = observe_both(server, caplog, raw_request(server, **given))
    assert (found.status, found.log[-1]["status"]) == (status, status), found.answer


@pytest.mark.parametrize("weak", ["", "W/"])
def test_a_load_with_the_current_etag_is_not_modified_as_behind_fastapi(
    server: Server, caplog: pytest.LogCaptureFixture, weak: str
) -> None:
    etag = server.lake.caller().ask("GET", "/namespaces/sales/tables/t").headers["etag"]
    found = observe_both(server, caplog, raw_request(server, if_none_match=f'"other", {weak}{etag}'))
    assert (found.status, found.answer.partition(b"\r\n\r\n")[2]) == (304, b"")


@pytest.mark.parametrize(
    ("given", "kind"),
    [({}, b"InternalServerError"), (post(), b"CommitStateUnknownException")],
    ids=["load", "commit"],
)
def test_a_bug_is_reported_and_logged_as_behind_fastapi(
    server: Server,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Any],
    kind: bytes,
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("geheim")

    monkeypatch.setattr(TableResponses, "table", broken)
    found = observe_both(server, caplog, raw_request(server, **given))
    assert (found.status, kind in found.answer, b"geheim" in found.answer) == (500, True, False)
    assert [line["event"] for line in found.log] == ["exception", "request"]


@pytest.mark.parametrize("given", [{}, {"method": "HEAD"}, post()], ids=["load", "exists", "commit"])
def test_the_rate_limit_holds_on_the_fast_path_too(given: dict[str, Any]) -> None:
    with memory_folder() as folder, lake_at(folder, rate_per_second=1, burst=10) as lake:
        lake.caller().make("t")
        server = Server(lake, [False], {"operator": lake.steward.headers()["authorization"]})
        statuses = []
        for _ in range(14):
            with RawConnection(lake.steward.server.port) as rude:
                rude.send(raw_request(server, **given))
                statuses.append(int(rude.read().split(b" ")[1]))
    assert set(statuses[:10]) <= {200, 204}
    assert set(statuses[12:]) == {429}


def test_exactly_three_routes_use_the_fast_path(server: Server) -> None:
    routes = create_app(server.lake.steward.stand.notary).router.routes
    marked = [route for route in routes if isinstance(route, APIRoute) and fast_path_query_names(route) is not None]
    path = "/catalog/v1/namespaces/{namespace}/tables/{table}"
    assert {(method, route.path) for route in marked for method in methods_of(route)} == {
        ("GET", path),
        ("HEAD", path),
        ("POST", path),
    }
