"""Sends requests that the OpenAPI document allows, and many that it does not: every answer must be as documented."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from schemathesis.core.failures import FailureGroup

from pvdm.model.role import Role
from pvdm.steward.record.log import LogQueries
from tests.support.fuzz.steward import Effort, fuzz_operations, steward_to_fuzz

EFFORT = Effort(valid=2, known=2, invalid=2, boundaries=2)
SMALL_EFFORT = Effort(valid=1, known=1, invalid=1, boundaries=0)
SAMPLE = (Role.PRODUCER,)
"""The callers of `make test`. `make test-long` tries all roles and no token, as test_routes.py does at every route."""


@pytest.mark.parametrize(
    ("role", "effort"),
    [
        *((role, SMALL_EFFORT) for role in SAMPLE),
        *(pytest.param(role, EFFORT, marks=pytest.mark.long) for role in (*Role, None)),
    ],
    ids=lambda each: "" if isinstance(each, Effort) else str(each or "no token"),
)
def test_the_service_keeps_to_its_openapi_document_with_every_token(
    tmp_path: Path, role: Role | None, effort: Effort
) -> None:
    with steward_to_fuzz(tmp_path) as steward:
        count_by_status = fuzz_operations(steward, role, effort)
    # With fewer statuses or requests the run would have checked almost nothing.
    assert {200, 400, 401 if role is None else 403} <= set(count_by_status), count_by_status
    assert sum(count_by_status.values()) > 40, count_by_status


def test_a_status_that_the_document_does_not_name_is_found(tmp_path: Path) -> None:
    with steward_to_fuzz(tmp_path) as steward:
        document = steward.http.get("/v1/openapi.json").json()
        keep_only(document, "/v1/workloads/{workload_id}", "get")["responses"].pop("404")
        with pytest.raises(FailureGroup, match="Undocumented status code"):
            fuzz_operations(steward, Role.AUDITOR, EFFORT, document=document)


def test_an_answer_of_another_schema_is_found(tmp_path: Path) -> None:
    with steward_to_fuzz(tmp_path) as steward:
        document = steward.http.get("/v1/openapi.json").json()
        keep_only(document, "/v1/overrides", "get")
        document["components"]["schemas"]["OverrideList"]["properties"]["overrides"]["type"] = "object"
        with pytest.raises(FailureGroup, match="Response violates schema"):
            fuzz_operations(steward, Role.AUDITOR, EFFORT, document=document)


def test_a_server_error_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_bug(_: LogQueries) -> bytes:
        raise RuntimeError("a bug")

    monkeypatch.setattr(LogQueries, "checkpoint", raise_bug)
    with steward_to_fuzz(tmp_path) as steward:
        document = steward.http.get("/v1/openapi.json").json()
        keep_only(document, "/v1/log/checkpoint", "get")
        with pytest.raises(FailureGroup, match="Server error"):
            fuzz_operations(steward, Role.CONSUMER, EFFORT, document=document)


def keep_only(document: dict[str, Any], path: str, method: str) -> dict[str, Any]:
    """Remove all operations but one from the document; returns that one."""
    operation: dict[str, Any] = document["paths"][path][method]
    document["paths"] = {path: {method: operation}}
    return operation
