"""OAuth2 client credentials (RFC 6749) as Iceberg's REST clients use them, with OAuth2's errors."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request

from pvdm.api.errors import kind_of, public_error
from pvdm.api.service import ExchangedToken
from pvdm.errors import Code, PvdmError
from pvdm.model.fields import MICROS_PER_SECOND
from pvdm.model.role import AccessToken
from pvdm.steward.access import TOKEN_TEXT_MAX_CHARACTERS
from pvdm.steward.http.dependencies import LookupPart, NotaryPart
from pvdm.steward.http.errors import TOKEN_CODES, Refusal, error_headers, status_of
from pvdm.steward.http.limits import peer_of, token_identity
from pvdm.steward.http.request import context_of, header
from pvdm.steward.notary import Notary

PATH: Final = "/catalog/v1/oauth/tokens"
FORM_FIELDS_MAX: Final = 32
ACCESS_TOKEN_TYPE: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a name, no secret
_GRANT_TYPE: Final = "client_credentials"
_SINGLE_FIELDS: Final = frozenset({"grant_type", "client_id", "client_secret", "scope"})
# The statuses of three OAuth2 codes (RFC 6749). A response with any other OAuth2 code has the status of its error.
_STATUSES: Final = {"invalid_client": 401, "unauthorized_client": 400, "server_error": 500}

router = APIRouter()


@dataclass(frozen=True, slots=True, repr=False)
class _Client:
    """A client's credentials. The id may be missing: Iceberg's clients may send a secret alone."""

    client_id: str | None
    client_secret: str


@router.post(PATH, tags=["oauth"])
async def exchange(request: Request, notary: NotaryPart, lookup: LookupPart) -> ExchangedToken:
    """Exchange a long-lived token (its id as client id, its text as secret) for a short-lived one."""
    form = parse_form(context_of(request.scope).body)
    if "grant_type" not in form:
        raise _form_error("the form names no grant type", _GRANT_TYPE, "none")
    if form["grant_type"] != _GRANT_TYPE:
        raise Code.GRANT_TYPE_UNSUPPORTED(expected=_GRANT_TYPE, got="another")
    client = _read_client(form, header(request.scope, b"authorization"))
    # The request is charged to the token, not to the address, which all callers behind a proxy may share.
    parent = await lookup(client.client_secret, peer_of(request.scope))
    lookup.limiter.charge(token_identity(parent))
    return await run_sync(_exchange, notary, client, parent.token_id)


def _exchange(notary: Notary, client: _Client, token_id: str) -> ExchangedToken:
    token, grant = notary.access.exchange(client.client_id or token_id, client.client_secret)
    seconds_left = (grant.expires_micros - notary.clock.trusted_micros()) // MICROS_PER_SECOND
    return ExchangedToken(
        access_token=AccessToken(token.reveal()),
        token_type="bearer",  # noqa: S106 - a name
        issued_token_type=ACCESS_TOKEN_TYPE,
        expires_in=max(0, seconds_left),
    )


def parse_form(body: bytes) -> dict[str, str]:
    """The form's fields; unknown ones are ignored. Raises if one of `_SINGLE_FIELDS` occurs twice."""
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX, errors="strict")
    except ValueError:
        raise _form_error("the form cannot be read", "form fields in UTF-8") from None
    names = [name for name, _ in pairs]
    for name in _SINGLE_FIELDS:
        if names.count(name) > 1:
            raise _form_error("a field of the form occurs twice", f"one {name}")
    return dict(pairs)


def _read_client(form: Mapping[str, str], authorization: str | None) -> _Client:
    """The client's credentials, from the form or from HTTP Basic. If both are given, they must be equal.

    Iceberg's Java client may send both when it refreshes its token. An old bearer token in the header is ignored.
    """
    form_client = _Client(form.get("client_id") or None, form["client_secret"]) if form.get("client_secret") else None
    header_client = _read_basic_client(authorization)
    if form_client and header_client and form_client != header_client:
        raise _form_error("form and header name different clients", "one client")
    client = header_client or form_client
    if client is None:
        raise Code.CLIENT_SECRET_MISSING(expected="client_secret")
    return client


def _read_basic_client(authorization: str | None) -> _Client | None:
    if authorization is None or authorization[:6].lower() != "basic ":
        return None
    try:
        text = base64.b64decode(authorization[6:].strip(), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        text = ""
    client_id, colon, secret = text.partition(":")
    if not colon or not secret or len(secret) > TOKEN_TEXT_MAX_CHARACTERS:
        raise Code.CLIENT_SECRET_MISSING(expected="Basic id:secret", got="another")
    return _Client(client_id or None, secret)


def _form_error(message: str, expected: str, got: str | None = None) -> PvdmError:
    return Code.REQUEST_INVALID(message, reason="form_malformed", expected=expected, got=got)


def refusal(error: BaseException) -> Refusal:
    """The error in the form of RFC 6749, for OAuth2 clients."""
    code, public = _oauth_code(error), public_error(error)
    status = _STATUSES.get(code) or status_of(error)
    text = str(public) if public.hint is None else f"{public}; {public.hint}"
    body = json.dumps({"error": code, "error_description": _replace_forbidden(f"{public.reason}: {text}")}).encode()
    return Refusal(status, error_headers(error, status, 'Basic realm="pvdm"'), body)


def _replace_forbidden(text: str) -> str:
    """The text without characters that RFC 6749 section 5.2 forbids in a description; each becomes an apostrophe."""
    return "".join(each if " " <= each <= "~" and each not in '"\\' else "'" for each in text)[:1_000]


def _oauth_code(error: BaseException) -> str:
    reason = error.reason if isinstance(error, PvdmError) else ""
    match kind_of(error):
        case "input":
            return "unsupported_grant_type" if reason == Code.GRANT_TYPE_UNSUPPORTED else "invalid_request"
        case "not_allowed" if reason in TOKEN_CODES or reason == Code.CLIENT_SECRET_MISSING:
            return "invalid_client"
        case "not_allowed":
            return "unauthorized_client"
        case "unavailable":
            return "temporarily_unavailable"
        case _:
            return "server_error"
