"""The readable reference: canonical rows by spec/canonical.md, sections 4 to 7 and then 3, and the engine.

It is written to be compared with the specification; the native kernel is the fast implementation. `columns` reads Arrow
buffers and `variant` decodes variants; both return integers (floats as bits, decimals unscaled) and bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NoReturn

import pyarrow as pa
from blake3 import blake3

from pvdm.digest import variant
from pvdm.digest.arrow import ArrowSource, Shape, check_batch, holds_variant, is_shredded, read_source, variant_shredded
from pvdm.digest.columns import DOUBLE, SINGLE, Column, canonicalize_nan, open_column, require_within, widen
from pvdm.digest.plan import Construction, Mode, Plan, framed
from pvdm.digest.unicode14 import UNASSIGNED
from pvdm.errors import Code, InputError
from pvdm.model.projection import ProjectionName
from pvdm.model.schema import (
    ROW_SIZE_MAX_BYTES,
    DecimalType,
    Field,
    FixedType,
    GeoType,
    Inner,
    Kind,
    ListType,
    MapType,
    PrimitiveType,
    StructType,
    Type,
)

# --- Section 4: framing ---


class Tag(IntEnum):
    """The first byte of a cell."""

    NULL = 0x00
    BOOLEAN = 0x01
    INTEGER = 0x02
    DECIMAL = 0x03
    FLOAT = 0x04
    DOUBLE = 0x05
    DATE = 0x06
    TIME = 0x07
    TIMESTAMP = 0x08
    TIMESTAMPTZ = 0x09
    TIMESTAMP_NS = 0x0A
    TIMESTAMPTZ_NS = 0x0B
    STRING = 0x0C
    UUID = 0x0D
    FIXED = 0x0E
    BINARY = 0x0F
    STRUCT = 0x10
    LIST = 0x11
    MAP = 0x12
    VARIANT = 0x13
    OBJECT = 0x14
    GEOMETRY = 0x15
    GEOGRAPHY = 0x16
    TIME_NS = 0x17


NULL: Final = bytes((Tag.NULL,))


def frame(tag: Tag, body: bytes) -> bytes:
    """A cell that is not null: tag, length, bytes."""
    return bytes((tag,)) + framed(body)


def join(cells: Iterable[bytes]) -> bytes:
    """Concatenate cells. Raises if the row becomes too large."""
    joined = bytearray()
    for part in cells:
        joined += part
        require_row_size(len(joined))
    return bytes(joined)


def require_row_size(size: int) -> None:
    """Raise if a row exceeds the limit of section 8; called while it grows, so that it cannot exhaust the memory."""
    if size > ROW_SIZE_MAX_BYTES:
        raise Code.ROW_INVALID(reason="row_too_large", expected=f"at most {ROW_SIZE_MAX_BYTES} bytes", got="more")


# --- Section 5: values ---

_INTEGERS: Final = {
    Kind.INT: Tag.INTEGER,
    Kind.LONG: Tag.INTEGER,
    Kind.DATE: Tag.DATE,
    Kind.TIME: Tag.TIME,
    Kind.TIME_NS: Tag.TIME_NS,
    Kind.TIMESTAMP: Tag.TIMESTAMP,
    Kind.TIMESTAMPTZ: Tag.TIMESTAMPTZ,
    Kind.TIMESTAMP_NS: Tag.TIMESTAMP_NS,
    Kind.TIMESTAMPTZ_NS: Tag.TIMESTAMPTZ_NS,
}
_UNITS_PER_DAY: Final = {Kind.TIME: 86_400_000_000, Kind.TIME_NS: 86_400_000_000_000}


def scalar_cell(kind: Type, value: Any, mode: Mode) -> bytes:
    """The cell of a value that has no parts and is already of this type."""
    match kind:
        case PrimitiveType(Kind.BOOLEAN):
            return frame(Tag.BOOLEAN, b"true" if value else b"false")
        case PrimitiveType(primitive) if primitive in _INTEGERS:
            if primitive in _UNITS_PER_DAY and not 0 <= value < _UNITS_PER_DAY[primitive]:
                message, expected = "the time is not in one day", f"below {_UNITS_PER_DAY[primitive]}"
                raise InputError(Code.VALUE_OUT_OF_RANGE, message, expected=expected, got=str(value))
            return frame(_INTEGERS[primitive], str(value).encode())
        case DecimalType():
            return frame(Tag.DECIMAL, decimal_text(value, _written_scale(kind)))
        case PrimitiveType(Kind.FLOAT):
            return frame(Tag.FLOAT, canonicalize_nan(value, SINGLE).to_bytes(4, "big"))
        case PrimitiveType(Kind.DOUBLE):
            return frame(Tag.DOUBLE, canonicalize_nan(value, DOUBLE).to_bytes(8, "big"))
        case PrimitiveType(Kind.STRING):
            return frame(Tag.STRING, string_body(value, mode))
        case PrimitiveType(Kind.UUID):
            return frame(Tag.UUID, value)
        case PrimitiveType(Kind.BINARY):
            return frame(Tag.BINARY, value)
        case FixedType():
            return frame(Tag.FIXED, value)
        case GeoType(_, algorithm):
            return frame(Tag.GEOMETRY if algorithm is None else Tag.GEOGRAPHY, value)
    raise AssertionError(f"{kind} has parts, or only null as a value")


def decimal_text(unscaled: int, scale: int) -> bytes:
    """Section 5.2: `scale` digits after the point, at least one before it, no sign on zero."""
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    point = len(digits) - scale
    return (sign + digits[:point] + ("." + digits[point:] if scale else "")).encode()


def _written_scale(kind: DecimalType) -> int:
    return kind.scale if kind.declared_scale is None else kind.declared_scale


def rescale(unscaled: int, scale: int, target: DecimalType) -> int:
    """Section 5.2: the unscaled integer at the scale that is written. Raises if digits would be lost or too many."""
    wanted = _written_scale(target)
    result: int
    result, lost = divmod(unscaled * 10**wanted, 10**scale)
    if lost:
        raise Code.ROW_INVALID(reason="decimal_not_exact", expected=f"{wanted} digits after the point", got="more")
    if abs(result) >= 10**target.precision:
        expected = f"at most {target.precision} digits"
        raise Code.ROW_INVALID(reason="decimal_too_wide", expected=expected, got=str(len(str(abs(result)))))
    return result


_RANGE_STARTS: Final = [first for first, _ in UNASSIGNED]
_RANGE_ENDS: Final = [last for _, last in UNASSIGNED]


def string_body(data: bytes, mode: Mode) -> bytes:
    """Sections 5.4 and 2: well-formed UTF-8, and in portable mode NFC of assigned code points."""
    try:
        decoded = data.decode()
    except UnicodeDecodeError as error:
        raise Code.ROW_INVALID(reason="string_not_utf8", got=f"a bad byte at {error.start}") from None
    if mode is Mode.STORED or decoded.isascii():
        return data
    for code in map(ord, decoded):
        range_index = bisect_right(_RANGE_STARTS, code) - 1
        if range_index >= 0 and code <= _RANGE_ENDS[range_index]:
            expected = "code points that Unicode 14.0.0 assigns"
            raise Code.ROW_INVALID(reason="string_unassigned_code_point", expected=expected, got=f"U+{code:04X}")
    return unicodedata.normalize("NFC", decoded).encode()


# --- Section 6: variant ---


def variant_cell(node: variant.Node, mode: Mode) -> bytes:
    """The inner cell of a decoded variant value."""
    match node:
        case None:
            return NULL
        case variant.Array(elements):
            return frame(Tag.LIST, join(variant_cell(element, mode) for element in elements))
        case variant.Object(fields):
            return frame(Tag.OBJECT, _object_body(fields, mode))
        case variant.Scalar(PrimitiveType(Kind.FLOAT | Kind.DOUBLE) as kind, _) if mode is Mode.PORTABLE:
            message, expected = "the variant has a binary float", "a decimal outside variants"
            raise Code.PLAN_INVALID(message, reason="portable_float", expected=expected, got=str(kind))
        case variant.Scalar(DecimalType() as kind, _) if mode is Mode.PORTABLE:
            raise Code.PLAN_INVALID("the variant has a decimal", reason="portable_scale_undeclared", got=str(kind))
        # Engines copy the bytes of a variant, so a NaN inside keeps its bits.
        case variant.Scalar(PrimitiveType(Kind.FLOAT), int(value)):
            return frame(Tag.FLOAT, value.to_bytes(4, "big"))
        case variant.Scalar(PrimitiveType(Kind.DOUBLE), int(value)):
            return frame(Tag.DOUBLE, value.to_bytes(8, "big"))
        case variant.Scalar(kind, value):
            return scalar_cell(kind, value, mode)


def _object_body(fields: tuple[tuple[str, variant.Node], ...], mode: Mode) -> bytes:
    named: dict[bytes, variant.Node] = {}
    for name, node in fields:
        key = string_body(name.encode(), mode)
        if key in named:
            raise Code.ROW_INVALID(reason="variant_key_duplicate", got="one twice")
        named[key] = node
    # The keys are sorted again, since normalization may change the order. UTF-8 bytes sort like code points.
    return join(part for key in sorted(named) for part in (frame(Tag.STRING, key), variant_cell(named[key], mode)))


# --- Section 7: bringing a source to the target's schema ---


@dataclass(frozen=True, slots=True)
class Slot:
    """A target column, or a part of one, for which an input column was accepted."""

    path: str
    source_type: Type | Shape
    target: Type
    required: bool
    depth: int
    parts: tuple[tuple[str, Slot], ...] = ()
    """Struct fields in code-point order of their names; or `element`; or `key` and `value`."""


def bind(target: Field | Inner, source: ArrowSource, mode: Mode, depth: int = 1) -> Slot:
    """Accept a source for its target by the closed list of casts, at every depth, or raise; no value is read."""
    path, kind = source.path, target.type
    inside: list[tuple[str, Field | Inner, pa.Field[Any]]] = []
    match kind, source.type:
        case StructType(fields), Shape.STRUCT:
            given = require_names(path, [field.name for field in fields], source.parts)
            inside = [(field.name, field, given[field.name]) for field in sorted(fields, key=lambda field: field.name)]
        case ListType(element), Shape.LIST:
            inside = [("element", element, source.parts[0])]
        case MapType(key, value), Shape.MAP:
            inside = [("key", key, source.parts[0]), ("value", value, source.parts[1])]
        case PrimitiveType(Kind.VARIANT), Shape.STRUCT if is_shredded(source):
            raise variant_shredded(path)
        case _ if not is_accepted(source, target, mode):
            raise Code.COLUMNS_MISMATCH(
                f"column {path!r} cannot be brought to its target type",
                reason="cast_refused",
                expected=f"{kind}, required" if target.required else str(kind),
                got=str(source)[:200],
                column=path,
            )
    parts = tuple(
        (name, bind(slot, read_source(f"{path}.{name}", part), mode, depth + 1)) for name, slot, part in inside
    )
    return Slot(path, source.type, kind, target.required, depth, parts)


def is_accepted(source: ArrowSource, target: Field | Inner, mode: Mode) -> bool:
    """Whether the cast is in the closed list, or the Arrow type can mean the target (section 7.1)."""
    if source.type == target.type:
        return True
    match source.type, target.type:
        case PrimitiveType(Kind.UNKNOWN), _:
            return not target.required
        case (
            (PrimitiveType(Kind.INT), PrimitiveType(Kind.LONG))
            | (PrimitiveType(Kind.FLOAT), PrimitiveType(Kind.DOUBLE))
            | (PrimitiveType(Kind.DATE), PrimitiveType(Kind.TIMESTAMP | Kind.TIMESTAMP_NS))
            | (PrimitiveType(Kind.BINARY), GeoType())
            | (FixedType(16), PrimitiveType(Kind.UUID))
        ):
            return True
        case DecimalType(narrow, scale), DecimalType(wide, target_scale):
            return mode is Mode.PORTABLE or (wide >= narrow and target_scale == scale)
        case Shape.STRUCT, PrimitiveType(Kind.VARIANT):
            return holds_variant(source)
    return False


def cast(value: Any, source: Type | Shape, target: Type) -> Any:
    """The value of an accepted source as a value of its target."""
    match source, target:
        case PrimitiveType(Kind.FLOAT), PrimitiveType(Kind.DOUBLE):
            return widen(value, SINGLE, DOUBLE)
        case DecimalType(_, scale), DecimalType():
            return rescale(value, scale, target)
        case PrimitiveType(Kind.DATE), PrimitiveType(Kind.TIMESTAMP):
            return require_within(value * _UNITS_PER_DAY[Kind.TIME], bits=64)
        case PrimitiveType(Kind.DATE), PrimitiveType(Kind.TIMESTAMP_NS):
            return require_within(value * _UNITS_PER_DAY[Kind.TIME_NS], bits=64)
    return value


def require_names(
    path: str, wanted: Iterable[str], given: Iterable[pa.Field[Any]], also_allowed: Iterable[str] = ()
) -> dict[str, pa.Field[Any]]:
    """The given fields by name. Raises if a wanted field is missing, or a given field is repeated or not allowed."""
    prefix = f"{path}." if path else ""
    found: dict[str, pa.Field[Any]] = {}
    for part in given:
        if part.name in found:
            raise _name_error("column_duplicate", prefix + part.name, "is given twice")
        found[part.name] = part
    known = set(wanted)
    if missing := sorted(known - found.keys()):
        raise _name_error("column_missing", prefix + missing[0], "is missing")
    if unexpected := sorted(found.keys() - known - set(also_allowed)):
        raise _name_error("column_unexpected", prefix + unexpected[0], "is not in the target")
    return found


def _name_error(reason: str, path: str, problem: str) -> InputError:
    return InputError(reason, f"column {path!r} {problem}", hint="source and target are matched by name", column=path)


def cell(slot: Slot, column: Column, at: int, mode: Mode) -> bytes:
    """The cell at position `at`."""
    try:
        if not column.is_null(at):
            return value_cell(slot, column, at, mode)
        if slot.required:
            raise Code.ROW_INVALID(reason="null_in_required", got="null")
        return NULL
    except InputError as error:
        # The innermost part that failed names itself; `_rows` adds the row.
        error.details.setdefault("column", slot.path)
        error.details.setdefault("type", str(slot.target))
        raise


def value_cell(slot: Slot, column: Column, at: int, mode: Mode) -> bytes:
    """The cell of a value that is not null."""
    match slot.target:
        case StructType():
            return frame(Tag.STRUCT, join(cell(part, column.parts[name], at, mode) for name, part in slot.parts))
        case ListType():
            ((name, element),) = slot.parts
            return frame(Tag.LIST, join(cell(element, column.parts[name], inner, mode) for inner in column.span(at)))
        case MapType():
            return frame(Tag.MAP, _map_body(slot, column, at, mode))
        case PrimitiveType(Kind.VARIANT):
            metadata, value = column.parts["metadata"], column.parts["value"]
            if metadata.is_null(at) or value.is_null(at):
                raise variant.malformed("metadata and value", "null in their place")
            node = variant.decode(metadata.value(at), value.value(at), depth=slot.depth)
            return frame(Tag.VARIANT, variant_cell(node, mode))
    return scalar_cell(slot.target, cast(column.value(at), slot.source_type, slot.target), mode)


def _map_body(slot: Slot, column: Column, at: int, mode: Mode) -> bytes:
    (_, key_slot), (_, value_slot) = slot.parts
    keys, values = column.parts["key"], column.parts["value"]
    entries: dict[bytes, bytes] = {}
    size = 0
    for inner in column.span(at):
        if keys.is_null(inner):
            raise Code.ROW_INVALID(reason="map_key_null", got="null")
        key = cell(key_slot, keys, inner, mode)
        if key in entries:
            raise Code.ROW_INVALID(reason="map_key_duplicate", got="one twice")
        entries[key] = cell(value_slot, values, inner, mode)
        size += len(key) + len(entries[key])
        require_row_size(size)
    return join(part for key in sorted(entries) for part in (key, entries[key]))


# --- Section 3: rows ---


def canonical_rows(plan: Plan, name: ProjectionName, batch: pa.RecordBatch) -> Iterator[bytes]:
    """The canonical rows of a projection; names, types and buffers are checked before the first row."""
    targets = plan.projected_schema(name).fields
    given = require_names("", [target.name for target in targets], batch.schema, also_allowed=plan.schema.names)
    slots = [bind(target, read_source(target.name, given[target.name]), plan.mode) for target in targets]
    columns = []
    for slot in slots:
        try:
            columns.append((slot, open_column(batch.column(slot.path))))
        except InputError as error:
            error.details["column"] = slot.path
            raise _with_position(error) from None
    return _rows(columns, batch.num_rows, plan.mode)


def _rows(columns: list[tuple[Slot, Column]], count: int, mode: Mode) -> Iterator[bytes]:
    for row in range(count):
        try:
            yield join(cell(slot, column, row, mode) for slot, column in columns)
        except InputError as error:
            error.details["row"] = row
            raise _with_position(error) from None


def _with_position(error: InputError) -> InputError:
    """The error with column, type and row in its message as well as in its details."""
    details = error.details
    words = [f"column {details['column']!r}"] if "column" in details else []
    if "type" in details:
        words[0] += f" ({details['type']})"
    if "row" in details:
        words.append(f"row {details['row']}")
    return error.with_context(f"{', '.join(words)}: {error.message}")


# --- The engine (spec/digest.md section 3) ---


def element_hash(construction: Construction, key: bytes, row: bytes) -> bytes:
    """The keyed hash of one canonical row."""
    match construction:
        case Construction.HMAC_SHA256:
            return hmac.digest(key, row, hashlib.sha256)
        case Construction.BLAKE3:
            return blake3(row, key=key).digest()


class ReferenceEngine:
    """The readable implementation of `Engine`."""

    name: Final = "reference"

    def encode(self, plan: Plan, projection: ProjectionName, batch: pa.RecordBatch) -> list[bytes]:
        """The canonical rows of one projection."""
        check_batch(batch)
        return list(canonical_rows(plan, projection, batch))

    def start(self, plan: Plan, element_keys: Mapping[ProjectionName, bytes]) -> ReferenceAccumulator:
        """An accumulator at zero."""
        return ReferenceAccumulator(plan, element_keys)


class ReferenceAccumulator:
    """Rows and sums of element hashes, by projection."""

    def __init__(self, plan: Plan, element_keys: Mapping[ProjectionName, bytes]) -> None:
        self._plan = plan
        self._keys = dict(element_keys)
        self._totals = dict.fromkeys(self._keys, (0, 0))

    def __reduce__(self) -> NoReturn:
        raise TypeError("an accumulator holds keys and is not pickled")

    def update(self, batch: pa.RecordBatch) -> None:
        """Add every row of the batch. After an error the accumulator must not be used."""
        check_batch(batch)
        # Names and types are checked here for every projection, before any row is added.
        rows_by_projection = {name: canonical_rows(self._plan, name, batch) for name in self._keys}
        for name, rows in rows_by_projection.items():
            count, total = self._totals[name]
            for row in rows:
                count += 1
                total += int.from_bytes(element_hash(self._plan.construction, self._keys[name], row), "big")
            self._totals[name] = count, total % 2**256

    def totals(self) -> Mapping[ProjectionName, tuple[int, int]]:
        """By projection: the number of rows so far, and the sum of their element hashes."""
        return dict(self._totals)
