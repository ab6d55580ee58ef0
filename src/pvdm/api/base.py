"""The base classes and field types of all requests and responses of the Steward's API.

Times are integers, in microseconds since 1970. Integers of the type `DecimalText` are sent as decimal text, since many
JSON readers round integers of 64 bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    StrictBool,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from pvdm.model.fields import LONG_MAX

REASON_MAX_CHARACTERS: Final = 256
PAGE_ROWS_MAX: Final = 1_000
TABLE_NAME_MAX_CHARACTERS: Final = 4_096

HEX_16_BYTES: Final = "^[0-9a-f]{32}$"
HEX_32_BYTES: Final = "^[0-9a-f]{64}$"
# Not dots alone: clients remove a segment of dots from a path. The pattern has no length, which a field gives.
WORKLOAD_ID: Final = r"^\.*[A-Za-z0-9_-][A-Za-z0-9._-]*$"
WORKLOAD_ID_MAX_CHARACTERS: Final = 128
WORKER_NAME: Final = "^[A-Za-z0-9._:-]{1,128}$"
UUID: Final = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
# Text without control characters, with a visible character (not a space, and not a character of zero width).
PLAIN: Final = (
    r"^[^\u0000-\u001f\u007f-\u009f]*"
    r"[!-~\u00a1-\u00ac\u00ae-\u167f\u1681-\u1fff\u2010-\u2027\u2030-\u205e\u2070-\u2fff\u3001-\ud7ff\uf900-\ufdff\uff01-\uffdc]"
    r"[^\u0000-\u001f\u007f-\u009f]*$"
)
# What error messages say in place of the pattern.
PATTERN_DESCRIPTIONS: Final[Mapping[str, str]] = {
    HEX_16_BYTES: "32 lower-case hexadecimal digits",
    HEX_32_BYTES: "64 lower-case hexadecimal digits",
    WORKLOAD_ID: "1 to 128 letters (A to Z, a to z), digits, dots, underscores and hyphens, not dots alone",
    WORKER_NAME: "1 to 128 letters (A to Z, a to z), digits, dots, underscores, colons and hyphens",
    UUID: "a UUID in lower case",
    PLAIN: "some plain text on one line",
}
# The validation context for a received body: values must have JSON's types. Without it the model's types are valid too.
FROM_WIRE: Final = "from the wire"
FIELD_NAME_MAX_CHARACTERS: Final = 64

_DECIMAL: Final = re.compile(r"^(0|[1-9][0-9]{0,18})$")
_PATTERN: Final = re.compile(r"should match pattern '(.*)'\Z", re.DOTALL)


class RequestModel(BaseModel):
    """A request body: unknown fields are refused, and no value is converted to another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class ResponseModel(BaseModel):
    """A response body. The client ignores fields that it does not know; see `pvdm.client.responses`."""

    # Building is deferred, since most programs use few of the models.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def _read_decimal(value: object, info: ValidationInfo) -> object:
    """Convert decimal text to an integer; only a program that builds the model itself may pass an integer."""
    if isinstance(value, str):
        if _DECIMAL.fullmatch(value) and int(value) <= LONG_MAX:
            return int(value)
    elif isinstance(value, int) and not isinstance(value, bool) and info.context is not FROM_WIRE:
        return value
    raise PydanticCustomError("decimal", "Input should be a decimal text of at most 2^63-1")


RandomHex: TypeAlias = Annotated[str, Field(pattern=HEX_16_BYTES)]
WorkloadId: TypeAlias = Annotated[str, Field(max_length=WORKLOAD_ID_MAX_CHARACTERS, pattern=WORKLOAD_ID)]
Sha256: TypeAlias = Annotated[str, Field(pattern=HEX_32_BYTES)]
Reason: TypeAlias = Annotated[str, Field(min_length=1, max_length=REASON_MAX_CHARACTERS, pattern=PLAIN)]
TableName: TypeAlias = Annotated[str, Field(min_length=1, max_length=TABLE_NAME_MAX_CHARACTERS, pattern=PLAIN)]
DecimalText: TypeAlias = Annotated[
    int,
    BeforeValidator(_read_decimal),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": _DECIMAL.pattern}),
]
_WHOLE_NUMBER = (Field(strict=True, ge=0, le=LONG_MAX), WithJsonSchema({"type": "integer", "minimum": 0}))
Count: TypeAlias = Annotated[int, *_WHOLE_NUMBER]
Micros: TypeAlias = Annotated[int, *_WHOLE_NUMBER]
Flag: TypeAlias = StrictBool
ProjectionWord: TypeAlias = Literal["identity", "content"]


@dataclass(frozen=True, slots=True)
class SentAs:
    """Field metadata: the value is sent as the type `wire`, which `read` and `write` convert."""

    wire: Any
    read: Callable[[Any, ValidationInfo], object]
    write: Callable[[Any], object]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Accept a value of the field's class, except in a received body; read any other value as the type `wire`."""
        wire = handler.generate_schema(self.wire)
        field_class = getattr(source, "__origin__", source)

        def validate(value: object, inner: core_schema.ValidatorFunctionWrapHandler, info: Any) -> object:
            is_converted = isinstance(value, field_class) and info.context is not FROM_WIRE
            return value if is_converted else self.read(inner(value), info)

        return core_schema.with_info_wrap_validator_function(
            validate,
            wire,
            serialization=core_schema.plain_serializer_function_ser_schema(self.write, return_schema=wire),
        )


class ReasonRequest(RequestModel):
    """The reason for a change; it is written to the step log."""

    reason: Reason


def error_field(error: Mapping[str, Any]) -> str:
    """The field that a validation error is about, such as `attempts.0.proof_id`; empty for the whole body."""
    return ".".join(ascii(part).strip("'")[:FIELD_NAME_MAX_CHARACTERS] for part in error["loc"])


def expected_value(error: Mapping[str, Any]) -> str:
    """What a validation error expected, without the value that it got and without details after a comma."""
    pattern = _PATTERN.search(str(error["msg"]))
    if pattern is not None:
        return PATTERN_DESCRIPTIONS.get(pattern[1], f"text of the form {pattern[1]}")
    text = str(error["msg"]).partition(",")[0]
    return text[:1].lower() + text[1:]
