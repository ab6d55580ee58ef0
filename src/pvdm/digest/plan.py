"""Digest plans: which columns are hashed and how, as target schema, projections, mode and construction."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pvdm.errors import Code, PvdmError
from pvdm.model.projection import Projection, ProjectionName, content
from pvdm.model.schema import DecimalType, GeoType, Kind, PrimitiveType, Schema
from pvdm.model.secret import DigestKey


class Mode(Enum):
    """How values are normalized (spec/canonical.md section 2)."""

    STORED = "stored"
    PORTABLE = "portable"


class Construction(Enum):
    """The keyed hash of one canonical row, which is an element of a digest's sum (spec/digest.md section 3)."""

    HMAC_SHA256 = "hmac-sha256"
    BLAKE3 = "blake3"


@dataclass(frozen=True, slots=True)
class Plan:
    """A valid digest plan, for the native kernel and the Python reference. It is checked before any row is read."""

    schema: Schema
    projections: tuple[Projection, ...]
    mode: Mode = Mode.STORED
    construction: Construction = Construction.HMAC_SHA256

    def __post_init__(self) -> None:
        _check_parts(self)
        if not self.projections:
            raise Code.PROJECTION_INVALID(reason="projection_empty", got="none")
        names = [projection.name for projection in self.projections]
        if len(set(names)) != len(names):
            got = ", ".join(name.value for name in names)
            raise Code.PROJECTION_INVALID("a projection is given twice", expected="each at most once", got=got)
        for projection in self.projections:
            _check_coverage(self.schema, projection)
            _check_types(self.schema.select(projection.columns), self.mode)

    def projection(self, name: ProjectionName) -> Projection:
        """The projection of that name; raises `projection_unknown`."""
        for projection in self.projections:
            if projection.name is name:
                return projection
        raise Code.PROJECTION_INVALID(reason="projection_unknown", got=name.value)

    def projected_schema(self, name: ProjectionName) -> Schema:
        """The projected target schema."""
        return self.schema.select(self.projection(name).columns)

    def fingerprint(self, name: ProjectionName) -> bytes:
        """The schema fingerprint of one projection."""
        return fingerprint(self.projected_schema(name))


def _check_parts(plan: Plan) -> None:
    """Refuse fields of the wrong type, such as a string for a mode, which would fail much later."""
    for value, kind in (
        (plan.schema, Schema),
        (plan.mode, Mode),
        (plan.construction, Construction),
        *((projection, Projection) for projection in plan.projections),
    ):
        if not isinstance(value, kind):
            raise Code.PLAN_INVALID(expected=f"a {kind.__name__}", got=type(value).__name__)


def _check_coverage(schema: Schema, projection: Projection) -> None:
    """Require that the columns of `content` and its exclusions together are all columns of the schema."""
    if projection.name is ProjectionName.CONTENT:
        exclude = {exclusion.column: exclusion.reason for exclusion in projection.excluded}
        content(schema, columns=projection.columns, exclude=exclude)
    elif projection.excluded:
        raise Code.PROJECTION_INVALID("only content excludes columns", expected="none", got=projection.name.value)


def _check_types(schema: Schema, mode: Mode) -> None:
    for path, slot in schema.walk():
        got = str(slot.type)
        match slot.type:
            case DecimalType(_, _, None) if mode is Mode.PORTABLE:
                message = f"no scale of decimal {path!r} is declared"
                hint = f"declare it: schema.with_scales({{{path!r}: …}})"
                raise Code.PLAN_INVALID(message, reason="portable_scale_undeclared", got=got, hint=hint, column=path)
            case DecimalType(_, _, int()) if mode is Mode.STORED:
                message = f"a scale of decimal {path!r} is declared"
                hint = "leave with_scales out, or use portable mode"
                raise Code.SCHEMA_INVALID(message, expected="none in stored mode", got=got, hint=hint, column=path)
            case PrimitiveType(Kind.FLOAT | Kind.DOUBLE) | GeoType() if mode is Mode.PORTABLE:
                message = f"{path!r} is, or contains, binary floats"
                raise Code.PLAN_INVALID(message, reason="portable_float", got=got, column=path)
            case _:
                pass


def fingerprint(schema: Schema) -> bytes:
    """SHA-256 over the schema's canonical JSON (spec/digest.md section 1)."""
    text = json.dumps(schema.to_json(), ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(b"pvdm/schema/v1\0" + text.encode()).digest()


KEY_CHECK_BYTES: Final = 16


def element_key(key: DigestKey, plan: Plan, name: ProjectionName) -> bytes:
    """The key of the element hash. It differs for each construction, mode, projection and schema."""
    return _derive(key, b"pvdm/element/v1\0", plan, name)


def key_check(key: DigestKey, plan: Plan, name: ProjectionName) -> bytes:
    """A value that differs for different keys and discloses nothing about them."""
    return _derive(key, b"pvdm/key-check/v1\0", plan, name)[:KEY_CHECK_BYTES]


def _derive(key: DigestKey, label: bytes, plan: Plan, name: ProjectionName) -> bytes:
    names = (plan.construction.value, plan.mode.value, name.value)
    context = b"".join(framed(part.encode()) for part in names) + framed(plan.fingerprint(name))
    return hmac.digest(key.reveal(), label + context, hashlib.sha256)


def framed(part: bytes) -> bytes:
    """F(x) of spec/digest.md: the length as uvarint, then the bytes."""
    return uvarint(len(part)) + part


def uvarint(number: int) -> bytes:
    """Unsigned LEB128, shortest form (spec/canonical.md section 4)."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


class ByteReader:
    """Reads bytes from the front. If too few are left, it raises the error that `malformed(expected, got)` returns."""

    def __init__(self, data: bytes, malformed: Callable[[str, str], PvdmError]) -> None:
        self._data = data
        self._at = 0
        self._malformed = malformed

    def take(self, size: int) -> bytes:
        """The next bytes."""
        part = self._data[self._at : self._at + size]
        if len(part) != size:
            raise self._malformed(f"{size} more bytes", str(len(part)))
        self._at += size
        return part

    def number(self, width: int) -> int:
        """The next unsigned big-endian number."""
        return int.from_bytes(self.take(width), "big")

    def rest(self) -> bytes:
        """All bytes that are left."""
        return self.take(len(self._data) - self._at)
