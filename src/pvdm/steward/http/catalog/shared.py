"""What the catalog's routes share: names in paths, bodies, pages, idempotency keys and responses."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from anyio.to_thread import run_sync
from fastapi import Depends, Path, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field, ValidationError

from pvdm import fault
from pvdm.catalog.catalog import Catalog
from pvdm.catalog.names import parse_levels, require_levels, require_name
from pvdm.catalog.namespaces import PAGE_ROWS_MAX
from pvdm.catalog.requests import RequestKey, failures_mean_state_unknown
from pvdm.catalog.responses import SnapshotMode
from pvdm.errors import Code, InputError, PvdmError, StateUnknownError
from pvdm.lake.format.json_document import Json, Node, dump_json, parse_json
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.record.tokens import Grant
from pvdm.steward.http.body import invalid_request
from pvdm.steward.http.dependencies import NotaryPart, notary_of
from pvdm.steward.http.request import context_of, grant_of, header, name_in

PAGE_TOKEN_MAX_CHARACTERS: Final = 16_384
BODY_READ_AT_ONCE_MAX_BYTES: Final = 8_192
JSON_TYPE: Final = "application/json"

_Again: TypeAlias = Callable[[Mapping[str, object]], Response]

PageToken: TypeAlias = Annotated[str | None, Query(alias="pageToken", max_length=PAGE_TOKEN_MAX_CHARACTERS)]
PageSize: TypeAlias = Annotated[int | None, Query(alias="pageSize", ge=1)]


async def _catalog(notary: NotaryPart) -> Catalog:
    return notary.catalog


async def _levels(namespace: Annotated[str, Path()]) -> Levels:
    return parse_levels(name_in(namespace))


async def _table(table: Annotated[str, Path()]) -> str:
    return require_name(name_in(table), "the table's name")


async def _body(request: Request) -> Node:
    # A small body is parsed in less time than it takes to start a thread.
    small = len(context_of(request.scope).body) <= BODY_READ_AT_ONCE_MAX_BYTES
    return body_in(request) if small else await run_sync(body_in, request)


def body_in(request: Request) -> Node:
    """The request's body, one JSON object."""
    return Node(parse_json(context_of(request.scope).body), "$")


def table_asked(request: Request) -> tuple[Catalog, Grant, Levels, str]:
    """The catalog, grant and table of a request on the fast path."""
    notary, grant = notary_of(request), grant_of(request)
    levels = parse_levels(name_in(request.path_params["namespace"]))
    return notary.catalog, grant, levels, require_name(name_in(request.path_params["table"]), "the table's name")


def snapshot_mode(request: Request) -> SnapshotMode:
    """Which snapshots are wanted. `referenced-by` is accepted, and gives no rights."""
    if not request.scope["query_string"]:
        return SnapshotMode.ALL
    try:
        return _LoadQuery.model_validate(dict(request.query_params)).snapshots
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False, include_context=False)
        raise invalid_request([{**each, "loc": ("query", *each["loc"])} for each in errors]) from None


class _LoadQuery(BaseModel):
    snapshots: SnapshotMode = SnapshotMode.ALL
    referenced_by: str | None = Field(default=None, alias="referenced-by", max_length=16_384)


CatalogPart: TypeAlias = Annotated[Catalog, Depends(_catalog)]
LevelsPart: TypeAlias = Annotated[Levels, Depends(_levels)]
TablePart: TypeAlias = Annotated[str, Depends(_table)]
BodyPart: TypeAlias = Annotated[Node, Depends(_body)]


def json_response(value: Json, *, etag: str | None = None) -> Response:
    """A JSON response."""
    return bytes_response(dump_json(value), etag=etag)


def bytes_response(body: bytes, *, etag: str | None = None) -> Response:
    """A JSON response from bytes."""
    return Response(body, media_type=JSON_TYPE, headers=None if etag is None else {"etag": etag})


def empty_response() -> Response:
    """A response without a body."""
    return Response(status_code=204)


@dataclass(frozen=True, slots=True)
class Once:
    """A request that is executed once: with the same key again it gets the response of the first one."""

    catalog: Catalog
    key: RequestKey | None

    @classmethod
    def of(cls, request: Request, catalog: Catalog, grant: Grant) -> Once:
        """The request with its key, if it has one; a key binds method, path, query and body."""
        key = header(request.scope, b"idempotency-key")
        if key is None:
            return cls(catalog, None)
        scope = request.scope
        line = f"{scope['method']} {scope['path']}?".encode() + scope["query_string"] + b"\n"
        return cls(catalog, catalog.requests.identify(grant, key, line + context_of(scope).body))

    def respond(self, work: Callable[[RequestKey | None], Response], again: _Again) -> Response:
        """Do the work; `again` makes the response of a repeated request, even if both come at once."""
        response = work(None) if self.key is None else self._work_once(self.key, work, again)
        with failures_mean_state_unknown():
            fault.point("catalog.before_answer")
        return response

    def change(self, work: Callable[[RequestKey | None], object]) -> Response:
        """Do work whose response has no body."""

        def done(key: RequestKey | None) -> Response:
            work(key)
            return empty_response()

        return self.respond(done, lambda _: empty_response())

    def _work_once(self, key: RequestKey, work: Callable[[RequestKey | None], Response], again: _Again) -> Response:
        earlier = self.catalog.requests.earlier(key)
        if earlier is None:
            try:
                return work(key)
            except StateUnknownError:
                raise  # a second look at the ledger does not make it known
            except PvdmError:
                # A repetition may have done it meanwhile; then this request failed only because it was done.
                earlier = self.catalog.requests.earlier(key)
                if earlier is None:
                    raise
        with failures_mean_state_unknown():  # the table may be renamed or dropped by now; the change was made
            return again(earlier)


def show_pointer(show: Callable[[Sequence[Json]], Response]) -> _Again:
    """The answer that the first request had, from the one file that it led to."""

    def again(facts: Mapping[str, object]) -> Response:
        pointers = facts.get("pointers")
        if not isinstance(pointers, list) or len(pointers) != 1:
            raise AssertionError("the request of a table or view keeps one pointer")
        return show(pointers[0])

    return again


def page_size(token: str | None, size: int | None) -> int | None:
    """The rows of one page; None, which is all, for a caller that asks for no pages."""
    if token is None and size is None:
        return None
    return min(size or PAGE_ROWS_MAX, PAGE_ROWS_MAX)


def page_token(last: Json) -> str:
    """The opaque token of the next page."""
    return base64.urlsafe_b64encode(dump_json(last)).decode("ascii").rstrip("=")


def names_page(
    levels: Levels, list_names: Callable[[str | None, int | None], Sequence[str]], token: str | None, size: int | None
) -> Response:
    """One page of a namespace's tables or views; `list_names` takes the last name before the page and a count."""
    count = page_size(token, size)
    # A name beyond the page means that there is another page.
    names = list_names(after_name(token), None if count is None else count + 1)
    body: dict[str, Json] = {"identifiers": [{"namespace": list(levels), "name": name} for name in names[:count]]}
    if count is not None and len(names) > count:
        body["next-page-token"] = page_token(names[count - 1])
    return json_response(body)


def after_of(token: str | None) -> Json:
    """The value of a page token; None for the first page."""
    if not token:
        return None
    try:
        padded = token + "=" * (-len(token) % 4)
        return parse_json(base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, InputError):
        raise Code.PAGE_TOKEN_INVALID() from None


def after_name(token: str | None) -> str | None:
    """A page token of names."""
    found = after_of(token)
    if found is None:
        return None
    if not isinstance(found, str):
        raise Code.PAGE_TOKEN_INVALID()
    return require_name(found, "the page token's name")


def after_levels(token: str | None) -> Levels | None:
    """A page token of namespaces."""
    found = after_of(token)
    if found is None:
        return None
    if not isinstance(found, list):
        raise Code.PAGE_TOKEN_INVALID()
    return require_levels([str(level) for level in found])


def identifier(node: Node) -> tuple[Levels, str]:
    """A table's identifier in a body."""
    return require_levels(list(node.string_list("namespace"))), require_name(node.text("name"), "the table's name")
