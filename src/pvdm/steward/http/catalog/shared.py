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
from pvdm.catalog.commit import Change
from pvdm.catalog.names import parse_levels, require_levels, require_name
from pvdm.catalog.namespaces import PAGE_ROWS_MAX
from pvdm.catalog.requests import RequestKey, failures_mean_state_unknown
from pvdm.catalog.responses import SnapshotMode
from pvdm.errors import Code, InputError, PvdmError, StateUnknownError
from pvdm.lake.format.json_document import Json, Node, dump_json, parse_json
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.record.tokens import Grant
from pvdm.steward.http.body import invalid_request_error
from pvdm.steward.http.dependencies import Caller, NotaryPart, notary_of
from pvdm.steward.http.request import context_of, decode_name, grant_of, header

PAGE_TOKEN_MAX_CHARACTERS: Final = 16_384
BODY_PARSED_INLINE_MAX_BYTES: Final = 8_192
JSON_TYPE: Final = "application/json"

# Makes the response to a repeated request from the facts that the first request stored in the ledger.
RespondAgain: TypeAlias = Callable[[Mapping[str, object]], Response]

PageToken: TypeAlias = Annotated[str | None, Query(alias="pageToken", max_length=PAGE_TOKEN_MAX_CHARACTERS)]
PageSize: TypeAlias = Annotated[int | None, Query(alias="pageSize", ge=1)]


async def _catalog(notary: NotaryPart) -> Catalog:
    return notary.catalog


async def _levels(namespace: Annotated[str, Path()]) -> Levels:
    return parse_levels(decode_name(namespace))


async def _table(table: Annotated[str, Path()]) -> str:
    return require_name(decode_name(table), "the table's name")


async def _body(request: Request) -> Node:
    # A small body is parsed in less time than it takes to start a thread.
    is_small = len(context_of(request.scope).body) <= BODY_PARSED_INLINE_MAX_BYTES
    return json_body(request) if is_small else await run_sync(json_body, request)


def json_body(request: Request) -> Node:
    """The request's body. Raises `InputError` unless it is a JSON object."""
    return Node(parse_json(context_of(request.scope).body), "$")


def requested_table(request: Request) -> tuple[Catalog, Grant, Levels, str]:
    """The catalog, the caller's grant, the table's namespace and its name, for routes without FastAPI's injection."""
    notary, grant = notary_of(request), grant_of(request)
    levels = parse_levels(decode_name(request.path_params["namespace"]))
    return notary.catalog, grant, levels, require_name(decode_name(request.path_params["table"]), "the table's name")


def requested_snapshots(request: Request) -> SnapshotMode:
    """The `snapshots` parameter of the query; `referenced-by` is accepted and has no effect."""
    if not request.scope["query_string"]:
        return SnapshotMode.ALL
    try:
        return _LoadQuery.model_validate(dict(request.query_params)).snapshots
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False, include_context=False)
        raise invalid_request_error([{**each, "loc": ("query", *each["loc"])} for each in errors]) from None


class _LoadQuery(BaseModel):
    snapshots: SnapshotMode = SnapshotMode.ALL
    referenced_by: str | None = Field(default=None, alias="referenced-by", max_length=16_384)


CatalogPart: TypeAlias = Annotated[Catalog, Depends(_catalog)]
LevelsPart: TypeAlias = Annotated[Levels, Depends(_levels)]  # the namespace in the path, as a tuple of its levels
TablePart: TypeAlias = Annotated[str, Depends(_table)]
BodyPart: TypeAlias = Annotated[Node, Depends(_body)]


def json_response(value: Json) -> Response:
    """A JSON response."""
    return bytes_response(dump_json(value))


def bytes_response(body: bytes, *, etag: str | None = None) -> Response:
    """A JSON response from bytes."""
    return Response(body, media_type=JSON_TYPE, headers=None if etag is None else {"etag": etag})


def empty_response() -> Response:
    """A response without a body."""
    return Response(status_code=204)


@dataclass(frozen=True, slots=True, repr=False)
class IdempotentCall:
    """A request whose work is done once: a repetition with the same idempotency key gets the first response."""

    request: Request
    catalog: Catalog
    grant: Grant

    def respond(self, work: Callable[[RequestKey | None], Response], respond_again: RespondAgain) -> Response:
        """Do the work and return its response. If it was done before, return the response of `respond_again`."""
        key = self._idempotency_key()
        response = work(None) if key is None else self._work_once(key, work, respond_again)
        with failures_mean_state_unknown():  # the work is done
            fault.point("catalog.before_answer")
        return response

    def change(self, work: Callable[[RequestKey | None], object]) -> Response:
        """Do work whose response has no body."""

        def work_without_response(key: RequestKey | None) -> Response:
            work(key)
            return empty_response()

        return self.respond(work_without_response, lambda _: empty_response())

    def _idempotency_key(self) -> RequestKey | None:
        """The request's idempotency key, if it has one; it is valid for one method, path, query and body."""
        scope = self.request.scope
        key = header(scope, b"idempotency-key")
        if key is None:
            return None
        line = f"{scope['method']} {scope['path']}?".encode() + scope["query_string"] + b"\n"
        return self.catalog.requests.identify(self.grant, key, line + context_of(scope).body)

    def _work_once(
        self, key: RequestKey, work: Callable[[RequestKey | None], Response], respond_again: RespondAgain
    ) -> Response:
        earlier = self.catalog.requests.find_earlier(key)
        if earlier is None:
            try:
                return work(key)
            except StateUnknownError:
                raise  # whether the work was done is unknown, so `respond_again` is not called
            except PvdmError:
                # A concurrent repetition may have done the work, and its change may be why this request failed.
                earlier = self.catalog.requests.find_earlier(key)
                if earlier is None:
                    raise
        with failures_mean_state_unknown():  # the change was made, but the table may be renamed or dropped by now
            return respond_again(earlier)


async def _call(request: Request, catalog: CatalogPart, grant: Caller) -> IdempotentCall:
    return IdempotentCall(request, catalog, grant)


CallPart: TypeAlias = Annotated[IdempotentCall, Depends(_call)]


def responder_from_pointer(respond: Callable[[Sequence[Json]], Response]) -> RespondAgain:
    """Make a `RespondAgain` that calls `respond` with the pointer (a JSON array) which the first request set."""

    def respond_again(facts: Mapping[str, object]) -> Response:
        pointers = facts.get("pointers")
        if not isinstance(pointers, list) or len(pointers) != 1:
            raise AssertionError("the change of one table or view has not stored one pointer")
        return respond(pointers[0])

    return respond_again


def read_change(kind: str, levels: Levels, name: str, body: Node) -> Change:
    """The change of one table or view (`kind`) in a body. Raises if path and body name different objects."""
    if body.has_not_null("identifier") and identifier(body.node("identifier")) != (levels, name):
        message = f"path and body name different {kind}s"
        raise Code.REQUEST_INVALID(message, reason="identifier_differs", expected=f"one {kind}")
    requirements = body.array("requirements") if body.has_not_null("requirements") else []
    return Change(levels, name, requirements, body.array("updates"))


def page_size(token: str | None, size: int | None) -> int | None:
    """How many rows one page has; None if the caller uses no pages and gets all rows."""
    if token is None and size is None:
        return None
    return min(size or PAGE_ROWS_MAX, PAGE_ROWS_MAX)


def page_token(last: Json) -> str:
    """The token of the page after the row `last`, opaque to clients."""
    return base64.urlsafe_b64encode(dump_json(last)).decode("ascii").rstrip("=")


def names_page(levels: Levels, list_names: Callable[..., list[str]], token: str | None, size: int | None) -> Response:
    """One page of a namespace's tables or views; `list_names` takes `after` and `count`."""
    count = page_size(token, size)
    # One name more than the page has: if it exists, there is another page.
    names = list_names(after=after_name(token), count=None if count is None else count + 1)
    body: dict[str, Json] = {"identifiers": [{"namespace": list(levels), "name": name} for name in names[:count]]}
    if count is not None and len(names) > count:
        body["next-page-token"] = page_token(names[count - 1])
    return json_response(body)


def _decode_page_token(token: str | None) -> Json:
    """The last row of the previous page, from the page token; None for the first page."""
    if not token:
        return None
    try:
        padded = token + "=" * (-len(token) % 4)
        return parse_json(base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, InputError):
        raise Code.REQUEST_INVALID(reason="page_token_invalid") from None


def after_name(token: str | None) -> str | None:
    """The name after which the page begins; None for the first page. Raises `page_token_invalid`."""
    last = _decode_page_token(token)
    if last is None:
        return None
    if not isinstance(last, str):
        raise Code.REQUEST_INVALID(reason="page_token_invalid")
    return require_name(last, "the page token's name")


def after_levels(token: str | None) -> Levels | None:
    """The namespace after which the page begins; None for the first page. Raises `page_token_invalid`."""
    last = _decode_page_token(token)
    if last is None:
        return None
    if not isinstance(last, list):
        raise Code.REQUEST_INVALID(reason="page_token_invalid")
    return require_levels([str(level) for level in last])


def identifier(node: Node) -> tuple[Levels, str]:
    """The namespace and name of a table or view in a body."""
    return require_levels(list(node.string_list("namespace"))), require_name(node.text("name"), "the name")
