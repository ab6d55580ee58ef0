"""Calls every route of the service in every way that must be refused. No refusal changes the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from fastapi.routing import APIRoute
from sqlalchemy import func, select

from pvdm.ledger.schema import metadata
from pvdm.model.role import Role
from pvdm.model.statements.core import ProofCore
from pvdm.steward.config.steward import ServiceConfig
from pvdm.steward.http.app import create_app
from pvdm.steward.http.openapi import build_document
from pvdm.steward.http.roles import RULES, AttemptToken, Body
from pvdm.steward.http.routes import methods_of
from pvdm.steward.notary import Notary
from pvdm.steward.record.proofs import RecordedProof
from tests.support.for_each import for_each
from tests.support.steward.http import NO_SUCH_PROOF, REASON, Served, bearer, error_of, limited, refusal, served
from tests.support.steward.notary import attempt_token, failed, override_of, signed_override
from tests.support.steward.operations import ALLOWED, BODIES, OAUTH

BODY_BYTES, ENVELOPE_BYTES = 262_144, 524_288
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
_NO_NOTARY = SimpleNamespace(config=SimpleNamespace(service=ServiceConfig()), readiness=None)
_APP = create_app(cast(Notary, _NO_NOTARY))
ROUTES = [route for route in _APP.router.routes if isinstance(route, APIRoute)]
ALL_OPERATIONS = [(method, route.path) for route in ROUTES for method in methods_of(route)]
# A refusal of HEAD has no body to check. The service handles HEAD as it does GET.
OPERATIONS = [(method, path) for method, path in ALL_OPERATIONS if method != "HEAD"]
PATHS = sorted({route.path for route in ROUTES})
DOCUMENT = build_document(ROUTES)


def of_catalog(path: str) -> bool:
    """Whether Iceberg's OpenAPI document describes the route, and not the Steward's own."""
    return path.startswith("/catalog/") and path != OAUTH


@dataclass(slots=True)
class Walk:
    """A served Steward with objects of the domain `sales`, and tokens of every role and domain."""

    steward: Served
    core: ProofCore
    failed: RecordedProof
    failed_core: ProofCore
    override_id: str
    tokens: dict[tuple[Role, str], str] = field(default_factory=dict)
    bad: dict[str, str] = field(default_factory=dict)
    other_attempt: str = ""

    def token(self, role: Role, domain: str = "*") -> dict[str, str]:
        return bearer(self.tokens[role, domain])

    def path(self, template: str) -> str:
        """The route's path for an object of the domain `sales`. A new path parameter needs a value here."""
        values = {
            "number": "1",
            "workload_id": self.core.attempt.workload_id,
            "attempt_id": self.core.attempt.attempt_id,
            "proof_id": self.failed.statement_id,
            "override_id": self.override_id,
            "path": "0/000",
            "index": "0",
            "namespace": "ns",
            "table": "t",
            "view": "v",
            "kind": "table",
            "contract_sha256": NO_SUCH_PROOF,
            "migration_id": NO_SUCH_PROOF,
        }
        return template.replace(":path", "").format_map(values)

    def send(self, method: str, template: str, **options: Any) -> httpx.Response:
        """A request whose status must be one that the OpenAPI document names for the route."""
        response = self.steward.http.request(method, self.path(template), **options)
        if not of_catalog(template):
            operation = DOCUMENT["paths"][template.replace(":path", "")][method.lower()]
            assert str(response.status_code) in operation["responses"], response.text
        return response

    def private_names(self) -> list[str]:
        """Texts that no caller outside the domain may read."""
        cores = (self.core.attempt, self.failed_core.attempt)
        found = [name for core in cores for name in (core.workload_id, core.attempt_id, core.nonce)]
        return [*found, self.failed.statement_id, "incident 4711"]


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    changed = limited(
        body_max_bytes=BODY_BYTES, envelope_max_bytes=ENVELOPE_BYTES, rate_per_second=100_000, burst=1_000_000
    )
    with served(tmp_path_factory.mktemp("walk"), changed=changed) as steward:
        stand = steward.stand
        core, other = stand.verifying("mine"), stand.verifying("other")
        failed_core = failed(stand.verifying("failed"))
        recorded = stand.record(failed_core)
        override = override_of(recorded, failed_core, stand.time.wall)
        view = stand.notary.overrides.submit(signed_override(override), stand.grant())
        made = Walk(steward, core, recorded, failed_core, view.override_id)
        for role in Role:
            for domain in ("*", "sales", "risk"):
                name = "source-payments" if role is Role.ATTESTOR else "somebody"
                made.tokens[role, domain] = stand.token(role, domain, name)[0]
        access = stand.notary.access
        token, _ = attempt_token(access, stand.grant(Role.PRODUCER, "sales", "job"), other.attempt.attempt_id)
        made.other_attempt = token.reveal()
        made.bad = bad_tokens(steward)
        yield made


def bad_tokens(steward: Served) -> dict[str, str]:
    """An operator's tokens that are not valid any more. The last word of each name is the reason of the refusal."""
    access = steward.stand.notary.access
    revoked, grant = steward.stand.token()
    child, _ = access.exchange(grant.token_id, revoked)
    access.revoke(grant.token_id)
    short, _ = access.issue(Role.OPERATOR, domain="*", name="short", lifetime_seconds=60)
    steward.stand.time.pass_by(61_000_000)
    return {"revoked": revoked, "child of revoked": child.reveal(), "expired": short.reveal()}


@pytest.fixture(autouse=True)
def nothing_changes(walk: Walk) -> Iterator[None]:
    before = count_rows(walk)
    yield
    assert count_rows(walk) == before


def count_rows(walk: Walk) -> dict[str, int]:
    """The number of rows of every table of the ledger, its logs among them."""
    with walk.steward.stand.notary.ledger.read() as unit:
        return {
            table.name: unit.execute(select(func.count()).select_from(table)).scalar_one()
            for table in metadata.sorted_tables
        }


def valid_body(method: str, template: str) -> dict[str, Any]:
    """A request body of the right type, as far as the service checks it before the route's own work."""
    if template in BODIES:
        return {"json": BODIES[template]}
    match RULES[method, template].body:
        case Body.JSON | Body.ENVELOPE | Body.CATALOG:
            return {"json": REASON}
        case Body.FORM:
            return {"data": {"grant_type": "client_credentials"}}
        case _:
            return {}


def test_the_service_serves_exactly_the_listed_operations_to_the_listed_roles() -> None:
    found = {f"{method} {path}": " ".join(sorted(RULES[method, path].roles)) for method, path in ALL_OPERATIONS}
    assert found == ALLOWED


GUARDED = [each for each in OPERATIONS if not RULES[each].public]
TOKENS = {
    "none": ({}, "token_missing"),
    "None": ({"authorization": "Bearer None"}, "token_unknown"),
    "null": ({"authorization": "Bearer null"}, "token_unknown"),
    "empty": ({"authorization": "Bearer"}, "token_malformed"),
    "no scheme": ({"authorization": "pvdm_x"}, "token_malformed"),
    "basic": ({"authorization": "Basic bm9ib2R5Om5vYm9keQ=="}, "token_malformed"),
    "unknown": ({"authorization": "Bearer pvdm_" + "A" * 43}, "token_unknown"),
}


@for_each(("method", "path"), GUARDED)
def test_no_route_answers_a_caller_without_a_good_token(walk: Walk, method: str, path: str) -> None:
    callers = dict(TOKENS)
    callers |= {name: (bearer(text), f"token_{name.split()[-1]}") for name, text in walk.bad.items()}
    for name, (headers, code) in callers.items():
        response = walk.send(method, path, headers=headers, **valid_body(method, path))
        assert refusal(response) == (401, code), name
        assert response.headers["www-authenticate"] == "Bearer", name
        assert error_of(response)["kind"] == "not_allowed", name


@for_each(("method", "path"), GUARDED)
def test_no_route_answers_a_role_that_is_not_listed_for_it(walk: Walk, method: str, path: str) -> None:
    for role in set(Role) - {Role(word) for word in ALLOWED[f"{method} {path}"].split()}:
        for domain in ("*", "sales"):
            response = walk.send(method, path, headers=walk.token(role, domain), **valid_body(method, path))
            assert refusal(response) == (403, "role_wrong"), role
            assert error_of(response)["kind"] == "not_allowed", role


@pytest.mark.parametrize(("method", "path"), [each for each in GUARDED if RULES[each].needs_every_domain])
def test_a_route_for_all_domains_refuses_a_token_of_one_domain(walk: Walk, method: str, path: str) -> None:
    for role in RULES[method, path].roles:
        response = walk.send(method, path, headers=walk.token(role, "sales"), **valid_body(method, path))
        assert refusal(response) == (403, "domain_wrong"), role


OBJECTS = ("{workload_id}", "{attempt_id}", "{proof_id}", "{override_id}")


@pytest.mark.parametrize(("method", "path"), [each for each in GUARDED if any(name in each[1] for name in OBJECTS)])
def test_another_domains_object_is_refused_to_every_role(walk: Walk, method: str, path: str) -> None:
    for role in RULES[method, path].roles:
        response = walk.send(method, path, headers=walk.token(role, "risk"), **valid_body(method, path))
        assert refusal(response) == (403, "domain_wrong"), role
        assert [name for name in walk.private_names() if name in response.text] == [], role


def test_an_override_of_another_domains_proof_is_refused(walk: Walk) -> None:
    override = override_of(walk.failed, walk.failed_core, walk.steward.stand.time.wall, nonce="risk")
    body = {"envelope": json.loads(signed_override(override))}
    response = walk.send("POST", "/v1/overrides", json=body, headers=walk.token(Role.OPERATOR, "risk"))
    assert refusal(response) == (403, "domain_wrong")


def test_another_domains_override_handed_in_again_is_refused(walk: Walk) -> None:
    override = override_of(walk.failed, walk.failed_core, walk.steward.stand.time.wall - 61_000_000)
    body = {"envelope": json.loads(signed_override(override))}
    assert walk.send("POST", "/v1/overrides", json=body, headers=walk.token(Role.OPERATOR)).status_code == 200
    response = walk.send("POST", "/v1/overrides", json=body, headers=walk.token(Role.OPERATOR, "risk"))
    assert refusal(response) == (403, "domain_wrong")


DOMAIN_READS = [each for each in GUARDED if each[0] == "GET" and not RULES[each].needs_every_domain]


@for_each(("method", "path"), DOMAIN_READS)
def test_no_answer_to_another_domain_names_the_domains_objects(walk: Walk, method: str, path: str) -> None:
    for role in RULES[method, path].roles:
        for query in queries(walk, method, path):
            response = walk.send(method, path, headers=walk.token(role, "risk"), params=query)
            assert [name for name in walk.private_names() if name in response.text] == [], (role, query)


def queries(walk: Walk, method: str, path: str) -> list[dict[str, str]]:
    """No query, and one query for an object of the domain `sales` by each parameter that the route has."""
    if of_catalog(path):
        return [{}]
    operation = DOCUMENT["paths"][path.replace(":path", "")][method.lower()]
    known = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
    core = walk.failed_core.attempt
    asked = {"workload_id": core.workload_id, "attempt_id": core.attempt_id, "after": "0", "limit": "1000"}
    return [{}, *({name: value} for name, value in asked.items() if name in known)]


def test_the_domain_itself_finds_its_objects_in_the_listings(walk: Walk) -> None:
    shown = ""
    for path in ("/v1/workloads", "/v1/proofs", "/v1/overrides", "/v1/attempts/{attempt_id}"):
        shown += walk.send("GET", path, headers=walk.token(Role.AUDITOR, "sales")).text
    assert [name for name in walk.private_names() if name not in shown] == [walk.core.attempt.nonce]


FOR_PRODUCERS = [each for each in GUARDED if Role.PRODUCER in RULES[each].roles]


@for_each(("method", "path"), [each for each in FOR_PRODUCERS if RULES[each].attempt_token is not AttemptToken.ALLOWED])
def test_a_token_for_one_attempt_is_refused_for_another(walk: Walk, method: str, path: str) -> None:
    response = walk.send(method, path, headers=bearer(walk.other_attempt), **valid_body(method, path))
    assert refusal(response) == (403, "token_of_other_attempt")


def allowed_headers(walk: Walk, method: str, path: str) -> dict[str, str]:
    """The headers of a caller whose role may call the route."""
    roles = sorted(RULES[method, path].roles)
    return walk.token(roles[0]) if roles else {}


def require_refusal(response: httpx.Response, path: str, status: int, code: str) -> None:
    """Require this refusal, in the route's format of errors: the OAuth2 endpoint uses that of its RFC."""
    if path != OAUTH:
        assert refusal(response) == (status, code)
        assert error_of(response)["kind"] == "input"
        return
    error = response.json()
    assert (response.status_code, error["error"]) == (status, "invalid_request")
    assert error["error_description"].startswith(f"{code}: ")


LIMITED = [each for each in OPERATIONS if RULES[each].limited]


@for_each("chunked", [False, True], ids=["declared", "chunked"])
@for_each(("method", "path"), LIMITED)
def test_a_body_above_the_routes_limit_is_refused(walk: Walk, method: str, path: str, chunked: bool) -> None:
    kind = RULES[method, path].body
    limit = {Body.NONE: 0, Body.ENVELOPE: ENVELOPE_BYTES, Body.CATALOG: ENVELOPE_BYTES}.get(kind, BODY_BYTES)
    form = "application/x-www-form-urlencoded" if kind is Body.FORM else "application/json"
    headers = {**allowed_headers(walk, method, path), "content-type": form}
    body = b" " * (limit + 1)
    content = iter([body[: limit // 2], body[limit // 2 :]]) if chunked else body
    response = walk.send(method, path, headers=headers, content=content)
    expected = (400, "body_unexpected") if kind is Body.NONE else (413, "body_too_large")
    require_refusal(response, path, *expected)


MALFORMED = {
    "nothing": b"",
    "no JSON": b"reason=x",
    "cut off": b'{"reason": "x',
    "trailing": b'{"reason": "x"} x',
    "two values": b'{"reason": "x"}{"reason": "x"}',
    "a key twice": b'{"reason": "x", "reason": "y"}',
    "an inner key twice": b'{"envelope": {"payload": "", "payload": ""}}',
    "deep and cut off": b"[" * 1_000,
    "deep objects, cut off": b'{"a":' * 1_000 + b"1" + b"}" * 999,
    "not UTF-8": b'{"reason": "\xff\xfe"}',
    "overlong UTF-8": b'{"reason": "\xc0\xaf"}',
    "UTF-16": '{"reason": "x"}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "NaN": b'{"reason": NaN}',
    "a number without end": b'{"reason": ' + b"9" * 10_000 + b"}",
}
BOMBS = {
    "deep": b"[" * 50_000 + b"]" * 50_000,
    "deep objects": b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    "wide": b"[" + b"[]," * 40_000 + b"[]]",
}
WITH_JSON = [each for each in OPERATIONS if RULES[each].body in (Body.JSON, Body.ENVELOPE)]


@for_each(("method", "path"), WITH_JSON)
def test_a_body_of_many_parts_is_refused_before_it_is_parsed(walk: Walk, method: str, path: str) -> None:
    headers = {**allowed_headers(walk, method, path), "content-type": "application/json"}
    for name, body in BOMBS.items():
        response = walk.send(method, path, headers=headers, content=body)
        assert (name, *refusal(response)) == (name, 400, "body_parts_too_many")


@pytest.mark.parametrize(("method", "path"), WITH_JSON)
def test_a_body_that_is_no_json_is_refused(walk: Walk, method: str, path: str) -> None:
    headers = {**allowed_headers(walk, method, path), "content-type": "application/json"}
    for name, body in MALFORMED.items():
        response = walk.send(method, path, headers=headers, content=body)
        assert (name, *refusal(response)) == (name, 400, "body_malformed")
    for name, body in {"an array": b"[]", "another object": b'{"surprise": 1}', "null": b"null"}.items():
        response = walk.send(method, path, headers=headers, content=body)
        assert (name, *refusal(response)) == (name, 400, "request_invalid")


TYPES = (None, "text/plain", "application/json; charset=latin-1", "multipart/form-data; boundary=x", "application/xml")


@for_each(
    ("method", "path"),
    [each for each in OPERATIONS if RULES[each].body in (Body.JSON, Body.ENVELOPE, Body.CATALOG, Body.FORM)],
)
def test_a_body_of_another_type_is_refused(walk: Walk, method: str, path: str) -> None:
    other = "application/json" if RULES[method, path].body is Body.FORM else "application/x-www-form-urlencoded"
    for kind in (*TYPES, other):
        headers = {**allowed_headers(walk, method, path), **({} if kind is None else {"content-type": kind})}
        response = walk.send(method, path, headers=headers, content=b'{"reason": "x"}')
        require_refusal(response, path, 415, "content_type_wrong")


@pytest.mark.parametrize("body", [b"\xff=1", b"grant_type", b"client_id=a&client_id=b&grant_type=client_credentials"])
def test_a_form_that_cannot_be_read_is_refused(walk: Walk, body: bytes) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    response = walk.send("POST", OAUTH, headers=headers, content=body)
    assert response.status_code == 400
    assert response.json()["error"] in ("invalid_request", "unsupported_grant_type")


@pytest.mark.parametrize("name", ["none", "unknown", "revoked", "expired", "of another"])
def test_the_oauth_endpoint_refuses_a_client_without_a_valid_secret(walk: Walk, name: str) -> None:
    texts = {"none": "", "unknown": "pvdm_x", "of another": walk.tokens[Role.OPERATOR, "*"], **walk.bad}
    form = {"grant_type": "client_credentials", "client_id": "0" * 32, "client_secret": texts[name]}
    response = walk.send("POST", OAUTH, data=form)
    assert (response.status_code, response.json()["error"]) == (401, "invalid_client")
    assert response.headers["www-authenticate"].startswith("Basic")


@for_each("path", PATHS)
def test_every_other_method_is_refused_and_the_answer_lists_the_served_ones(walk: Walk, path: str) -> None:
    served_here = sorted(method for method, each in ALL_OPERATIONS if each == path)
    caller = walk.token(Role.OPERATOR)
    for method in set(METHODS) - set(served_here):
        response = walk.steward.http.request(method, walk.path(path), headers=caller)
        assert response.status_code == 405, method
        assert response.headers["allow"] == ", ".join(served_here), method
        if method != "HEAD" and path != OAUTH:
            assert refusal(response) == (405, "method_not_allowed"), method


@for_each(("method", "path"), OPERATIONS)
def test_a_parameter_that_the_route_does_not_know_is_refused(walk: Walk, method: str, path: str) -> None:
    headers, given = allowed_headers(walk, method, path), valid_body(method, path)
    for query in ("surprise=1", "access_token=pvdm_x", "token=x"):
        response = walk.steward.http.request(method, f"{walk.path(path)}?{query}", headers=headers, **given)
        require_refusal(response, path, 400, "query_invalid")
