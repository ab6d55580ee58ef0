"""Routes of the catalog's tables, as the Iceberg REST protocol defines them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from pvdm.catalog.purge import Leftover
from pvdm.catalog.requests import RequestKey, failures_mean_state_unknown
from pvdm.catalog.responses import TableResponse
from pvdm.catalog.state import TableState
from pvdm.errors import Code
from pvdm.lake.format.json_document import Json
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.steward.http.catalog import shared
from pvdm.steward.http.catalog.shared import BodyPart, CallPart, CatalogPart, LevelsPart, PageSize, PageToken, TablePart
from pvdm.steward.http.dependencies import Caller
from pvdm.steward.http.errors import catalog_refusal
from pvdm.steward.http.request import header
from pvdm.steward.http.routes import fast_path
from pvdm.steward.logs import log_warning

_V1: Final = "/catalog/v1"
_TABLES: Final = "/catalog/v1/namespaces/{namespace}/tables"
_TABLE: Final = "/catalog/v1/namespaces/{namespace}/tables/{table}"

router = APIRouter(tags=["catalog"], include_in_schema=False)


@router.get(_TABLES)
def tables(
    catalog: CatalogPart, grant: Caller, levels: LevelsPart, token: PageToken = None, size: PageSize = None
) -> Response:
    """The tables of a namespace."""
    return shared.names_page(levels, partial(catalog.tables.page, grant, levels), token, size)


@router.post(_TABLES)
def create(call: CallPart, levels: LevelsPart, body: BodyPart) -> Response:
    """Create a table. With `stage-create` only return the metadata document that the table would begin with."""
    catalog, grant, with_credentials = call.catalog, call.grant, _wants_credentials(call.request)
    if body.has_not_null("stage-create") and body.flag("stage-create"):
        staged = catalog.tables.stage_create(grant, levels, body.raw)
        return _table_response(catalog.responses.stage_create(grant, staged, with_credentials=with_credentials))

    def work(key: RequestKey | None) -> Response:
        state = catalog.tables.create(grant, levels, body.raw, key=key)
        return _changed_response(call, state, with_credentials=with_credentials)

    return call.respond(work, _repetition_responder(call, levels, body.text("name")))


@router.post("/catalog/v1/namespaces/{namespace}/register")
def register(call: CallPart, levels: LevelsPart, body: BodyPart) -> Response:
    """Register a table from its metadata file."""
    name, location = body.text("name"), body.text("metadata-location")
    overwrite = body.has_not_null("overwrite") and body.flag("overwrite")

    def work(key: RequestKey | None) -> Response:
        tables = call.catalog.tables
        state = tables.register(call.grant, levels, name, location, overwrite=overwrite, key=key)
        return _changed_response(call, state)

    return call.respond(work, _repetition_responder(call, levels, name))


@router.get(_TABLE)
@fast_path(query=("snapshots", "referenced-by"))
def load(request: Request) -> Response:
    """The table as the caller may see it; 304 if the caller has this version and gets no credentials."""
    catalog, grant, levels, table = shared.requested_table(request)
    mode = shared.requested_snapshots(request)
    state = catalog.tables.load(grant, levels, table)
    response = catalog.responses.table(grant, state, mode, with_credentials=_wants_credentials(request))
    listed = (header(request.scope, b"if-none-match") or "").split(",")
    client_etags = {tag.strip().removeprefix("W/") for tag in listed}
    if not response.has_credentials and response.etag in client_etags:
        return Response(status_code=304, headers={"etag": response.etag})
    return _table_response(response)


@router.get(f"{_TABLE}/credentials")
def credentials(catalog: CatalogPart, grant: Caller, levels: LevelsPart, table: TablePart) -> Response:
    """Credentials for the table's files, if this Steward vends any."""
    return shared.bytes_response(catalog.responses.credentials(grant, catalog.tables.load(grant, levels, table)))


@router.head(_TABLE)
@fast_path()
def exists(request: Request) -> Response:
    """An empty response if the table exists. Raises `table_unknown` otherwise."""
    catalog, grant, levels, table = shared.requested_table(request)
    catalog.tables.require_exists(grant, levels, table)
    return shared.empty_response()


@router.post(_TABLE)
@fast_path()
def commit(request: Request) -> Response:
    """Change the table's metadata document."""
    catalog, grant, levels, table = shared.requested_table(request)
    change = shared.read_change("table", levels, table, shared.json_body(request))
    call = shared.IdempotentCall(request, catalog, grant)

    def work(key: RequestKey | None) -> Response:
        (state,) = catalog.tables.commit(grant, [change], key=key)
        return _changed_response(call, state)

    return call.respond(work, _repetition_responder(call, levels, table))


@router.post(f"{_V1}/transactions/commit")
def transaction(call: CallPart, body: BodyPart) -> Response:
    """Change several tables, all or none."""
    body.array("table-changes")  # raises if it is missing; `nodes` would return no changes
    nodes = body.nodes("table-changes")
    changes = [shared.read_change("table", *shared.identifier(node.node("identifier")), node) for node in nodes]
    return call.change(lambda key: call.catalog.tables.commit(call.grant, changes, key=key))


@router.delete(_TABLE)
def drop(
    call: CallPart, levels: LevelsPart, table: TablePart, purge: Annotated[bool, Query(alias="purgeRequested")] = False
) -> Response:
    """Drop the table; with `purgeRequested` remove its files too."""
    tables = call.catalog.tables

    def work(key: RequestKey | None) -> Response:
        return _purge_response(table, tables.drop(call.grant, levels, table, purge=purge, key=key))

    def respond_again(facts: Mapping[str, object]) -> Response:
        match facts.get("purge"):  # the first request may have ended between the drop and the purge
            case [str(location), str(domain)]:
                return _purge_response(table, tables.purge(location, domain))
        return shared.empty_response()

    return call.respond(work, respond_again)


def _purge_response(table: str, left: Leftover | None) -> Response:
    """An empty response, or `purge_incomplete` if files are left; not raised, since the table is dropped either way."""
    if left is None:
        return shared.empty_response()
    log_warning("purge_left", place=left.place, why=left.why)
    response = catalog_refusal(
        Code.PURGE_INCOMPLETE(f"{table} is dropped, but files of it are left in {left.place}", got=left.why)
    )
    return Response(response.body, response.status, dict(response.headers), "application/json")


@router.post(f"{_V1}/tables/rename")
def rename(call: CallPart, body: BodyPart) -> Response:
    """Rename a table."""
    source, target = shared.identifier(body.node("source")), shared.identifier(body.node("destination"))
    return call.change(lambda key: call.catalog.tables.rename(call.grant, source, target, key=key))


@router.post(f"{_TABLE}/metrics")
def metrics(catalog: CatalogPart, grant: Caller, levels: LevelsPart, table: TablePart, body: BodyPart) -> Response:
    """Accept a client's report of a scan or a commit; it is not stored."""
    body.text("report-type")  # raises if it is missing
    catalog.tables.require_exists(grant, levels, table)
    return shared.empty_response()


def _wants_credentials(request: Request) -> bool:
    return "vended-credentials" in (header(request.scope, b"x-iceberg-access-delegation") or "")


def _changed_response(call: shared.IdempotentCall, state: TableState, *, with_credentials: bool = False) -> Response:
    """The response to a change that was made. An error here becomes `StateUnknownError`, since the change stays."""
    with failures_mean_state_unknown():
        return _table_response(call.catalog.responses.table(call.grant, state, with_credentials=with_credentials))


def _table_response(response: TableResponse) -> Response:
    return shared.bytes_response(response.body, etag=response.etag)


def _repetition_responder(call: shared.IdempotentCall, levels: Levels, name: str) -> shared.RespondAgain:
    """A function that answers a repetition (the same idempotency key) with the table as the first request left it."""

    def respond(pointer: Sequence[Json]) -> Response:
        state = call.catalog.tables.state_of_repeated_request(call.grant, pointer, levels, name)
        return _table_response(call.catalog.responses.table(call.grant, state))

    return shared.responder_from_pointer(respond)
