"""The catalog's views, as the Iceberg REST protocol has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Final, TypeAlias

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response

from pvdm.catalog.catalog import Catalog
from pvdm.catalog.commit import Change
from pvdm.catalog.names import require_name
from pvdm.catalog.requests import failures_mean_state_unknown
from pvdm.catalog.views import ViewState
from pvdm.errors import Code
from pvdm.lake.format.json_document import Json
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.record.tokens import Grant
from pvdm.steward.http.catalog.shared import (
    BodyPart,
    CatalogPart,
    LevelsPart,
    Once,
    PageSize,
    PageToken,
    empty_response,
    identifier,
    json_response,
    names_page,
    show_pointer,
)
from pvdm.steward.http.dependencies import Caller
from pvdm.steward.http.request import name_in

_VIEWS: Final = "/catalog/v1/namespaces/{namespace}/views"
_VIEW: Final = "/catalog/v1/namespaces/{namespace}/views/{view}"

router = APIRouter(tags=["catalog"], include_in_schema=False)


async def _view(view: Annotated[str, Path()]) -> str:
    return require_name(name_in(view), "the view's name")


ViewPart: TypeAlias = Annotated[str, Depends(_view)]


@router.get(_VIEWS)
def views(
    catalog: CatalogPart, grant: Caller, levels: LevelsPart, token: PageToken = None, size: PageSize = None
) -> Response:
    """The views of a namespace."""
    return names_page(
        levels, lambda after, count: catalog.views.page(grant, levels, after=after, count=count), token, size
    )


@router.post(_VIEWS)
def create(request: Request, catalog: CatalogPart, grant: Caller, levels: LevelsPart, body: BodyPart) -> Response:
    """A new view."""
    return Once.of(request, catalog, grant).respond(
        lambda key: _changed(catalog.views.create(grant, levels, body.raw, idempotency_key=key)),
        _again(catalog, grant, levels, body.text("name")),
    )


@router.post("/catalog/v1/namespaces/{namespace}/register-view")
def register(request: Request, catalog: CatalogPart, grant: Caller, levels: LevelsPart, body: BodyPart) -> Response:
    """A view from its metadata file."""
    name, location = body.text("name"), body.text("metadata-location")
    return Once.of(request, catalog, grant).respond(
        lambda key: _changed(catalog.views.register(grant, levels, name, location, idempotency_key=key)),
        _again(catalog, grant, levels, name),
    )


@router.get(_VIEW)
def load(
    catalog: CatalogPart,
    grant: Caller,
    levels: LevelsPart,
    view: ViewPart,
    referenced_by: Annotated[str | None, Query(alias="referenced-by", max_length=16_384)] = None,
) -> Response:
    """The view; what it shows is read from the tables with the reader's own token."""
    del referenced_by  # the views through which a client came to it; they give no rights here
    return _view_response(catalog.views.load(grant, levels, view))


@router.head(_VIEW)
def exists(catalog: CatalogPart, grant: Caller, levels: LevelsPart, view: ViewPart) -> Response:
    """Whether it is there."""
    catalog.views.require(grant, levels, view)
    return empty_response()


@router.post(_VIEW)
def replace(
    request: Request, catalog: CatalogPart, grant: Caller, levels: LevelsPart, view: ViewPart, body: BodyPart
) -> Response:
    """Change the view's document."""
    if body.has_not_null("identifier") and identifier(body.node("identifier")) != (levels, view):
        raise Code.IDENTIFIER_DIFFERS("path and body name different views", expected="one view")
    requirements = body.array("requirements") if body.has_not_null("requirements") else []
    change = Change(levels, view, requirements, body.array("updates"))
    return Once.of(request, catalog, grant).respond(
        lambda key: _changed(catalog.views.commit(grant, change, idempotency_key=key)),
        _again(catalog, grant, levels, view),
    )


@router.delete(_VIEW)
def drop(request: Request, catalog: CatalogPart, grant: Caller, levels: LevelsPart, view: ViewPart) -> Response:
    """End the view."""
    return Once.of(request, catalog, grant).change(
        lambda key: catalog.views.drop(grant, levels, view, idempotency_key=key)
    )


@router.post("/catalog/v1/views/rename")
def rename(request: Request, catalog: CatalogPart, grant: Caller, body: BodyPart) -> Response:
    """Give a view another name."""
    source, target = identifier(body.node("source")), identifier(body.node("destination"))
    return Once.of(request, catalog, grant).change(
        lambda key: catalog.views.rename(grant, source, target, idempotency_key=key)
    )


def _view_response(state: ViewState) -> Response:
    config: Json = {}
    return json_response(
        {"metadata-location": state.row.pointer.location, "metadata": state.metadata.raw, "config": config}
    )


def _changed(state: ViewState) -> Response:
    """The response to a change that was made; an error here must not read as if nothing was changed."""
    with failures_mean_state_unknown():
        return _view_response(state)


def _again(catalog: Catalog, grant: Grant, levels: Levels, name: str) -> Callable[[Mapping[str, object]], Response]:
    return show_pointer(
        lambda pointer: _view_response(catalog.views.state_of_repeated_request(grant, pointer, levels, name))
    )
