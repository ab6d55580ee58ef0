"""schemathesis against a running Steward: requests made from its OpenAPI document, each answer held against it."""

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
    """How many requests each operation gets: valid ones, valid ones about objects that are there, invalid ones, and
    cases at the edges of the schema."""

    valid: int
    known: int
    invalid: int
    boundaries: int


@contextlib.contextmanager
def prepared(folder: Path) -> Iterator[Served]:
    """A Steward with one of everything, a catalog, and no limit on the rate."""
    with served(folder, changed=with_catalog(folder.resolve())) as steward:
        stand = steward.stand
        stand.verifying("mine")
        # Waits are asked for at random, for attempts that nobody settles: none of them is kept.
        stand.notary.changes.close()
        core = failed(stand.verifying("failed"))
        recorded = stand.record(core)
        stand.notary.overrides.submit(signed_override(override_of(recorded, core, stand.time.wall)), stand.grant())
        headers = steward.headers(Role.ATTESTOR, name=ATTESTOR)
        asked = challenge_body("00" * 16)
        assert steward.http.post("/v1/attestations/challenges", json=asked, headers=headers).status_code == 200
        envelope = signed_attestation("00" * 16, epoch=1, now=stand.time.wall, attestor=ATTESTOR)
        body = {"envelope": json.loads(envelope)}
        assert steward.http.post("/v1/attestations", json=body, headers=headers).status_code == 200
        yield steward


def fuzzed(
    steward: Served, role: Role | None, effort: Effort, *, document: dict[str, Any] | None = None
) -> Counter[int]:
    """Try every operation with a token of the role; raises at the first answer that is not as documented."""
    load_all_checks()
    schema = schemathesis.openapi.from_dict(document or steward.http.get("/v1/openapi.json").json())
    schema.config.update(base_url=steward.server.url)
    name = ATTESTOR if role is Role.ATTESTOR else "operator-tom"
    headers = {} if role is None else bearer(steward.stand.token(role, "*", name)[0])
    with requests.Session() as session:
        session.trust_env = False
        caller = _Caller(session, headers, Counter())
        operations: list[Any] = [schema[path][method] for path in schema for method in schema[path]]
        # What ends epochs comes last: without an active one much else is refused, and rightly.
        for operation in sorted(operations, key=lambda each: each.path.startswith("/v1/epochs/")):
            if role in _roles(operation):
                _try(operation, caller, effort, _known(steward, operation))
            else:
                _try(operation, caller, Effort(1, 0, 0, 0), {})
    return caller.seen


@dataclass(slots=True)
class _Caller:
    session: requests.Session
    headers: dict[str, str]
    seen: Counter[int]

    def __call__(self, case: Any) -> None:
        """Send it under our own token and no other, and judge the answer."""
        case.headers = {key: value for key, value in (case.headers or {}).items() if key.lower() != "authorization"}
        response = case.call(session=self.session, headers=self.headers, timeout=20)
        self.seen[response.status_code] += 1
        case.validate_response(response, checks=CHECKS)


def _roles(operation: Any) -> frozenset[Role | None]:
    """Who gets further than the door."""
    rule = RULES[operation.method.upper(), operation.path.replace("{path}", "{path:path}")]
    return frozenset(rule.roles) if rule.roles else frozenset({None})


def _try(operation: Any, caller: _Caller, effort: Effort, known: dict[str, Any]) -> None:
    _drawn(operation.as_strategy(generation_mode=GenerationMode.POSITIVE), caller, effort.valid)
    with contextlib.suppress(Unsatisfiable):  # an operation without parameters cannot be asked wrongly
        _drawn(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE), caller, effort.invalid)
    if known:
        strategy = operation.as_strategy(generation_mode=GenerationMode.POSITIVE, path_parameters=known)
        _drawn(strategy, caller, effort.known)
    schema = operation.schema
    cases = schema.iter_coverage_cases(
        operation,
        generation_modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE],
        generation_config=schema.config.generation_for(operation=operation, phase="coverage"),
    )
    same_method = (case for case in cases if case.method.upper() == operation.method.upper())
    for case in islice(same_method, effort.boundaries):
        caller(case)


def _drawn(strategy: Any, caller: _Caller, count: int) -> None:
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


def _known(steward: Served, operation: Any) -> dict[str, Any]:
    """The operation's path, filled with things that are there."""
    proof = steward.stand.notary.proofs.listed(steward.stand.grant())[0]
    values = {
        "workload_id": proof.workload_id,
        "attempt_id": proof.attempt_id,
        "proof_id": proof.proof_id,
        "number": 1,
        "index": 0,
        "path": "0/000.p/1",
    }
    return {name: value for name, value in values.items() if "{" + name + "}" in operation.path}
