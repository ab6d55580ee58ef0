"""Routes of the catalog's views, as the Iceberg REST protocol defines them."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, TypeAlias

from fastapi import APIRouter, Depends, Path, Query
from fastapi.responses import Response

from pvdm.catalog.names import require_name
from pvdm.catalog.requests import failures_mean_state_unknown
from pvdm.catalog.views import ViewState
from pvdm.lake.format.json_document import Json
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.steward.http.catalog import shared
from pvdm.steward.http.catalog.shared import BodyPart, CallPart, CatalogPart, LevelsPart, PageSize, PageToken
from pvdm.steward.http.dependencies import Caller
from pvdm.steward.http.request import decode_name

_VIEWS: Final = "/catalog/v1/namespaces/{namespace}/views"
_VIEW: Final = "/catalog/v1/namespaces/{namespace}/views/{view}"

router = APIRouter(tags=["catalog"], include_in_schema=False)


async def _view(view: Annotated[str, Path()]) -> str:
    return require_name(decode_name(view), "the view's name")


ViewPart: TypeAlias = Annotated[str, Depends(_view)]


@router.get(_VIEWS)
def views(
    catalog: CatalogPart, grant: Caller, levels: LevelsPart, token: PageToken = None, size: PageSize = None
) -> Response:
    """The views of a namespace."""
    return shared.names_page(levels, partial(catalog.views.page, grant, levels), token, size)


@router.post(_VIEWS)
def create(call: CallPart, levels: LevelsPart, body: BodyPart) -> Response:
    """Create a view."""
    views = call.catalog.views
    return call.respond(
        lambda key: _changed_response(views.create(call.grant, levels, body.raw, key=key)),
        _repetition_responder(call, levels, body.text("name")),
    )


@router.post("/catalog/v1/namespaces/{namespace}/register-view")
def register(call: CallPart, levels: LevelsPart, body: BodyPart) -> Response:
    """Register a view from its metadata file."""
    views, name, location = call.catalog.views, body.text("name"), body.text("metadata-location")
    return call.respond(
        lambda key: _changed_response(views.register(call.grant, levels, name, location, key=key)),
        _repetition_responder(call, levels, name),
    )


@router.get(_VIEW)
def load(
    catalog: CatalogPart,
    grant: Caller,
    levels: LevelsPart,
    view: ViewPart,
    referenced_by: Annotated[str | None, Query(alias="referenced-by", max_length=16_384)] = None,
) -> Response:
    """The view's definition; it gives no rights on the tables that the view reads."""
    del referenced_by  # it names the views that read this one; they give no rights either
    return _view_response(catalog.views.load(grant, levels, view))


@router.head(_VIEW)
def exists(catalog: CatalogPart, grant: Caller, levels: LevelsPart, view: ViewPart) -> Response:
    """An empty response if the view exists. Raises `view_unknown` otherwise."""
    catalog.views.require_exists(grant, levels, view)
    return shared.empty_response()


@router.post(_VIEW)
def replace(call: CallPart, levels: LevelsPart, view: ViewPart, body: BodyPart) -> Response:
    """Change the view's metadata document."""
    change = shared.read_change("view", levels, view, body)
    return call.respond(
        lambda key: _changed_response(call.catalog.views.commit(call.grant, change, key=key)),
        _repetition_responder(call, levels, view),
    )


@router.delete(_VIEW)
def drop(call: CallPart, levels: LevelsPart, view: ViewPart) -> Response:
    """Drop the view."""
    return call.change(lambda key: call.catalog.views.drop(call.grant, levels, view, key=key))


@router.post("/catalog/v1/views/rename")
def rename(call: CallPart, body: BodyPart) -> Response:
    """Rename a view."""
    source, target = shared.identifier(body.node("source")), shared.identifier(body.node("destination"))
    return call.change(lambda key: call.catalog.views.rename(call.grant, source, target, key=key))


def _view_response(state: ViewState) -> Response:
    config: Json = {}
    return shared.json_response(
        {"metadata-location": state.row.pointer.location, "metadata": state.metadata.raw, "config": config}
    )


def _changed_response(state: ViewState) -> Response:
    """The response to a change that was made. An error here becomes `StateUnknownError`, since the change stays."""
    with failures_mean_state_unknown():
        return _view_response(state)


def _repetition_responder(call: shared.IdempotentCall, levels: Levels, name: str) -> shared.RespondAgain:
    """A function that answers a repetition (the same idempotency key) with the view as the first request left it."""
    load_state = call.catalog.views.state_of_repeated_request
    return shared.responder_from_pointer(lambda pointer: _view_response(load_state(call.grant, pointer, levels, name)))
