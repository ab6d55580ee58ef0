"""Runs schemathesis against a Steward: sends requests made from its OpenAPI document, and checks each answer by it."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from pvdm.model.role import Role
from pvdm.steward.http.roles import RULES
from tests.support.catalog.http import with_catalog
from tests.support.steward.http import Served, bearer, served
from tests.support.steward.load import challenge_body, signed_attestation
from tests.support.steward.notary import failed, override_of, signed_override

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
ATTESTOR = "source-payments"


@dataclass(frozen=True, slots=True)
class Effort:
    """How many requests of each kind an operation gets at most."""

    valid: int
    known: int
    """valid requests for objects that exist"""
    invalid: int
    boundaries: int
    """requests with values at the limits of the schema"""


@contextlib.contextmanager
def steward_to_fuzz(folder: Path) -> Iterator[Served]:
    """Run a Steward with a catalog, attempts, a FAIL proof, an override and an attestation."""
    with served(folder, changed=with_catalog(folder.resolve())) as steward:
        stand = steward.stand
        stand.verifying("mine")
        # Random requests ask to wait for changes of attempts that never change. Closed, these waits end at once.
        stand.notary.changes.close()
        core = failed(stand.verifying("failed"))
        recorded = stand.record(core)
        stand.notary.overrides.submit(signed_override(override_of(recorded, core, stand.time.wall)), stand.grant())
        headers = steward.headers(Role.ATTESTOR, name=ATTESTOR)
        challenge = challenge_body("00" * 16)
        assert steward.http.post("/v1/attestations/challenges", json=challenge, headers=headers).status_code == 200
        envelope = signed_attestation("00" * 16, epoch=1, now=stand.time.wall, attestor=ATTESTOR)
        body = {"envelope": json.loads(envelope)}
        assert steward.http.post("/v1/attestations", json=body, headers=headers).status_code == 200
        yield steward


def fuzz_operations(
    steward: Served, role: Role | None, effort: Effort, *, document: dict[str, Any] | None = None
) -> Counter[int]:
    """Send requests to every operation with a token of the role, or without a token. Returns a count of each status.

    Raises at the first answer that is not as documented. An operation that the role may not use gets one request.
    """
    load_all_checks()
    schema = schemathesis.openapi.from_dict(document or steward.http.get("/v1/openapi.json").json())
    schema.config.update(base_url=steward.server.url)
    name = ATTESTOR if role is Role.ATTESTOR else "operator-tom"
    headers = {} if role is None else bearer(steward.stand.token(role, "*", name)[0])
    with requests.Session() as session:
        session.trust_env = False
        caller = _Caller(session, headers, Counter())
        operations: list[Any] = [schema[path][method] for path in schema for method in schema[path]]
        # Operations that end epochs come last: without an active epoch the Steward refuses many others.
        for operation in sorted(operations, key=lambda each: each.path.startswith("/v1/epochs/")):
            if role in _allowed_roles(operation):
                _fuzz_operation(operation, caller, effort, _known_path_parameters(steward, operation))
            else:
                _fuzz_operation(operation, caller, Effort(valid=1, known=0, invalid=0, boundaries=0), {})
    return caller.statuses


@dataclass(slots=True)
class _Caller:
    session: requests.Session
    headers: dict[str, str]
    statuses: Counter[int]

    def __call__(self, case: Any) -> None:
        """Send a generated request with our token in place of its own, and check the answer."""
        case.headers = {key: value for key, value in (case.headers or {}).items() if key.lower() != "authorization"}
        response = case.call(session=self.session, headers=self.headers, timeout=20)
        self.statuses[response.status_code] += 1
        case.validate_response(response, checks=CHECKS)


def _allowed_roles(operation: Any) -> frozenset[Role | None]:
    """The roles that may use the operation; only None (no token) for a public one."""
    rule = RULES[operation.method.upper(), operation.path.replace("{path}", "{path:path}")]
    return frozenset(rule.roles) if rule.roles else frozenset({None})


def _fuzz_operation(operation: Any, caller: _Caller, effort: Effort, known: dict[str, Any]) -> None:
    _send_examples(operation.as_strategy(generation_mode=GenerationMode.POSITIVE), caller, effort.valid)
    with contextlib.suppress(Unsatisfiable):  # an operation without parameters has no invalid request
        _send_examples(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE), caller, effort.invalid)
    if known:
        strategy = operation.as_strategy(generation_mode=GenerationMode.POSITIVE, path_parameters=known)
        _send_examples(strategy, caller, effort.known)
    schema = operation.schema
    cases = schema.iter_coverage_cases(
        operation,
        generation_modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE],
        generation_config=schema.config.generation_for(operation=operation, phase="coverage"),
    )
    same_method = (case for case in cases if case.method.upper() == operation.method.upper())
    for case in islice(same_method, effort.boundaries):
        caller(case)


def _send_examples(strategy: Any, caller: _Caller, count: int) -> None:
    if count == 0:
        return

    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=strategy)
    def send(case: Any) -> None:
        caller(case)

    send()


def _known_path_parameters(steward: Served, operation: Any) -> dict[str, Any]:
    """Values for the parameters in the operation's path that name existing objects."""
    proof = steward.stand.notary.proofs.list_proofs(steward.stand.grant())[0]
    values = {
        "workload_id": proof.workload_id,
        "attempt_id": proof.attempt_id,
        "proof_id": proof.proof_id,
        "number": 1,
        "index": 0,
        "path": "0/000.p/1",
    }
    return {name: value for name, value in values.items() if "{" + name + "}" in operation.path}
