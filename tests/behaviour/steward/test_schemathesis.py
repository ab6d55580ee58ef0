"""Whatever the OpenAPI document allows, and much that it does not: no 5xx, no undocumented status, no other schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from schemathesis.core.failures import FailureGroup

from pvdm.model.role import Role
from pvdm.steward.record.log import LogQueries
from tests.support.fuzz.steward import Effort, fuzzed, prepared

EFFORT = Effort(valid=2, known=2, invalid=2, boundaries=5)


@pytest.mark.parametrize("role", [*Role, None], ids=lambda role: str(role or "nobody"))
def test_the_service_keeps_to_its_openapi_document_with_every_token(tmp_path: Path, role: Role | None) -> None:
    with prepared(tmp_path) as steward:
        seen = fuzzed(steward, role, EFFORT)
    # A walk that met less than this has seen nothing.
    assert {200, 400, 401 if role is None else 403} <= set(seen), seen
    assert sum(seen.values()) > 40, seen


def test_a_status_that_the_document_does_not_name_is_found(tmp_path: Path) -> None:
    with prepared(tmp_path) as steward:
        document = steward.http.get("/v1/openapi.json").json()
        only(document, "/v1/workloads/{workload_id}", "get")["responses"].pop("404")
        with pytest.raises(FailureGroup, match="Undocumented status code"):
            fuzzed(steward, Role.AUDITOR, EFFORT, document=document)


def test_an_answer_of_another_schema_is_found(tmp_path: Path) -> None:
    with prepared(tmp_path) as steward:
        document = steward.http.get("/v1/openapi.json").json()
        only(document, "/v1/overrides", "get")
        document["components"]["schemas"]["OverrideList"]["properties"]["overrides"]["type"] = "object"
        with pytest.raises(FailureGroup, match="Response violates schema"):
            fuzzed(steward, Role.AUDITOR, EFFORT, document=document)


def test_a_bug_behind_the_door_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: LogQueries) -> bytes:
        raise RuntimeError("a bug")

    monkeypatch.setattr(LogQueries, "checkpoint", broken)
    with prepared(tmp_path) as steward:
        document = steward.http.get("/v1/openapi.json").json()
        only(document, "/v1/log/checkpoint", "get")
        with pytest.raises(FailureGroup, match="Server error"):
            fuzzed(steward, Role.CONSUMER, EFFORT, document=document)


def only(document: dict[str, Any], path: str, method: str) -> dict[str, Any]:
    """Leave one operation in the document."""
    operation: dict[str, Any] = document["paths"][path][method]
    document["paths"] = {path: {method: operation}}
    return operation
