"""The OpenAPI document describes every route of pvdm's own API, each status of it, and the envelope of errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from pvdm.steward.http import openapi
from pvdm.steward.http.app import create_app
from pvdm.steward.http.openapi import statuses
from pvdm.steward.http.roles import RULES, Body
from tests.support.for_each import for_each
from tests.support.steward.notary import Stand, stand_at

# The other routes of the catalog are described by Iceberg's own OpenAPI document.
OWN_ROUTES = sorted(line for line in RULES if not line[1].startswith("/catalog/") or line[1].endswith("/oauth/tokens"))


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with stand_at(tmp_path_factory.mktemp("openapi")) as stand:
        yield stand


@pytest.fixture(scope="module")
def document(stand: Stand) -> dict[str, Any]:
    return create_app(stand.notary).openapi()


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def plain_path(path: str) -> str:
    return re.sub(r"\{(\w+):\w+\}", r"{\1}", path)


def test_the_document_is_built_once_at_the_first_request(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[object] = []

    def document(routes: object) -> dict[str, Any]:
        builds.append(routes)
        return {}

    monkeypatch.setattr(openapi, "build_document", document)
    app = create_app(stand.notary)
    assert builds == []
    assert app.openapi() is app.openapi()
    assert len(builds) == 1


def test_every_route_is_documented(document: dict[str, Any]) -> None:
    assert set(operations(document)) == {(method, plain_path(path)) for method, path in OWN_ROUTES}


@for_each("line", OWN_ROUTES)
def test_every_status_of_a_route_is_documented(document: dict[str, Any], line: tuple[str, str]) -> None:
    operation = operations(document)[line[0], plain_path(line[1])]
    assert set(operation["responses"]) == {"200", *map(str, statuses(RULES[line], line[1]))}


@for_each("line", OWN_ROUTES)
def test_every_error_has_the_common_envelope(document: dict[str, Any], line: tuple[str, str]) -> None:
    schema = "OAuthErrorResponse" if RULES[line].body is Body.FORM else "ErrorResponse"
    for status, answer in operations(document)[line[0], plain_path(line[1])]["responses"].items():
        if status != "200" and (line[1], status) != ("/readyz", "503"):
            assert answer["content"] == {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


@for_each("line", OWN_ROUTES)
def test_the_security_of_a_route_says_whether_it_needs_a_token(document: dict[str, Any], line: tuple[str, str]) -> None:
    operation = operations(document)[line[0], plain_path(line[1])]
    assert operation["security"] == ([] if RULES[line].public else [{"bearer": []}])


@for_each("line", [line for line in OWN_ROUTES if RULES[line].body is not Body.NONE])
def test_a_route_that_takes_a_body_describes_it(document: dict[str, Any], line: tuple[str, str]) -> None:
    assert operations(document)[line[0], plain_path(line[1])]["requestBody"]["content"]


def test_every_reference_names_a_schema(document: dict[str, Any]) -> None:
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert named <= set(document["components"]["schemas"])


def test_schemas_of_bodies_allow_no_other_fields(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert [
        name
        for name in ("ReasonRequest", "EnvelopeRequest", "AttestationChallengeRequest")
        if schemas[name]["additionalProperties"]
    ] == []


def test_the_error_of_fastapi_is_not_documented(document: dict[str, Any]) -> None:
    assert "ValidationError" not in json.dumps(document)


def test_the_document_names_no_host(document: dict[str, Any]) -> None:
    assert re.findall(r"https?://", json.dumps(document)) == []
