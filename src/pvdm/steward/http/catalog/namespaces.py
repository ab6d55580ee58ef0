"""Routes of the catalog's configuration and namespaces, as the Iceberg REST protocol defines them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from fastapi import APIRouter, Query
from fastapi.responses import Response

from pvdm.catalog.names import parse_levels, require_levels
from pvdm.catalog.requests import REQUEST_KEPT_MAX_SECONDS, RequestKey
from pvdm.errors import Code
from pvdm.lake.format.json_document import Json
from pvdm.ledger.catalog.namespaces import Namespace
from pvdm.steward.http.catalog import shared
from pvdm.steward.http.catalog.shared import BodyPart, CallPart, CatalogPart, LevelsPart, PageSize, PageToken
from pvdm.steward.http.dependencies import Caller
from pvdm.steward.http.roles import RULES

IDEMPOTENCY_LIFETIME: Final = f"PT{REQUEST_KEPT_MAX_SECONDS // 3_600}H"

_V1: Final = "/catalog/v1"
_NAMESPACE: Final = "/catalog/v1/namespaces/{namespace}"
# The endpoints that the configuration lists: as in Iceberg's specification, all but the configuration and OAuth2.
_ENDPOINTS: Final[tuple[Json, ...]] = tuple(
    f"{method} /v1/{{prefix}}/{path.removeprefix(f'{_V1}/')}"
    for method, path in RULES
    if path.startswith(f"{_V1}/") and not path.startswith((f"{_V1}/config", f"{_V1}/oauth"))
)

router = APIRouter(tags=["catalog"], include_in_schema=False)


@router.get(f"{_V1}/config")
def config(catalog: CatalogPart, warehouse: Annotated[str | None, Query(max_length=4_096)] = None) -> Response:
    """The configuration for clients. It turns off Java's token exchange (RFC 8693), which is not served here."""
    if warehouse not in (None, "", catalog.name, catalog.warehouse):
        raise Code.WAREHOUSE_UNKNOWN(expected=catalog.name, got="another")
    overrides: Json = {"token-exchange-enabled": "false"}
    return shared.json_response(
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
    """The namespaces directly inside `parent`, or at the top level."""
    count = shared.page_size(token, size)
    levels = parse_levels(parent) if parent else ()
    one_more = None if count is None else count + 1  # to find out whether there is another page
    found = catalog.namespaces.page(grant, levels, after=shared.after_levels(token), count=one_more)
    body: dict[str, Json] = {"namespaces": [list(each.levels) for each in found[:count]]}
    if count is not None and len(found) > count:
        body["next-page-token"] = shared.page_token(list(found[count - 1].levels))
    return shared.json_response(body)


@router.post(f"{_V1}/namespaces")
def create(call: CallPart, body: BodyPart) -> Response:
    """Create a namespace."""
    levels = require_levels(list(body.string_list("namespace")))
    properties = body.string_map("properties") if body.has_not_null("properties") else {}

    def work(key: RequestKey | None) -> Response:
        namespaces = call.catalog.namespaces
        return _namespace_response(namespaces.create(call.grant, levels, properties, key=key))

    return call.respond(work, _respond_again)


@router.get(_NAMESPACE)
def load(catalog: CatalogPart, grant: Caller, levels: LevelsPart) -> Response:
    """One namespace with its properties."""
    return _namespace_response(catalog.namespaces.get(grant, levels))


@router.head(_NAMESPACE)
def exists(catalog: CatalogPart, grant: Caller, levels: LevelsPart) -> Response:
    """An empty response if the namespace exists. Raises `namespace_unknown` otherwise."""
    catalog.namespaces.get(grant, levels)
    return shared.empty_response()


@router.delete(_NAMESPACE)
def drop(call: CallPart, levels: LevelsPart) -> Response:
    """Drop an empty namespace."""
    return call.change(lambda key: call.catalog.namespaces.drop(call.grant, levels, key=key))


@router.post(f"{_NAMESPACE}/properties")
def change(call: CallPart, levels: LevelsPart, body: BodyPart) -> Response:
    """Set some properties of a namespace and remove others."""
    updates = body.string_map("updates") if body.has_not_null("updates") else {}
    removals = body.string_list("removals") if body.has_not_null("removals") else ()

    def work(key: RequestKey | None) -> Response:
        changed = call.catalog.namespaces.change(call.grant, levels, updates, removals, key=key)
        response: dict[str, Json] = {**changed}
        return shared.json_response(response)

    return call.respond(work, _respond_again)


def _namespace_response(namespace: Namespace) -> Response:
    return shared.json_response({"namespace": list(namespace.levels), "properties": dict(namespace.properties)})


def _respond_again(facts: Mapping[str, object]) -> Response:
    return shared.json_response(facts)  # type: ignore[arg-type]  # the first request stored its response as JSON
