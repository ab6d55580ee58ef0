"""The table of roles: who may call which route. The service does not start if a route is missing in the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from pvdm.errors import Code
from pvdm.ledger.record.tokens import EVERY_DOMAIN, Grant
from pvdm.model.role import Role


class Body(Enum):
    """The kind of body that a route accepts."""

    NONE = auto()
    EMPTY = auto()  # nothing, or an empty JSON object, as some clients send with every POST
    JSON = auto()
    ENVELOPE = auto()
    FORM = auto()
    CATALOG = auto()  # JSON of the Iceberg REST protocol, as large as an envelope may be


class AttemptToken(Enum):
    """Whether a token that is bound to one attempt may call a route."""

    REFUSED = auto()
    OWN = auto()  # only if the path names the token's own attempt
    ALLOWED = auto()


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the table; a route without roles is public and needs no token."""

    roles: frozenset[Role]
    attempt_token: AttemptToken = AttemptToken.REFUSED
    body: Body = Body.NONE
    needs_every_domain: bool = False  # about the whole Steward: only for tokens of every domain
    every_domain_roles: frozenset[Role] = frozenset()  # tokens of these roles must be of every domain, others need not
    limited: bool = True  # False for public routes without a body, to which no limits apply
    charged: bool = True  # on a public route: whether the request counts for the rate limit of its address
    names_an_object: bool = False  # the query or body names an object that may not exist: 404 is possible

    @property
    def public(self) -> bool:
        """Whether anyone may call the route."""
        return not self.roles


_ANY_BUT_WORKER: Final = Rule(frozenset(Role) - {Role.WORKER}, AttemptToken.ALLOWED)
_PRODUCER: Final = frozenset({Role.PRODUCER})
_OPERATOR: Final = frozenset({Role.OPERATOR})
_AUDITOR: Final = frozenset({Role.AUDITOR})
_ATTESTOR: Final = frozenset({Role.ATTESTOR})
_OVERSEERS: Final = frozenset({Role.OPERATOR, Role.AUDITOR})
_WORKLOAD_READERS: Final = frozenset({Role.PRODUCER, Role.PUBLISHER, Role.OPERATOR, Role.AUDITOR})
_PROOF_READERS: Final = frozenset({Role.PUBLISHER, Role.CONSUMER, Role.OPERATOR, Role.AUDITOR})
_PUBLIC: Final = Rule(frozenset())
_CATALOG_READERS: Final = _PROOF_READERS | _PRODUCER | {Role.STEWARD}
_CHANGE_CATALOG: Final = Rule(frozenset({Role.PRODUCER, Role.OPERATOR}), body=Body.CATALOG)
_DROP: Final = Rule(frozenset({Role.PRODUCER, Role.OPERATOR}))
_READ_CATALOG: Final = Rule(_CATALOG_READERS, AttemptToken.ALLOWED)
_REPORT_METRICS: Final = replace(_READ_CATALOG, body=Body.CATALOG)
_COMMIT: Final = Rule(
    frozenset({Role.PRODUCER, Role.OPERATOR, Role.PUBLISHER, Role.STEWARD}), AttemptToken.ALLOWED, Body.CATALOG
)
_OPERATOR_ENVELOPE: Final = Rule(_OPERATOR, body=Body.ENVELOPE)
_CHANGE_EPOCH: Final = Rule(_OPERATOR, body=Body.JSON, needs_every_domain=True)

RULES: Final[Mapping[tuple[str, str], Rule]] = MappingProxyType(
    {
        ("GET", "/healthz"): Rule(frozenset(), limited=False),
        # Load balancers call it, so it has no limit that other callers could use up; its result is cached.
        ("GET", "/readyz"): Rule(frozenset(), limited=False),
        ("GET", "/v1/openapi.json"): _PUBLIC,
        ("POST", "/catalog/v1/oauth/tokens"): Rule(frozenset(), body=Body.FORM, charged=False),
        ("GET", "/metrics"): Rule(_OVERSEERS, needs_every_domain=True),
        ("GET", "/v1/identity"): Rule(frozenset(Role), AttemptToken.ALLOWED),
        ("GET", "/v1/steward"): _ANY_BUT_WORKER,
        ("GET", "/v1/trust-root"): _ANY_BUT_WORKER,
        ("POST", "/v1/trust-root"): Rule(_OPERATOR, body=Body.ENVELOPE, needs_every_domain=True),
        ("GET", "/v1/epochs"): Rule(_OVERSEERS),
        ("POST", "/v1/epochs"): _CHANGE_EPOCH,
        ("POST", "/v1/epochs/{number}/activate"): _CHANGE_EPOCH,
        ("POST", "/v1/epochs/{number}/retire"): _CHANGE_EPOCH,
        ("POST", "/v1/epochs/{number}/revoke"): _CHANGE_EPOCH,
        ("POST", "/v1/clock/confirm"): Rule(_OPERATOR, body=Body.JSON, needs_every_domain=True),
        ("GET", "/v1/events"): Rule(_OVERSEERS, needs_every_domain=True),
        ("GET", "/v1/jobs"): Rule(_OVERSEERS, needs_every_domain=True),
        ("GET", "/v1/workloads"): Rule(_WORKLOAD_READERS),
        ("GET", "/v1/newest-workloads"): Rule(_WORKLOAD_READERS),
        ("POST", "/v1/workloads"): Rule(_PRODUCER, body=Body.JSON, names_an_object=True),
        ("GET", "/v1/workloads/{workload_id}"): Rule(_WORKLOAD_READERS),
        ("GET", "/v1/workloads/{workload_id}/chunks"): Rule(_WORKLOAD_READERS),
        ("POST", "/v1/workloads/{workload_id}/lease"): Rule(_PRODUCER, body=Body.JSON),
        ("POST", "/v1/workloads/{workload_id}/lease/renew"): Rule(_PRODUCER, body=Body.JSON),
        ("POST", "/v1/workloads/{workload_id}/lease/release"): Rule(_PRODUCER, body=Body.JSON),
        ("POST", "/v1/workloads/{workload_id}/attempts"): Rule(_PRODUCER, body=Body.JSON),
        ("POST", "/v1/workloads/{workload_id}/abandon"): Rule(_OPERATOR, body=Body.JSON),
        ("GET", "/v1/attempts/{attempt_id}"): Rule(_WORKLOAD_READERS, AttemptToken.OWN),
        ("POST", "/v1/attempts/{attempt_id}/staged"): Rule(_PRODUCER, AttemptToken.OWN, Body.EMPTY),
        ("POST", "/v1/attempts/{attempt_id}/abort"): Rule(_PRODUCER, AttemptToken.OWN, Body.JSON),
        ("POST", "/v1/attempts/{attempt_id}/tokens"): Rule(_PRODUCER, body=Body.JSON),
        ("POST", "/v1/publications"): Rule(_PRODUCER, body=Body.JSON, names_an_object=True),
        ("GET", "/v1/orphans"): Rule(_PRODUCER | _OVERSEERS, names_an_object=True),
        ("POST", "/v1/orphans/remove"): Rule(_PRODUCER | _OPERATOR, body=Body.JSON, names_an_object=True),
        ("GET", "/v1/quarantine"): Rule(_OVERSEERS, names_an_object=True),
        ("POST", "/v1/quarantine/remove"): Rule(_OPERATOR, body=Body.JSON, names_an_object=True),
        ("GET", "/v1/proofs"): Rule(_PROOF_READERS | _PRODUCER),
        ("GET", "/v1/proofs/{proof_id}"): Rule(_PROOF_READERS | _PRODUCER),
        ("GET", "/v1/proofs/{proof_id}/envelope"): Rule(_PROOF_READERS),
        ("GET", "/v1/proofs/{proof_id}/bundle"): Rule(_PROOF_READERS),
        ("POST", "/v1/proofs/{proof_id}/open"): Rule(_AUDITOR, body=Body.JSON),
        ("GET", "/v1/overrides"): Rule(_PROOF_READERS),
        ("POST", "/v1/overrides"): _OPERATOR_ENVELOPE,
        ("POST", "/v1/overrides/{override_id}/publish"): Rule(_OPERATOR, body=Body.EMPTY),
        ("GET", "/v1/targets/{kind}"): Rule(_OVERSEERS),
        ("GET", "/v1/protected"): Rule(_CATALOG_READERS),
        ("GET", "/v1/protections"): Rule(_PROOF_READERS),
        ("POST", "/v1/protections"): _OPERATOR_ENVELOPE,
        ("GET", "/v1/contracts/{contract_sha256}"): Rule(_PROOF_READERS | _PRODUCER),
        ("GET", "/v1/migrations"): Rule(_OVERSEERS),
        ("GET", "/v1/migrations/{migration_id}"): Rule(_OVERSEERS),
        ("POST", "/v1/migrations"): _OPERATOR_ENVELOPE,
        ("GET", "/v1/lost-claims"): Rule(_OVERSEERS),
        ("POST", "/v1/claim-releases"): _OPERATOR_ENVELOPE,
        ("GET", "/v1/tables/{table}/audit"): Rule(_OVERSEERS),
        ("GET", "/v1/tables/{table}/audit/receipts"): Rule(_OVERSEERS),
        ("GET", "/v1/tables/{table}/audit/statements"): Rule(_OVERSEERS),
        ("GET", "/v1/tables/{table}/audit/files"): Rule(_OVERSEERS),
        ("POST", "/v1/tables/{table}/audit/report"): Rule(_AUDITOR, body=Body.JSON),
        ("POST", "/v1/attestations/challenges"): Rule(_ATTESTOR, body=Body.JSON),
        ("POST", "/v1/attestations"): Rule(_ATTESTOR, body=Body.ENVELOPE),
        ("GET", "/v1/attestations"): Rule(_ATTESTOR | _OVERSEERS, every_domain_roles=_OVERSEERS),
        ("POST", "/v1/keys/redeem"): Rule(frozenset({Role.WORKER}), body=Body.JSON, needs_every_domain=True),
        ("GET", "/v1/log/checkpoint"): _ANY_BUT_WORKER,
        ("GET", "/v1/log/tile/{path:path}"): _ANY_BUT_WORKER,
        ("GET", "/v1/log/entries/{index}/proof"): _ANY_BUT_WORKER,
        ("GET", "/v1/log/consistency"): _ANY_BUT_WORKER,
        ("GET", "/catalog/v1/config"): _READ_CATALOG,
        ("GET", "/catalog/v1/namespaces"): _READ_CATALOG,
        ("POST", "/catalog/v1/namespaces"): _CHANGE_CATALOG,
        ("GET", "/catalog/v1/namespaces/{namespace}"): _READ_CATALOG,
        ("HEAD", "/catalog/v1/namespaces/{namespace}"): _READ_CATALOG,
        ("DELETE", "/catalog/v1/namespaces/{namespace}"): _DROP,
        ("POST", "/catalog/v1/namespaces/{namespace}/properties"): _CHANGE_CATALOG,
        ("GET", "/catalog/v1/namespaces/{namespace}/tables"): _READ_CATALOG,
        ("POST", "/catalog/v1/namespaces/{namespace}/tables"): _CHANGE_CATALOG,
        ("GET", "/catalog/v1/namespaces/{namespace}/tables/{table}"): _READ_CATALOG,
        ("HEAD", "/catalog/v1/namespaces/{namespace}/tables/{table}"): _READ_CATALOG,
        ("POST", "/catalog/v1/namespaces/{namespace}/tables/{table}"): _COMMIT,
        ("DELETE", "/catalog/v1/namespaces/{namespace}/tables/{table}"): _DROP,
        ("GET", "/catalog/v1/namespaces/{namespace}/tables/{table}/credentials"): _READ_CATALOG,
        ("POST", "/catalog/v1/namespaces/{namespace}/tables/{table}/metrics"): _REPORT_METRICS,
        ("POST", "/catalog/v1/namespaces/{namespace}/register"): _CHANGE_CATALOG,
        ("POST", "/catalog/v1/tables/rename"): _CHANGE_CATALOG,
        ("POST", "/catalog/v1/transactions/commit"): _COMMIT,
        ("GET", "/catalog/v1/namespaces/{namespace}/views"): _READ_CATALOG,
        ("POST", "/catalog/v1/namespaces/{namespace}/views"): _CHANGE_CATALOG,
        ("GET", "/catalog/v1/namespaces/{namespace}/views/{view}"): _READ_CATALOG,
        ("HEAD", "/catalog/v1/namespaces/{namespace}/views/{view}"): _READ_CATALOG,
        ("POST", "/catalog/v1/namespaces/{namespace}/views/{view}"): _CHANGE_CATALOG,
        ("DELETE", "/catalog/v1/namespaces/{namespace}/views/{view}"): _DROP,
        ("POST", "/catalog/v1/namespaces/{namespace}/register-view"): _CHANGE_CATALOG,
        ("POST", "/catalog/v1/views/rename"): _CHANGE_CATALOG,
    }
)


def require_complete(routes: Iterable[tuple[str, str]], rules: Mapping[tuple[str, str], Rule] = RULES) -> None:
    """Raise unless every route has a rule and every rule a route."""
    found = list(routes)
    for method, path in found:
        if (method, path) not in rules:
            raise Code.BUG(f"{method} {path} is not in the table of roles", reason="route_without_rule")
    for method, path in rules:
        if (method, path) not in found:
            raise Code.BUG(f"the table of roles names {method} {path}, which has no route", reason="rule_without_route")
    if len(set(found)) != len(found):
        raise Code.BUG(reason="route_twice")


def require_allowed(rule: Rule, grant: Grant, path_params: Mapping[str, str]) -> None:
    """Raise unless the token's role, attempt and domain allow the route."""
    if grant.role not in rule.roles:
        raise Code.PERMISSION_DENIED(reason="role_wrong", expected=" or ".join(sorted(rule.roles)), got=grant.role)
    if grant.attempt_id is not None and rule.attempt_token is not AttemptToken.ALLOWED:
        is_own = rule.attempt_token is AttemptToken.OWN and path_params.get("attempt_id") == grant.attempt_id
        if not is_own:
            expected = f"a request about attempt {grant.attempt_id}"
            raise Code.PERMISSION_DENIED(reason="token_of_other_attempt", expected=expected, got="another request")
    if (rule.needs_every_domain or grant.role in rule.every_domain_roles) and grant.domain != EVERY_DOMAIN:
        message, got = "this is about the whole Steward", grant.domain
        raise Code.PERMISSION_DENIED(message, reason="domain_wrong", expected="a token of every domain", got=got)
