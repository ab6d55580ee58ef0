"""The OpenAPI document names every route, every status it can give and the one envelope, and no secret."""

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

# The catalog's routes stand in the document of Iceberg's protocol.
OURS = sorted(line for line in RULES if not line[1].startswith("/catalog/") or line[1].endswith("/oauth/tokens"))


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with stand_at(tmp_path_factory.mktemp("openapi")) as made:
        yield made


@pytest.fixture(scope="module")
def document(stand: Stand) -> dict[str, Any]:
    return create_app(stand.notary).openapi()


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def plain(path: str) -> str:
    return re.sub(r"\{(\w+):\w+\}", r"{\1}", path)


def test_it_is_made_when_it_is_asked_for_and_then_once(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def document(routes: object) -> dict[str, Any]:
        made.append(routes)
        return {}

    monkeypatch.setattr(openapi, "build_document", document)
    app = create_app(stand.notary)
    assert made == []
    assert app.openapi() is app.openapi()
    assert len(made) == 1


def test_every_route_is_in_it(document: dict[str, Any]) -> None:
    assert set(operations(document)) == {(method, plain(path)) for method, path in OURS}


@for_each("line", OURS)
def test_every_status_of_a_route_is_documented(document: dict[str, Any], line: tuple[str, str]) -> None:
    operation = operations(document)[line[0], plain(line[1])]
    assert set(operation["responses"]) == {"200", *map(str, statuses(RULES[line], line[1]))}


@for_each("line", OURS)
def test_every_error_has_the_one_envelope(document: dict[str, Any], line: tuple[str, str]) -> None:
    told = "OAuthErrorResponse" if RULES[line].body is Body.FORM else "ErrorResponse"
    for status, answer in operations(document)[line[0], plain(line[1])]["responses"].items():
        if status != "200" and (line[1], status) != ("/readyz", "503"):
            assert answer["content"] == {"application/json": {"schema": {"$ref": f"#/components/schemas/{told}"}}}


@for_each("line", OURS)
def test_a_route_that_wants_a_token_says_so(document: dict[str, Any], line: tuple[str, str]) -> None:
    operation = operations(document)[line[0], plain(line[1])]
    assert operation["security"] == ([] if RULES[line].public else [{"bearer": []}])


@for_each("line", [line for line in OURS if RULES[line].body is not Body.NONE])
def test_a_route_that_takes_a_body_describes_it(document: dict[str, Any], line: tuple[str, str]) -> None:
    assert operations(document)[line[0], plain(line[1])]["requestBody"]["content"]


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert named <= set(document["components"]["schemas"])


def test_bodies_are_closed(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert [
        name
        for name in ("ReasonRequest", "EnvelopeRequest", "AttestationChallengeRequest")
        if schemas[name]["additionalProperties"]
    ] == []


def test_the_frameworks_own_error_is_not_in_it(document: dict[str, Any]) -> None:
    assert "ValidationError" not in json.dumps(document)


def test_it_names_no_other_host(document: dict[str, Any]) -> None:
    assert re.findall(r"https?://", json.dumps(document)) == []
