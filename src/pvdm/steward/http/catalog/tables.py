"""The catalog's tables, as the Iceberg REST protocol has them."""

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
from pvdm.steward.http.catalog.shared import BodyPart, CatalogPart, LevelsPart, OncePart, PageSize, PageToken, TablePart
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
def create(once: OncePart, levels: LevelsPart, body: BodyPart) -> Response:
    """Create a table. With `stage-create` only return the metadata document that the table would begin with."""
    catalog, grant, delegated = once.catalog, once.grant, _wants_credentials(once.request)
    if body.has_not_null("stage-create") and body.flag("stage-create"):
        staged = catalog.tables.stage_create(grant, levels, body.raw)
        return _table_response(catalog.responses.stage_create(grant, staged, delegated=delegated))

    def work(key: RequestKey | None) -> Response:
        state = catalog.tables.create(grant, levels, body.raw, key=key)
        return _changed_response(once, state, delegated=delegated)

    return once.respond(work, _responder(once, levels, body.text("name")))


@router.post("/catalog/v1/namespaces/{namespace}/register")
def register(once: OncePart, levels: LevelsPart, body: BodyPart) -> Response:
    """Register a table from its metadata file."""
    name, location = body.text("name"), body.text("metadata-location")
    overwrite = body.has_not_null("overwrite") and body.flag("overwrite")

    def work(key: RequestKey | None) -> Response:
        tables = once.catalog.tables
        state = tables.register(once.grant, levels, name, location, overwrite=overwrite, key=key)
        return _changed_response(once, state)

    return once.respond(work, _responder(once, levels, name))


@router.get(_TABLE)
@fast_path(query=("snapshots", "referenced-by"))
def load(request: Request) -> Response:
    """The table as the caller may see it; 304 if the caller has this version already."""
    catalog, grant, levels, table = shared.requested_table(request)
    mode = shared.requested_snapshots(request)
    state = catalog.tables.load(grant, levels, table)
    response = catalog.responses.table(grant, state, mode, delegated=_wants_credentials(request))
    client_etags = {
        tag.strip().removeprefix("W/") for tag in (header(request.scope, b"if-none-match") or "").split(",")
    }
    if not response.vended and response.etag in client_etags:
        return Response(status_code=304, headers={"etag": response.etag})
    return _table_response(response)


@router.get(f"{_TABLE}/credentials")
def credentials(catalog: CatalogPart, grant: Caller, levels: LevelsPart, table: TablePart) -> Response:
    """Credentials for the table's files, if this Steward vends any."""
    return shared.bytes_response(catalog.responses.credentials(grant, catalog.tables.load(grant, levels, table)))


@router.head(_TABLE)
@fast_path()
def exists(request: Request) -> Response:
    """Whether the table exists."""
    catalog, grant, levels, table = shared.requested_table(request)
    catalog.tables.require_exists(grant, levels, table)
    return shared.empty_response()


@router.post(_TABLE)
@fast_path()
def commit(request: Request) -> Response:
    """Change the table's document."""
    catalog, grant, levels, table = shared.requested_table(request)
    change = shared.read_change("table", levels, table, shared.json_body(request))
    once = shared.Once(request, catalog, grant)

    def work(key: RequestKey | None) -> Response:
        (state,) = catalog.tables.commit(grant, [change], key=key)
        return _changed_response(once, state)

    return once.respond(work, _responder(once, levels, table))


@router.post(f"{_V1}/transactions/commit")
def transaction(once: OncePart, body: BodyPart) -> Response:
    """Change several tables, all or none."""
    body.array("table-changes")  # raises if it is missing, while `nodes` would find no changes
    nodes = body.nodes("table-changes")
    changes = [shared.read_change("table", *shared.identifier(node.node("identifier")), node) for node in nodes]
    return once.change(lambda key: once.catalog.tables.commit(once.grant, changes, key=key))


@router.delete(_TABLE)
def drop(
    once: OncePart,
    levels: LevelsPart,
    table: TablePart,
    purge: Annotated[bool, Query(alias="purgeRequested")] = False,
) -> Response:
    """Drop the table; with `purgeRequested` remove its files too."""
    tables = once.catalog.tables

    def work(key: RequestKey | None) -> Response:
        return _purge_response(table, tables.drop(once.grant, levels, table, purge=purge, key=key))

    def respond_again(facts: Mapping[str, object]) -> Response:
        match facts.get("purge"):
            case [str(location), str(domain)]:
                return _purge_response(table, tables.purge(location, domain))
        return shared.empty_response()

    return once.respond(work, respond_again)


def _purge_response(table: str, left: Leftover | None) -> Response:
    """An empty response, or the error `purge_incomplete` as one: not raised, since the table is dropped either way."""
    if left is None:
        return shared.empty_response()
    log_warning("purge_left", place=left.place, why=left.why)
    response = catalog_refusal(
        Code.PURGE_INCOMPLETE(f"{table} is dropped, but files of it are left in {left.place}", got=left.why)
    )
    return Response(response.body, response.status, dict(response.headers), "application/json")


@router.post(f"{_V1}/tables/rename")
def rename(once: OncePart, body: BodyPart) -> Response:
    """Rename a table."""
    source, target = shared.identifier(body.node("source")), shared.identifier(body.node("destination"))
    return once.change(lambda key: once.catalog.tables.rename(once.grant, source, target, key=key))


@router.post(f"{_TABLE}/metrics")
def metrics(catalog: CatalogPart, grant: Caller, levels: LevelsPart, table: TablePart, body: BodyPart) -> Response:
    """Accept a client's report of a scan or a commit; it is not stored."""
    body.text("report-type")
    catalog.tables.require_exists(grant, levels, table)
    return shared.empty_response()


def _wants_credentials(request: Request) -> bool:
    return "vended-credentials" in (header(request.scope, b"x-iceberg-access-delegation") or "")


def _changed_response(once: shared.Once, state: TableState, *, delegated: bool = False) -> Response:
    """The response to a change that was made; an error here becomes `StateUnknownError`, since nothing is undone."""
    with failures_mean_state_unknown():
        return _table_response(once.catalog.responses.table(once.grant, state, delegated=delegated))


def _table_response(response: TableResponse) -> Response:
    return shared.bytes_response(response.body, etag=response.etag)


def _responder(once: shared.Once, levels: Levels, name: str) -> shared.RespondAgain:
    def respond(pointer: Sequence[Json]) -> Response:
        state = once.catalog.tables.state_of_repeated_request(once.grant, pointer, levels, name)
        return _table_response(once.catalog.responses.table(once.grant, state))

    return shared.responder_from_pointer(respond)
