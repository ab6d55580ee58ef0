"""Reads the Steward's responses into the models of `pvdm.api`, and its errors into pvdm's errors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from pvdm.api.base import FROM_WIRE, error_field, expected_value
from pvdm.api.errors import ErrorResponse, ErrorView
from pvdm.errors import Code, PvdmError, comparison
from pvdm.errors.kinds import KINDS

ERROR_TEXT_MAX_CHARACTERS: Final = 4_096

_M = TypeVar("_M", bound=BaseModel)
# JSON's names of the types that pydantic names after Python's.
_JSON_TYPES: Final = {"model_type": "an object", "dict_type": "an object", "tuple_type": "an array"}
_JSON_VALUES: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "a boolean",
    int: "another integer",
    float: "a number with a fraction",
    str: "another string",
    dict: "an object",
}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def parse(body: bytes, what: str) -> object:
    """The one JSON value of the body; errors call it `what`. Raises for invalid JSON, NaN and repeated keys."""
    try:
        return json.loads(body.decode(), object_pairs_hook=_require_distinct_keys, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        del body  # it may hold a secret, which a traceback would show
    raise unreadable(what, "one JSON value", "something else")


def read_response(model: type[_M], value: object) -> _M:
    """The response as the model; fields that only a newer Steward knows are ignored.

    Raises `steward_answer_invalid` with the name of the first wrong field, without its value.
    """
    try:
        return model.model_validate(value, context=FROM_WIRE, extra="ignore")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        got = _json_type(error.errors(include_url=False)[0])
        del value  # it may hold a secret, which a traceback would show
    expected = _JSON_TYPES.get(first["type"], expected_value(first))
    raise unreadable(error_field(first) or "the response", expected, got)


def unreadable(what: str, expected: str, got: str) -> PvdmError:
    """The error for a response that this client cannot read; `what` is the response, or a field of it."""
    return Code.STEWARD_ANSWER_INVALID(f"the Steward's response cannot be read: {what}", expected=expected, got=got)


def read_error(body: bytes, *, request_id: str) -> PvdmError:
    """The Steward's error in a response's body; `request_id` is used if the body names none."""
    return to_error(read_response(ErrorResponse, parse(body, "the error")).error, request_id=request_id)


def to_error(view: ErrorView, *, request_id: str) -> PvdmError:
    """The Steward's error, with its class, reason, texts and details; the request id is among the details."""
    expected, got, hint = (None if text is None else _plain(text) for text in (view.expected, view.got, view.hint))
    # The message in the response ends with what was expected and got; the error adds that itself.
    tail = comparison(expected, got)
    message = _plain(view.message).removesuffix(f": {tail}") if tail else _plain(view.message)
    details = {name: _plain(detail) if isinstance(detail, str) else detail for name, detail in view.details.items()}
    details["request_id"] = _plain(view.request_id or request_id)[:64]
    return KINDS[view.kind](view.reason, message, expected=expected, got=got, hint=hint, **details)


def _plain(text: str) -> str:
    """The text, cut to its maximum length, with characters that control a terminal replaced."""
    return _CONTROL.sub("�", text[:ERROR_TEXT_MAX_CHARACTERS])


def _json_type(error: Mapping[str, object]) -> str:
    """The JSON type of the value that a validation error is about, never the value."""
    return "no such field" if error["type"] == "missing" else _JSON_VALUES.get(type(error["input"]), "an array")


def _require_distinct_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError
    return value


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(text)
