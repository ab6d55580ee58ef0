"""The checks that every HTTP request passes before its route: token, role, domain and form of the request.

Every refusal is JSON in the same error envelope.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest

from pvdm.errors import Code, PvdmError
from pvdm.ledger import ids
from pvdm.model.fields import require_form
from pvdm.model.role import Role
from pvdm.steward.http.roles import RULES, AttemptToken
from tests.support.for_each import for_each
from tests.support.steward.http import (
    NO_SUCH_PROOF,
    REASON,
    RawConnection,
    Served,
    bearer,
    error_of,
    head,
    refusal,
    served,
)
from tests.support.steward.notary import attempt_token, core_of


@pytest.fixture(scope="module")
def steward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("access")) as made:
        yield made


@pytest.fixture(scope="module")
def operator(steward: Served) -> dict[str, str]:
    return steward.headers()


def test_an_unknown_path_is_refused_with_the_envelope(steward: Served) -> None:
    assert refusal(steward.http.get("/v1/nothing")) == (404, "route_unknown")


def test_a_path_that_only_looks_like_a_route_is_unknown(steward: Served, operator: dict[str, str]) -> None:
    for path in ("/v1/identity%0A", "/v1/identity/", "//v1/identity", "/v1/identity%00", "/V1/identity"):
        assert refusal(steward.http.get(path, headers=operator)) == (404, "route_unknown"), path


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_a_method_that_the_route_does_not_have_is_refused_and_the_allowed_ones_named(
    steward: Served, method: str
) -> None:
    response = steward.http.request(method, "/v1/epochs")
    assert refusal(response) == (405, "method_not_allowed")
    assert response.headers["allow"] == "GET, POST"


def test_head_is_refused_as_any_other_method(steward: Served) -> None:
    response = steward.http.head("/v1/identity")
    assert (response.status_code, response.headers["allow"], response.content) == (405, "GET", b"")


def test_a_valid_request_id_is_used(steward: Served) -> None:
    response = steward.http.get("/healthz", headers={"x-request-id": "Run-7.step_3"})
    assert response.headers["x-request-id"] == "Run-7.step_3"


@pytest.mark.parametrize("given", ["", "x" * 65, "a b", 'a"b', "a/b", "a\tb", "é"])
def test_an_invalid_request_id_is_replaced(steward: Served, given: str) -> None:
    response = steward.http.get("/healthz", headers={b"x-request-id": given.encode("latin-1")})
    assert response.headers["x-request-id"] != given
    assert len(response.headers["x-request-id"]) == 32


def test_the_envelope_names_the_request_id(steward: Served) -> None:
    response = steward.http.get("/v1/nothing", headers={"x-request-id": "mine"})
    assert error_of(response)["request_id"] == "mine"


@pytest.mark.parametrize("path", ["/healthz", "/v1/nothing", "/v1/identity"])
def test_no_answer_may_be_cached_or_sniffed_as_another_type(steward: Served, path: str) -> None:
    headers = steward.http.get(path).headers
    assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")


TOKENS = [
    ({}, "token_missing"),
    ({"authorization": ""}, "token_malformed"),
    ({"authorization": "Bearer"}, "token_malformed"),
    ({"authorization": "Basic abc"}, "token_malformed"),
    ({"authorization": "Bearer " + "x" * 257}, "token_malformed"),
    ({"authorization": "Bearer pvdm_nobody"}, "token_unknown"),
]


@pytest.mark.parametrize(("headers", "reason"), TOKENS, ids=[reason for _, reason in TOKENS])
def test_a_request_without_a_valid_token_is_refused(steward: Served, headers: dict[str, str], reason: str) -> None:
    response = steward.http.get("/v1/identity", headers=headers)
    assert refusal(response) == (401, reason)
    assert response.headers["www-authenticate"] == "Bearer"
    assert error_of(response)["kind"] == "not_allowed"


def test_two_tokens_in_one_request_count_as_none(steward: Served, operator: dict[str, str]) -> None:
    twice = [("authorization", operator["authorization"])] * 2
    assert refusal(steward.http.get("/v1/identity", headers=twice)) == (401, "token_missing")


def test_a_revoked_token_is_refused_at_once(steward: Served) -> None:
    text, grant = steward.stand.token()
    assert steward.http.get("/v1/identity", headers=bearer(text)).status_code == 200
    steward.stand.notary.access.revoke(grant.token_id)
    assert refusal(steward.http.get("/v1/identity", headers=bearer(text))) == (401, "token_revoked")


def test_an_expired_token_is_refused(steward: Served) -> None:
    token, _ = steward.stand.notary.access.issue(Role.OPERATOR, domain="*", name="short", lifetime_seconds=1)
    steward.stand.time.pass_by(2_000_000)
    assert refusal(steward.http.get("/v1/identity", headers=bearer(token.reveal()))) == (401, "token_expired")


def test_the_scheme_of_a_token_is_read_in_any_case(steward: Served, operator: dict[str, str]) -> None:
    headers = {"authorization": operator["authorization"].replace("Bearer", "bEARER")}
    assert steward.http.get("/v1/identity", headers=headers).status_code == 200


def path_of(template: str) -> str:
    core = core_of("access")
    values = {"number": "1", "workload_id": core.attempt.workload_id, "attempt_id": core.attempt.attempt_id}
    values |= {"proof_id": NO_SUCH_PROOF, "path:path": "0/000", "index": "0"}
    for name, value in values.items():
        template = template.replace("{" + name + "}", value)
    return template


# A refusal of HEAD has no body to check.
GUARDED = sorted(route for route, rule in RULES.items() if not rule.public and route[0] != "HEAD")


@for_each(("method", "path"), GUARDED)
def test_every_route_refuses_every_role_that_its_rule_does_not_name(
    steward: Served, headers_by_role: dict[Role, dict[str, str]], method: str, path: str
) -> None:
    for role in set(Role) - RULES[method, path].roles:
        response = steward.http.request(method, path_of(path), headers=headers_by_role[role])
        assert refusal(response) == (403, "role_wrong"), role


@pytest.mark.parametrize(("method", "path"), [route for route in GUARDED if RULES[route].needs_every_domain])
def test_a_route_that_needs_every_domain_refuses_a_token_of_one_domain(steward: Served, method: str, path: str) -> None:
    role = next(iter(RULES[method, path].roles))
    headers = steward.headers(role, domain="sales")
    assert refusal(steward.http.request(method, path_of(path), headers=headers)) == (403, "domain_wrong")


@for_each(
    ("method", "path"),
    [
        route
        for route in GUARDED
        if RULES[route].attempt_token is not AttemptToken.ALLOWED and Role.PRODUCER in RULES[route].roles
    ],
)
def test_a_token_for_one_attempt_is_refused_by_other_routes_and_for_other_attempts(
    steward: Served, attempt_headers: dict[str, str], method: str, path: str
) -> None:
    other = path_of(path).replace(core_of("access").attempt.attempt_id, "ab" * 16)
    assert refusal(steward.http.request(method, other, headers=attempt_headers)) == (403, "token_of_other_attempt")


def test_a_token_for_one_attempt_reads_that_attempt(steward: Served, attempt_headers: dict[str, str]) -> None:
    found = steward.http.get(path_of("/v1/attempts/{attempt_id}"), headers=attempt_headers)
    assert (found.status_code, found.json()["state"]) == (200, "VERIFYING")


def test_a_token_for_one_attempt_gets_no_further_tokens(steward: Served, attempt_headers: dict[str, str]) -> None:
    response = steward.http.post(path_of("/v1/attempts/{attempt_id}/tokens"), headers=attempt_headers)
    assert refusal(response) == (403, "token_of_other_attempt")


@pytest.mark.parametrize("path", ["/v1/workloads/{workload_id}", "/v1/attempts/{attempt_id}"])
def test_a_workload_or_attempt_of_another_domain_is_refused(
    steward: Served, attempt_headers: dict[str, str], path: str
) -> None:
    headers = steward.headers(Role.PRODUCER, domain="other")
    assert refusal(steward.http.get(path_of(path), headers=headers)) == (403, "domain_wrong")


@pytest.mark.parametrize("query", ["surprise=1", "limit=1&limit=2", "after=1&surprise=", "limit", "%00=1"])
def test_an_unknown_or_repeated_query_parameter_is_refused(
    steward: Served, operator: dict[str, str], query: str
) -> None:
    status, reason = refusal(steward.http.get(f"/v1/events?{query}", headers=operator))
    assert (status, reason) in {(400, "query_invalid"), (400, "request_invalid")}


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "1e3", "x", "", "9" * 5_000, "%00", "%ff"])
def test_a_query_value_out_of_its_range_is_refused(steward: Served, operator: dict[str, str], limit: str) -> None:
    assert refusal(steward.http.get(f"/v1/events?limit={limit}", headers=operator)) == (400, "request_invalid")


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("5000", "input should be less than or equal to 1000"), ("0", "input should be greater than or equal to 1")],
)
def test_the_error_for_a_query_value_out_of_range_names_bound_and_value(
    steward: Served, operator: dict[str, str], limit: str, expected: str
) -> None:
    error = steward.http.get(f"/v1/events?limit={limit}", headers=operator).json()["error"]
    assert error["message"].startswith("query.limit cannot be accepted")
    assert (error["expected"], error["got"]) == (expected, limit)


@pytest.mark.parametrize("workload_id", ["%00", "a%20b", "x" * 129, "%ff", "a%0A", "é", "%2e", "%2e%2e"])
def test_a_malformed_id_is_refused(steward: Served, operator: dict[str, str], workload_id: str) -> None:
    assert refusal(steward.http.get(f"/v1/workloads/{workload_id}", headers=operator)) == (400, "request_invalid")


def test_the_error_for_a_malformed_id_describes_the_form_in_words(steward: Served, operator: dict[str, str]) -> None:
    error = steward.http.get("/v1/workloads/a%20b", headers=operator).json()["error"]
    assert (
        error["expected"] == "1 to 128 letters (A to Z, a to z), digits, dots, underscores and hyphens, not dots alone"
    )


@for_each("workload_id", (".", "..", "...."))
def test_a_workload_id_of_dots_alone_is_refused_because_no_url_can_name_it(steward: Served, workload_id: str) -> None:
    table = {"workload_id": workload_id, "table": "sales.orders"}
    producer = steward.headers(Role.PRODUCER)
    for path, body in (("/v1/workloads", table), ("/v1/publications", table | {"branch": "etl"})):
        assert refusal(steward.http.post(path, json=body, headers=producer)) == (400, "request_invalid")
    for path in ("/v1/workloads?after=", "/v1/proofs?workload_id="):
        assert refusal(steward.http.get(path + workload_id, headers=producer)) == (400, "request_invalid")
    with pytest.raises(PvdmError) as caught:
        ids.require_workload_id(workload_id)
    assert caught.value.code == Code.IDENTIFIER_INVALID
    with pytest.raises(PvdmError) as caught:
        require_form(workload_id, "id", "the workload id")
    assert caught.value.reason == "document_value_invalid"


def test_a_namespace_or_table_of_dots_alone_is_refused_because_no_url_can_name_it(steward: Served) -> None:
    operator = steward.headers(Role.OPERATOR)
    place = "/catalog/v1/namespaces"
    schema = {"type": "struct", "fields": []}
    assert refusal_of_catalog(steward.http.post(place, json={"namespace": [".."]}, headers=operator)) == 400
    assert steward.http.post(place, json={"namespace": ["risk..x"]}, headers=operator).status_code == 200
    made = steward.http.post(f"{place}/risk..x/tables", json={"name": "..", "schema": schema}, headers=operator)
    assert refusal_of_catalog(made) == 400


def refusal_of_catalog(response: httpx.Response) -> int:
    """The status of a response in which the catalog refuses a name."""
    assert "name_invalid" in response.text, response.text
    return response.status_code


def test_an_unknown_object_is_not_found(steward: Served, operator: dict[str, str]) -> None:
    assert refusal(steward.http.get("/v1/workloads/nobody", headers=operator)) == (404, "workload_unknown")


BODIES = {
    "nothing": (b"", "body_malformed"),
    "cut off": (b'{"reason": "x', "body_malformed"),
    "trailing": (b'{"reason": "x"} x', "body_malformed"),
    "a key twice": (b'{"reason": "x", "reason": "y"}', "body_malformed"),
    "NaN": (b'{"reason": NaN}', "body_malformed"),
    "not UTF-8": (b'{"reason": "\xff"}', "body_malformed"),
    "UTF-16": ('{"reason": "x"}'.encode("utf-16"), "body_malformed"),
    "deep": (b"[" * 1_000, "body_malformed"),
    "many empty arrays": (b"[" + b"[]," * 1_000 + b"[]]", "body_parts_too_many"),
    "many empty objects": (b"{" * 1_025, "body_parts_too_many"),
    "huge integer": (b'{"reason": ' + b"9" * 10_000 + b"}", "body_malformed"),
    "an array": (b"[]", "request_invalid"),
    "a number": (b'{"reason": 5}', "request_invalid"),
    "null": (b'{"reason": null}', "request_invalid"),
    "no reason": (b"{}", "request_invalid"),
    "an empty reason": (b'{"reason": ""}', "request_invalid"),
    "a blank reason": (b'{"reason": "  "}', "request_invalid"),
    "NUL": (b'{"reason": "a\\u0000b"}', "request_invalid"),
    "a lone surrogate": (b'{"reason": "a\\ud800b"}', "request_invalid"),
    "a long reason": (b'{"reason": "' + b"x" * 257 + b'"}', "request_invalid"),
    "one more field": (b'{"reason": "x", "more": 1}', "request_invalid"),
}


@for_each("name", BODIES)
def test_a_malformed_body_is_refused_and_changes_nothing(steward: Served, operator: dict[str, str], name: str) -> None:
    before = steward.stand.notary.epochs.book()
    body, reason = BODIES[name]
    headers = {**operator, "content-type": "application/json"}
    assert refusal(steward.http.post("/v1/epochs", content=body, headers=headers)) == (400, reason)
    assert steward.stand.notary.epochs.book() == before


def test_a_refused_value_is_not_repeated_in_the_answer(steward: Served, operator: dict[str, str]) -> None:
    response = steward.http.post("/v1/epochs", json={"reason": 5, "hunter2": "hunter3"}, headers=operator)
    assert response.status_code == 400
    assert "hunter3" not in response.text


@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/json; charset=latin-1", "application/x-json", "a/b/c"]
)
def test_a_body_of_another_type_is_refused(steward: Served, operator: dict[str, str], kind: str | None) -> None:
    headers = operator if kind is None else {**operator, "content-type": kind}
    response = steward.http.post("/v1/epochs", content=b'{"reason": "x"}', headers=headers)
    assert refusal(response) == (415, "content_type_wrong")


def test_a_body_of_a_get_request_is_refused(steward: Served, operator: dict[str, str]) -> None:
    response = steward.http.request("GET", "/v1/identity", content=b"x", headers=operator)
    assert refusal(response) == (400, "body_unexpected")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/v1/openapi.json", "/v1/identity"])
@pytest.mark.parametrize("length", [{"transfer_encoding": "chunked"}, {"content_length": "5"}])
def test_a_route_without_a_body_does_not_wait_for_one_that_was_announced(
    steward: Served, path: str, length: dict[str, str]
) -> None:
    with RawConnection(steward.server.port) as raw:
        begun = time.monotonic()
        raw.send(head("GET", path, **length))
        status, error = raw.answer()
    assert (status, error["reason"]) == (400, "body_unexpected")
    assert time.monotonic() - begun < 8


@pytest.mark.parametrize("path", ["/healthz", "/catalog/v1/oauth/tokens", "/v1/nothing"])
def test_two_lengths_of_one_body_are_refused_and_the_connection_ends(steward: Served, path: str) -> None:
    with RawConnection(steward.server.port) as raw:
        both = head("POST", path, content_length="4", transfer_encoding="chunked")
        raw.send(both + b"0\r\n\r\n" + head("GET", "/healthz", connection="close"))
        answer = raw.read()
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"content-length or transfer-encoding" in answer
    assert answer.count(b"HTTP/1.1 ") == 1


def test_a_post_route_that_takes_no_body_refuses_a_body(steward: Served) -> None:
    headers = steward.headers(Role.PRODUCER)
    path = path_of("/v1/attempts/{attempt_id}/staged")
    assert refusal(steward.http.post(path, json={"a": 1}, headers=headers)) == (400, "body_unexpected")


@pytest.mark.parametrize("noise", [b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/x\r\n\r\n"])
def test_bytes_that_are_no_http_get_the_error_envelope_too(steward: Served, noise: bytes) -> None:
    with RawConnection(steward.server.port) as raw:
        raw.send(noise)
        status, error = raw.answer()
    assert (status, error["reason"]) == (400, "http_malformed")


def test_a_header_that_is_too_long_is_refused(steward: Served) -> None:
    with RawConnection(steward.server.port) as raw:
        raw.send(b"GET / HTTP/1.1\r\nx: " + b"x" * 100_000)
        status, error = raw.answer()
    assert (status, error["reason"]) == (400, "http_malformed")


def test_a_refusal_before_the_end_of_the_body_reaches_the_caller(steward: Served) -> None:
    with RawConnection(steward.server.port) as raw:
        raw.send(head("POST", "/v1/epochs", content_length="900000") + b"x" * 500_000)
        status, error = raw.answer()
    assert (status, error["reason"]) == (401, "token_missing")


def test_after_a_refusal_the_connection_serves_the_next_request(steward: Served, operator: dict[str, str]) -> None:
    with httpx.Client(base_url=steward.server.url, trust_env=False) as http:
        assert http.get("/v1/identity").status_code == 401
        assert http.get("/v1/identity", headers=operator).status_code == 200


@pytest.fixture(scope="module")
def headers_by_role(steward: Served) -> dict[Role, dict[str, str]]:
    return {role: steward.headers(role) for role in Role}


@pytest.fixture(scope="module")
def attempt_headers(steward: Served) -> dict[str, str]:
    """The headers with a token for the attempt that `path_of` names."""
    core = steward.stand.verifying("access")
    grant = steward.stand.grant(Role.PRODUCER, "sales", "job")
    token, _ = attempt_token(steward.stand.notary.access, grant, core.attempt.attempt_id)
    return bearer(token.reveal())


def test_a_valid_body_reaches_the_route(steward: Served, operator: dict[str, str]) -> None:
    response = steward.http.post("/v1/epochs", json=REASON, headers=operator)
    assert [change["after"] for change in response.json()["changes"]] == ["CREATED"]
