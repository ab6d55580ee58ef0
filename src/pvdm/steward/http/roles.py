"""The table of roles: who may call which route. The service does not start with a route that is not in it."""

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
    """What a route takes as its body."""

    NONE = auto()
    EMPTY = auto()  # nothing, or an empty JSON object, as some clients send with every POST
    JSON = auto()
    ENVELOPE = auto()
    FORM = auto()
    COMMIT = auto()  # the catalog's JSON: as large as an envelope may be


class AttemptToken(Enum):
    """What a token that is bound to one attempt may do with a route."""

    REFUSED = auto()
    OWN = auto()  # the attempt in the path must be its own
    ALLOWED = auto()


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the table; no roles means that no token is asked for."""

    roles: frozenset[Role]
    attempt_token: AttemptToken = AttemptToken.REFUSED
    body: Body = Body.NONE
    everywhere: bool = False  # about the whole Steward: needs a token of every domain
    everywhere_for: frozenset[Role] = frozenset()  # the same, for these of its roles only
    limited: bool = True
    charged: bool = True  # without a token: whether the address is charged
    names_an_object: bool = False  # in its query or body; it may not exist

    @property
    def public(self) -> bool:
        """Whether anyone may call it."""
        return not self.roles


_ANY: Final = frozenset(Role) - {Role.WORKER}
_PRODUCER: Final = frozenset({Role.PRODUCER})
_OPERATOR: Final = frozenset({Role.OPERATOR})
_AUDITOR: Final = frozenset({Role.AUDITOR})
_ATTESTOR: Final = frozenset({Role.ATTESTOR})
_WATCHING: Final = frozenset({Role.OPERATOR, Role.AUDITOR})
_WORKING: Final = frozenset({Role.PRODUCER, Role.PUBLISHER, Role.OPERATOR, Role.AUDITOR})
_READING: Final = frozenset({Role.PUBLISHER, Role.CONSUMER, Role.OPERATOR, Role.AUDITOR})
_PUBLIC: Final = Rule(frozenset())
_SHARED: Final = Rule(_ANY, AttemptToken.ALLOWED)
_SEEING: Final = _READING | _PRODUCER | {Role.STEWARD}
_MAKING: Final = Rule(frozenset({Role.PRODUCER, Role.OPERATOR}), body=Body.COMMIT)
_DROPPING: Final = Rule(frozenset({Role.PRODUCER, Role.OPERATOR}))
_SEEN: Final = Rule(_SEEING, AttemptToken.ALLOWED)
_COMMITTING: Final = Rule(
    frozenset({Role.PRODUCER, Role.OPERATOR, Role.PUBLISHER, Role.STEWARD}), AttemptToken.ALLOWED, Body.COMMIT
)
_ENVELOPE: Final = Rule(_OPERATOR, body=Body.ENVELOPE)
_EPOCH: Final = Rule(_OPERATOR, body=Body.JSON, everywhere=True)

RULES: Final[Mapping[tuple[str, str], Rule]] = MappingProxyType(
    {
        ("GET", "/healthz"): Rule(frozenset(), limited=False),
        # Cached, without a body, and called by load balancers, so it has no limit that others could use up.
        ("GET", "/readyz"): Rule(frozenset(), limited=False),
        ("GET", "/v1/openapi.json"): _PUBLIC,
        ("POST", "/catalog/v1/oauth/tokens"): Rule(frozenset(), body=Body.FORM, charged=False),
        ("GET", "/metrics"): Rule(_WATCHING, everywhere=True),
        ("GET", "/v1/identity"): Rule(frozenset(Role), AttemptToken.ALLOWED),
        ("GET", "/v1/steward"): _SHARED,
        ("GET", "/v1/trust-root"): _SHARED,
        ("POST", "/v1/trust-root"): Rule(_OPERATOR, body=Body.ENVELOPE, everywhere=True),
        ("GET", "/v1/epochs"): Rule(_WATCHING),
        ("POST", "/v1/epochs"): _EPOCH,
        ("POST", "/v1/epochs/{number}/activate"): _EPOCH,
        ("POST", "/v1/epochs/{number}/retire"): _EPOCH,
        ("POST", "/v1/epochs/{number}/revoke"): _EPOCH,
        ("POST", "/v1/clock/confirm"): Rule(_OPERATOR, body=Body.JSON, everywhere=True),
        ("GET", "/v1/events"): Rule(_WATCHING, everywhere=True),
        ("GET", "/v1/jobs"): Rule(_WATCHING, everywhere=True),
        ("GET", "/v1/workloads"): Rule(_WORKING),
        ("GET", "/v1/newest-workloads"): Rule(_WORKING),
        ("POST", "/v1/workloads"): Rule(_PRODUCER, body=Body.JSON, names_an_object=True),
        ("GET", "/v1/workloads/{workload_id}"): Rule(_WORKING),
        ("GET", "/v1/workloads/{workload_id}/chunks"): Rule(_WORKING),
        ("POST", "/v1/workloads/{workload_id}/attempts"): Rule(_PRODUCER, body=Body.JSON),
        ("POST", "/v1/workloads/{workload_id}/abandon"): Rule(_OPERATOR, body=Body.JSON),
        ("GET", "/v1/attempts/{attempt_id}"): Rule(_WORKING, AttemptToken.OWN),
        ("POST", "/v1/attempts/{attempt_id}/staged"): Rule(_PRODUCER, AttemptToken.OWN, Body.EMPTY),
        ("POST", "/v1/attempts/{attempt_id}/abort"): Rule(_PRODUCER, AttemptToken.OWN, Body.JSON),
        ("POST", "/v1/attempts/{attempt_id}/tokens"): Rule(_PRODUCER, body=Body.JSON),
        ("POST", "/v1/publications"): Rule(_PRODUCER, body=Body.JSON, names_an_object=True),
        ("GET", "/v1/orphans"): Rule(_PRODUCER | _WATCHING, names_an_object=True),
        ("POST", "/v1/orphans/remove"): Rule(_PRODUCER | _OPERATOR, body=Body.JSON, names_an_object=True),
        ("GET", "/v1/quarantine"): Rule(_WATCHING, names_an_object=True),
        ("POST", "/v1/quarantine/remove"): Rule(_OPERATOR, body=Body.JSON, names_an_object=True),
        ("GET", "/v1/proofs"): Rule(_READING | _PRODUCER),
        ("GET", "/v1/proofs/{proof_id}"): Rule(_READING | _PRODUCER),
        ("GET", "/v1/proofs/{proof_id}/envelope"): Rule(_READING),
        ("GET", "/v1/proofs/{proof_id}/bundle"): Rule(_READING),
        ("POST", "/v1/proofs/{proof_id}/open"): Rule(_AUDITOR, body=Body.JSON),
        ("GET", "/v1/overrides"): Rule(_READING),
        ("POST", "/v1/overrides"): _ENVELOPE,
        ("POST", "/v1/overrides/{override_id}/publish"): Rule(_OPERATOR, body=Body.EMPTY),
        ("GET", "/v1/targets/{kind}"): Rule(_WATCHING),
        ("GET", "/v1/protected"): Rule(_SEEING),
        ("GET", "/v1/protections"): Rule(_READING),
        ("POST", "/v1/protections"): _ENVELOPE,
        ("GET", "/v1/contracts/{contract_sha256}"): Rule(_READING | _PRODUCER),
        ("GET", "/v1/migrations"): Rule(_WATCHING),
        ("GET", "/v1/migrations/{migration_id}"): Rule(_WATCHING),
        ("POST", "/v1/migrations"): _ENVELOPE,
        ("GET", "/v1/tables/{table}/audit"): Rule(_WATCHING),
        ("GET", "/v1/tables/{table}/audit/receipts"): Rule(_WATCHING),
        ("GET", "/v1/tables/{table}/audit/statements"): Rule(_WATCHING),
        ("GET", "/v1/tables/{table}/audit/files"): Rule(_WATCHING),
        ("POST", "/v1/attestations/challenges"): Rule(_ATTESTOR, body=Body.JSON),
        ("POST", "/v1/attestations"): Rule(_ATTESTOR, body=Body.ENVELOPE),
        ("GET", "/v1/attestations"): Rule(_ATTESTOR | _WATCHING, everywhere_for=_WATCHING),
        ("POST", "/v1/keys/redeem"): Rule(frozenset({Role.WORKER}), body=Body.JSON, everywhere=True),
        ("GET", "/v1/log/checkpoint"): _SHARED,
        ("GET", "/v1/log/tile/{path:path}"): _SHARED,
        ("GET", "/v1/log/entries/{index}/proof"): _SHARED,
        ("GET", "/v1/log/consistency"): _SHARED,
        ("GET", "/catalog/v1/config"): _SEEN,
        ("GET", "/catalog/v1/namespaces"): _SEEN,
        ("POST", "/catalog/v1/namespaces"): _MAKING,
        ("GET", "/catalog/v1/namespaces/{namespace}"): _SEEN,
        ("HEAD", "/catalog/v1/namespaces/{namespace}"): _SEEN,
        ("DELETE", "/catalog/v1/namespaces/{namespace}"): _DROPPING,
        ("POST", "/catalog/v1/namespaces/{namespace}/properties"): _MAKING,
        ("GET", "/catalog/v1/namespaces/{namespace}/tables"): _SEEN,
        ("POST", "/catalog/v1/namespaces/{namespace}/tables"): _MAKING,
        ("GET", "/catalog/v1/namespaces/{namespace}/tables/{table}"): _SEEN,
        ("HEAD", "/catalog/v1/namespaces/{namespace}/tables/{table}"): _SEEN,
        ("POST", "/catalog/v1/namespaces/{namespace}/tables/{table}"): _COMMITTING,
        ("DELETE", "/catalog/v1/namespaces/{namespace}/tables/{table}"): _DROPPING,
        ("GET", "/catalog/v1/namespaces/{namespace}/tables/{table}/credentials"): _SEEN,
        ("POST", "/catalog/v1/namespaces/{namespace}/tables/{table}/metrics"): replace(_SEEN, body=Body.COMMIT),
        ("POST", "/catalog/v1/namespaces/{namespace}/register"): _MAKING,
        ("POST", "/catalog/v1/tables/rename"): _MAKING,
        ("POST", "/catalog/v1/transactions/commit"): _COMMITTING,
        ("GET", "/catalog/v1/namespaces/{namespace}/views"): _SEEN,
        ("POST", "/catalog/v1/namespaces/{namespace}/views"): _MAKING,
        ("GET", "/catalog/v1/namespaces/{namespace}/views/{view}"): _SEEN,
        ("HEAD", "/catalog/v1/namespaces/{namespace}/views/{view}"): _SEEN,
        ("POST", "/catalog/v1/namespaces/{namespace}/views/{view}"): _MAKING,
        ("DELETE", "/catalog/v1/namespaces/{namespace}/views/{view}"): _DROPPING,
        ("POST", "/catalog/v1/namespaces/{namespace}/register-view"): _MAKING,
        ("POST", "/catalog/v1/views/rename"): _MAKING,
    }
)


def require_complete(routes: Iterable[tuple[str, str]], rules: Mapping[tuple[str, str], Rule] = RULES) -> None:
    """Raise unless every route has a rule and every rule a route."""
    found = list(routes)
    for method, path in found:
        if (method, path) not in rules:
            raise Code.ROUTE_WITHOUT_RULE(f"{method} {path} is not in the table of roles")
    for method, path in rules:
        if (method, path) not in found:
            raise Code.RULE_WITHOUT_ROUTE(f"the table of roles names {method} {path}, which has no route")
    if len(set(found)) != len(found):
        raise Code.ROUTE_TWICE()


def require_allowed(rule: Rule, grant: Grant, path_params: Mapping[str, str]) -> None:
    """Raise unless the token's role, attempt and domain allow the route."""
    if grant.role not in rule.roles:
        raise Code.ROLE_WRONG(
            "the token's role does not allow this", expected=" or ".join(sorted(rule.roles)), got=grant.role
        )
    if grant.attempt_id is not None:
        _require_own_attempt(rule, grant.attempt_id, path_params)
    everywhere = rule.everywhere or grant.role in rule.everywhere_for
    if everywhere and grant.domain != EVERY_DOMAIN:
        raise Code.DOMAIN_WRONG("this is about the whole Steward", expected="a token of every domain", got=grant.domain)


def _require_own_attempt(rule: Rule, attempt_id: str, path_params: Mapping[str, str]) -> None:
    if rule.attempt_token is AttemptToken.ALLOWED:
        return
    if rule.attempt_token is AttemptToken.OWN and path_params.get("attempt_id") == attempt_id:
        return
    raise Code.TOKEN_OF_OTHER_ATTEMPT(
        "the token is good for one attempt only",
        expected=f"a request about attempt {attempt_id}",
        got="another request",
    )
