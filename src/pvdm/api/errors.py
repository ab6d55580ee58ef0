"""Errors in responses: their JSON form, their kinds, and what a caller may see of an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from pvdm.api.base import ResponseModel
from pvdm.errors import Code, PvdmError
from pvdm.errors.kinds import KINDS

ERROR_DETAILS_MAX: Final = 64
_DETAIL_NAME: Final = re.compile(r"[a-z0-9_]{1,64}")
# Details become keyword arguments of the error's class, so they cannot have the names of its own parameters.
_RESERVED_NAMES: Final = frozenset({"self", "code", "reason", "message", "expected", "got", "hint"})


def _keep_known_details(value: object) -> dict[str, str | int]:
    """Keep strings and integers with plain names; other details come from a newer Steward and are dropped."""
    if not isinstance(value, Mapping):
        return {}
    return {
        name: detail
        for name, detail in list(value.items())[:ERROR_DETAILS_MAX]
        if _DETAIL_NAME.fullmatch(name)
        and name not in _RESERVED_NAMES
        and isinstance(detail, str | int)
        and not isinstance(detail, bool)
    }


class ErrorView(ResponseModel):
    """An error: stable code and reason, what was expected and got, and one next step (`hint`)."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)  # a response has every field

    code: Annotated[str, Field(pattern="^[a-z0-9_]{1,64}$")]
    reason: Annotated[str, Field(pattern="^[a-z0-9_]{1,64}$")]
    message: str
    expected: str | None = None
    got: str | None = None
    hint: str | None = None
    details: Annotated[dict[str, str | int], BeforeValidator(_keep_known_details)] = Field(default_factory=dict)
    kind: Literal[
        "input",
        "verification",
        "rolled_back",
        "segment_ended",
        "conflict",
        "not_allowed",
        "state_unknown",
        "unavailable",
        "bug",
    ]
    request_id: Annotated[str, BeforeValidator(lambda value: "" if value is None else value)] = ""


class ErrorResponse(ResponseModel):
    """The body of an error response."""

    error: ErrorView


class OAuthErrorResponse(ResponseModel):
    """The body of an error response of the OAuth2 endpoint (RFC 6749 section 5.2)."""

    error: Literal[
        "invalid_request",
        "invalid_client",
        "unauthorized_client",
        "unsupported_grant_type",
        "temporarily_unavailable",
        "server_error",
    ]
    error_description: str


class RefusalView(ResponseModel):
    """Why verification or the gate refused, or which error stops the Steward's work now."""

    code: str
    reason: str
    message: str
    expected: str | None
    got: str | None
    hint: str | None

    @classmethod
    def of_error(cls, error: PvdmError) -> RefusalView:
        """The error as the caller may see it."""
        public = public_error(error)
        return cls(**{name: getattr(public, name) for name in cls.model_fields})


def kind_of(error: BaseException) -> str:
    """The kind of the error, by its class. An error whose class is not in `KINDS` is a bug."""
    return next((kind for kind, cls in KINDS.items() if isinstance(error, cls)), "bug")


def public_error(error: BaseException) -> PvdmError:
    """The error as the caller may see it. The text of a bug is only in the Steward's log."""
    if isinstance(error, PvdmError) and kind_of(error) != "bug":
        return error
    return Code.BUG("the Steward has a bug", hint="the Steward's log has the details under the request id")
