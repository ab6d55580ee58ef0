"""The catalog's tables, as the Iceberg REST protocol has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from pvdm.catalog.catalog import Catalog
from pvdm.catalog.commit import Change
from pvdm.catalog.purge import Leftover
from pvdm.catalog.requests import RequestKey, failures_mean_state_unknown
from pvdm.catalog.responses import TableResponse
from pvdm.catalog.state import TableState
from pvdm.errors import Code
from pvdm.lake.format.json_document import Node
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.record.tokens import Grant
from pvdm.steward.http.catalog.shared import (
    BodyPart,
    CatalogPart,
    LevelsPart,
    Once,
    PageSize,
    PageToken,
    TablePart,
    body_in,
    bytes_response,
    empty_response,
    identifier,
    names_page,
    show_pointer,
    snapshot_mode,
    table_asked,
)
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
    return names_page(
        levels, lambda after, count: catalog.tables.page(grant, levels, after=after, count=count), token, size
    )


@router.post(_TABLES)
def create(request: Request, catalog: CatalogPart, grant: Caller, levels: LevelsPart, body: BodyPart) -> Response:
    """A new table, or the document that it would begin with."""
    if body.has_not_null("stage-create") and body.flag("stage-create"):
        made = catalog.tables.staged(grant, levels, body.raw)
        return _table_response(catalog.responses.staged(grant, made, delegated=_delegated(request)))

    def work(key: RequestKey | None) -> Response:
        made = catalog.tables.create(grant, levels, body.raw, idempotency_key=key)
        return _changed(catalog, grant, made, delegated=_delegated(request))

    return Once.of(request, catalog, grant).respond(work, _again(catalog, grant, levels, body.text("name")))


@router.post("/catalog/v1/namespaces/{namespace}/register")
def register(request: Request, catalog: CatalogPart, grant: Caller, levels: LevelsPart, body: BodyPart) -> Response:
    """A table from its metadata file."""
    name, location = body.text("name"), body.text("metadata-location")
    overwrite = body.has_not_null("overwrite") and body.flag("overwrite")

    def work(key: RequestKey | None) -> Response:
        made = catalog.tables.register(grant, levels, name, location, overwrite=overwrite, idempotency_key=key)
        return _changed(catalog, grant, made)

    return Once.of(request, catalog, grant).respond(work, _again(catalog, grant, levels, name))


@router.get(_TABLE)
@fast_path(query=("snapshots", "referenced-by"))
def load(request: Request) -> Response:
    """The table as the caller may see it; nothing if the caller has just that already."""
    catalog, grant, levels, table = table_asked(request)
    mode = snapshot_mode(request)
    state = catalog.tables.load(grant, levels, table)
    response = catalog.responses.table(grant, state, mode, delegated=_delegated(request))
    held = {tag.strip().removeprefix("W/") for tag in (header(request.scope, b"if-none-match") or "").split(",")}
    if not response.vended and response.etag in held:
        return Response(status_code=304, headers={"etag": response.etag})
    return _table_response(response)


@router.get(f"{_TABLE}/credentials")
def credentials(catalog: CatalogPart, grant: Caller, levels: LevelsPart, table: TablePart) -> Response:
    """Credentials for the table's files, if this Steward vends any."""
    return bytes_response(catalog.responses.credentials(grant, catalog.tables.load(grant, levels, table)))


@router.head(_TABLE)
@fast_path()
def exists(request: Request) -> Response:
    """Whether it is there."""
    catalog, grant, levels, table = table_asked(request)
    catalog.tables.require(grant, levels, table)
    return empty_response()


@router.post(_TABLE)
@fast_path()
def commit(request: Request) -> Response:
    """Change the table's document."""
    catalog, grant, levels, table = table_asked(request)
    body = body_in(request)
    if body.has_not_null("identifier") and identifier(body.node("identifier")) != (levels, table):
        raise Code.IDENTIFIER_DIFFERS("path and body name different tables", expected="one table")

    def work(key: RequestKey | None) -> Response:
        (state,) = catalog.tables.commit(grant, [_change(levels, table, body)], idempotency_key=key)
        return _changed(catalog, grant, state)

    return Once.of(request, catalog, grant).respond(work, _again(catalog, grant, levels, table))


@router.post(f"{_V1}/transactions/commit")
def transaction(request: Request, catalog: CatalogPart, grant: Caller, body: BodyPart) -> Response:
    """Change several tables, all or none."""
    body.array("table-changes")
    changes = [_change(*identifier(node.node("identifier")), node) for node in body.nodes("table-changes")]
    return Once.of(request, catalog, grant).change(
        lambda key: catalog.tables.commit(grant, changes, idempotency_key=key)
    )


@router.delete(_TABLE)
def drop(
    request: Request,
    catalog: CatalogPart,
    grant: Caller,
    levels: LevelsPart,
    table: TablePart,
    purge: Annotated[bool, Query(alias="purgeRequested")] = False,
) -> Response:
    """End the table, with its files if the caller wants that."""

    def work(key: RequestKey | None) -> Response:
        return _purged(table, catalog.tables.drop(grant, levels, table, purge=purge, idempotency_key=key))

    def again(facts: Mapping[str, object]) -> Response:
        match facts.get("purge"):
            case [str(location), str(domain)]:
                return _purged(table, catalog.tables.purge(location, domain))
        return empty_response()

    return Once.of(request, catalog, grant).respond(work, again)


def _purged(table: str, left: Leftover | None) -> Response:
    """Success only if no file is left; the table is dropped either way, so that this is an answer and no error."""
    if left is None:
        return empty_response()
    log_warning("purge_left", place=left.place, why=left.why)
    response = catalog_refusal(
        Code.PURGE_INCOMPLETE(f"{table} is dropped, but files of it are left in {left.place}", got=left.why)
    )
    return Response(response.body, response.status, dict(response.headers), "application/json")


@router.post(f"{_V1}/tables/rename")
def rename(request: Request, catalog: CatalogPart, grant: Caller, body: BodyPart) -> Response:
    """Give a table another name."""
    source, target = identifier(body.node("source")), identifier(body.node("destination"))
    return Once.of(request, catalog, grant).change(
        lambda key: catalog.tables.rename(grant, source, target, idempotency_key=key)
    )


@router.post(f"{_TABLE}/metrics")
def metrics(catalog: CatalogPart, grant: Caller, levels: LevelsPart, table: TablePart, body: BodyPart) -> Response:
    """A client's report of a scan or a commit: read, and not kept."""
    body.text("report-type")
    catalog.tables.require(grant, levels, table)
    return empty_response()


def _change(levels: Levels, name: str, body: Node) -> Change:
    requirements = body.array("requirements") if body.has_not_null("requirements") else []
    return Change(levels, name, requirements, body.array("updates"))


def _delegated(request: Request) -> bool:
    """Whether the client wants credentials with the table."""
    return "vended-credentials" in (header(request.scope, b"x-iceberg-access-delegation") or "")


def _table(catalog: Catalog, grant: Grant, state: TableState, *, delegated: bool = False) -> Response:
    return _table_response(catalog.responses.table(grant, state, delegated=delegated))


def _changed(catalog: Catalog, grant: Grant, state: TableState, *, delegated: bool = False) -> Response:
    """The response to a change that was made; an error here must not read as if nothing was changed."""
    with failures_mean_state_unknown():
        return _table(catalog, grant, state, delegated=delegated)


def _table_response(response: TableResponse) -> Response:
    return bytes_response(response.body, etag=response.etag)


def _again(catalog: Catalog, grant: Grant, levels: Levels, name: str) -> Callable[[Mapping[str, object]], Response]:
    return show_pointer(
        lambda pointer: _table(catalog, grant, catalog.tables.state_of_repeated_request(grant, pointer, levels, name))
    )
