"""The rules of routes: every route has one rule and every rule a route, and which roles and tokens a rule accepts."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import APIRouter

from pvdm.errors import NotAllowedError, PvdmError
from pvdm.ledger.record.tokens import Grant
from pvdm.model.role import Role
from pvdm.steward.http import app as app_module
from pvdm.steward.http.app import create_app
from pvdm.steward.http.roles import RULES, AttemptToken, Body, Rule, require_allowed, require_complete
from tests.support.steward.notary import stand_at

OWN_ATTEMPT = "ab" * 16


def grant(role: Role = Role.PRODUCER, *, domain: str = "sales", attempt_id: str | None = None) -> Grant:
    return Grant("id", role, domain, "name", 1, attempt_id)


def test_a_route_without_a_rule_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten = APIRouter()
    forgotten.add_api_route("/v1/forgotten", lambda: None, methods=["GET"])
    monkeypatch.setattr(app_module, "_ROUTERS", (*app_module._ROUTERS, forgotten))
    with stand_at(tmp_path) as stand, pytest.raises(PvdmError) as raised:
        create_app(stand.notary)
    assert (raised.value.reason, "GET /v1/forgotten" in str(raised.value)) == ("route_without_rule", True)


def test_a_second_method_of_a_known_path_needs_its_own_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten = APIRouter()
    forgotten.add_api_route("/v1/identity", lambda: None, methods=["DELETE"])
    monkeypatch.setattr(app_module, "_ROUTERS", (*app_module._ROUTERS, forgotten))
    with stand_at(tmp_path) as stand, pytest.raises(PvdmError) as raised:
        create_app(stand.notary)
    assert raised.value.reason == "route_without_rule"


def test_a_rule_without_a_route_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "_ROUTERS", app_module._ROUTERS[:-1])
    with stand_at(tmp_path) as stand, pytest.raises(PvdmError) as raised:
        create_app(stand.notary)
    assert raised.value.reason == "rule_without_route"


def test_two_routes_for_one_rule_are_refused() -> None:
    rules = {("GET", "/a"): Rule(frozenset())}
    with pytest.raises(PvdmError) as raised:
        require_complete([("GET", "/a"), ("GET", "/a")], rules)
    assert raised.value.reason == "route_twice"


def test_only_four_paths_need_no_token() -> None:
    assert {path for (_, path), rule in RULES.items() if rule.public} == {
        "/healthz",
        "/readyz",
        "/v1/openapi.json",
        "/catalog/v1/oauth/tokens",
    }


def test_only_health_and_readiness_have_no_limits() -> None:
    assert [path for (_, path), rule in RULES.items() if not rule.limited] == ["/healthz", "/readyz"]


def test_routes_without_limits_have_no_body_and_no_token() -> None:
    assert {(rule.public, rule.body) for rule in RULES.values() if not rule.limited} == {(True, Body.NONE)}


def test_each_post_outside_the_catalog_is_for_one_role_except_the_removal_of_orphans() -> None:
    writing = {path: rule.roles for (method, path), rule in RULES.items() if method == "POST"}
    several = {path for path, roles in writing.items() if path.startswith("/v1/") and len(roles) != 1}
    # The files of a killed job may be removed by its producer and by an operator.
    assert several == {"/v1/orphans/remove"}


def test_producers_open_and_stage_workloads_and_operators_abandon_them() -> None:
    producers = ("/v1/workloads", "/v1/workloads/{workload_id}/attempts", "/v1/attempts/{attempt_id}/staged")
    assert {RULES["POST", path].roles for path in (*producers, "/v1/publications")} == {frozenset({Role.PRODUCER})}
    assert RULES["POST", "/v1/workloads/{workload_id}/abandon"].roles == {Role.OPERATOR}


def test_roles_that_only_read_have_no_route_that_changes_the_catalog() -> None:
    for (method, path), rule in RULES.items():
        if path.startswith("/catalog/") and method in ("POST", "DELETE") and not path.endswith("/metrics"):
            assert not rule.roles & {Role.CONSUMER, Role.AUDITOR, Role.ATTESTOR}, path


def test_each_route_that_gives_keys_is_for_one_role() -> None:
    assert RULES["POST", "/v1/proofs/{proof_id}/open"].roles == {Role.AUDITOR}
    assert RULES["POST", "/v1/attestations/challenges"].roles == {Role.ATTESTOR}
    assert RULES["POST", "/v1/keys/redeem"].roles == {Role.WORKER}


def reason_of(rule: Rule, token: Grant, **path: str) -> str:
    with pytest.raises(NotAllowedError) as raised:
        require_allowed(rule, token, path)
    return raised.value.reason


def test_another_role_is_refused() -> None:
    assert reason_of(Rule(frozenset({Role.AUDITOR})), grant(Role.PRODUCER)) == "role_wrong"


def test_a_token_of_one_domain_is_refused_if_the_rule_needs_every_domain() -> None:
    rule = Rule(frozenset({Role.PRODUCER}), needs_every_domain=True)
    assert reason_of(rule, grant(domain="sales")) == "domain_wrong"
    require_allowed(rule, grant(domain="*"), {})


def test_listing_attestations_needs_a_token_of_every_domain_except_for_attestors() -> None:
    rule = RULES["GET", "/v1/attestations"]
    for role in (Role.OPERATOR, Role.AUDITOR):
        assert reason_of(rule, grant(role, domain="sales")) == "domain_wrong"
        require_allowed(rule, grant(role, domain="*"), {})
    require_allowed(rule, grant(Role.ATTESTOR, domain="sales"), {})


def test_a_token_for_one_attempt_is_refused_by_default() -> None:
    rule = Rule(frozenset({Role.PRODUCER}))
    # The same reason as for another attempt.
    assert reason_of(rule, grant(attempt_id=OWN_ATTEMPT), attempt_id=OWN_ATTEMPT) == "token_of_other_attempt"


def test_a_token_for_one_attempt_is_accepted_for_its_own_path_only() -> None:
    rule = Rule(frozenset({Role.PRODUCER}), AttemptToken.OWN)
    require_allowed(rule, grant(attempt_id=OWN_ATTEMPT), {"attempt_id": OWN_ATTEMPT})
    assert reason_of(rule, grant(attempt_id=OWN_ATTEMPT), attempt_id="cd" * 16) == "token_of_other_attempt"
    assert reason_of(rule, grant(attempt_id=OWN_ATTEMPT)) == "token_of_other_attempt"
