"""The catalog's configuration and its namespaces, as the Iceberg REST protocol has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from pvdm.catalog.names import parse_levels, require_levels
from pvdm.catalog.requests import REQUEST_KEPT_MAX_SECONDS, RequestKey
from pvdm.errors import Code
from pvdm.lake.format.json_document import Json
from pvdm.ledger.catalog.namespaces import Namespace
from pvdm.steward.http.catalog.shared import (
    BodyPart,
    CatalogPart,
    LevelsPart,
    Once,
    PageSize,
    PageToken,
    after_levels,
    empty_response,
    json_response,
    page_size,
    page_token,
)
from pvdm.steward.http.dependencies import Caller
from pvdm.steward.http.roles import RULES

IDEMPOTENCY_LIFETIME: Final = f"PT{REQUEST_KEPT_MAX_SECONDS // 3_600}H"

_V1: Final = "/catalog/v1"
_NAMESPACE: Final = "/catalog/v1/namespaces/{namespace}"
# Iceberg's specification has neither the configuration nor OAuth2 among them.
_ENDPOINTS: Final[tuple[Json, ...]] = tuple(
    f"{method} /v1/{{prefix}}/{path.removeprefix(f'{_V1}/')}"
    for method, path in RULES
    if path.startswith(f"{_V1}/") and not path.startswith((f"{_V1}/config", f"{_V1}/oauth"))
)

router = APIRouter(tags=["catalog"], include_in_schema=False)


@router.get(f"{_V1}/config")
def config(catalog: CatalogPart, warehouse: Annotated[str | None, Query(max_length=4_096)] = None) -> Response:
    """What clients need to know; Java's must not exchange a token for a token, which is not served."""
    if warehouse not in (None, "", catalog.name, catalog.warehouse):
        raise Code.WAREHOUSE_UNKNOWN(expected=catalog.name, got="another")
    overrides: Json = {"token-exchange-enabled": "false"}
    return json_response(
        {
            "defaults": catalog.responses.defaults,
            "overrides": overrides,
            "endpoints": list(_ENDPOINTS),
            "idempotency-key-lifetime": IDEMPOTENCY_LIFETIME,
        }
    )


@router.get(f"{_V1}/namespaces")
def namespaces(
    catalog: CatalogPart,
    grant: Caller,
    parent: Annotated[str | None, Query(max_length=16_384)] = None,
    token: PageToken = None,
    size: PageSize = None,
) -> Response:
    """The namespaces inside one, or at the top."""
    count = page_size(token, size)
    inside = parse_levels(parent) if parent else ()
    wanted = None if count is None else count + 1
    found = catalog.namespaces.page(grant, inside, after=after_levels(token), count=wanted)
    body: dict[str, Json] = {"namespaces": [list(each.levels) for each in found[:count]]}
    if count is not None and len(found) > count:
        body["next-page-token"] = page_token(list(found[count - 1].levels))
    return json_response(body)


@router.post(f"{_V1}/namespaces")
def create(request: Request, catalog: CatalogPart, grant: Caller, body: BodyPart) -> Response:
    """A new namespace."""
    levels = require_levels(list(body.string_list("namespace")))
    properties = body.string_map("properties") if body.has_not_null("properties") else {}

    def work(key: RequestKey | None) -> Response:
        return _namespace_response(catalog.namespaces.create(grant, levels, properties, idempotency_key=key))

    return Once.of(request, catalog, grant).respond(work, _again)


@router.get(_NAMESPACE)
def load(catalog: CatalogPart, grant: Caller, levels: LevelsPart) -> Response:
    """One namespace with its properties."""
    return _namespace_response(catalog.namespaces.get(grant, levels))


@router.head(_NAMESPACE)
def exists(catalog: CatalogPart, grant: Caller, levels: LevelsPart) -> Response:
    """Whether it is there."""
    catalog.namespaces.get(grant, levels)
    return empty_response()


@router.delete(_NAMESPACE)
def drop(request: Request, catalog: CatalogPart, grant: Caller, levels: LevelsPart) -> Response:
    """End an empty namespace."""
    return Once.of(request, catalog, grant).change(
        lambda key: catalog.namespaces.drop(grant, levels, idempotency_key=key)
    )


@router.post(f"{_NAMESPACE}/properties")
def change(request: Request, catalog: CatalogPart, grant: Caller, levels: LevelsPart, body: BodyPart) -> Response:
    """Set and remove properties."""
    updates = body.string_map("updates") if body.has_not_null("updates") else {}
    removals = body.string_list("removals") if body.has_not_null("removals") else ()

    def work(key: RequestKey | None) -> Response:
        facts: dict[str, Json] = {**catalog.namespaces.change(grant, levels, updates, removals, idempotency_key=key)}
        return json_response(facts)

    return Once.of(request, catalog, grant).respond(work, _again)


def _namespace_response(found: Namespace) -> Response:
    return json_response({"namespace": list(found.levels), "properties": dict(found.properties)})


def _again(facts: Mapping[str, object]) -> Response:
    return json_response(facts)  # type: ignore[arg-type]  # it was JSON when it was kept
