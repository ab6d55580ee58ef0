"""What must hold of a batch before another implementation reads its memory; no value is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pvdm.errors import Code, InputError
from pvdm.model.schema import NESTING_DEPTH_MAX

BATCH_ROWS_MAX: Final = 2**31 - 1
# Dictionary and run-end layers do not count as depth of a value, but readers descend into them all the same.
_LAYERS_MAX: Final = 4 * NESTING_DEPTH_MAX


@dataclass(frozen=True, slots=True)
class Judged:
    """Names and types that were found good, and the columns of them that have arrays inside."""

    schema: pa.Schema
    layered: tuple[int, ...]


def judge(batch: pa.RecordBatch, known: Judged | None = None) -> Judged:
    """Raise unless names, depth, sizes and offsets are such that reading stays within the batch's own buffers.

    What is given back may be `known` for the next batch: the same names and types are then not judged again.
    """
    if batch.num_rows > BATCH_ROWS_MAX:
        raise Code.BATCH_TOO_LARGE(expected=f"at most {BATCH_ROWS_MAX}", got=str(batch.num_rows))
    schema = batch.schema
    if known is None or not schema.equals(known.schema):
        judge_types(schema)
        known = Judged(schema, tuple(at for at, kind in enumerate(schema.types) if _is_layered(kind)))
    try:
        batch.validate()
    except pa.ArrowInvalid as error:
        raise _invalid(str(error)) from None
    # Of an array that has rows and no other array inside, `validate` leaves nothing open.
    for position in known.layered if batch.num_rows else range(batch.num_columns):
        for node in nodes(batch.column(position)):
            _judge_node(node)
    return known


def _is_layered(kind: pa.DataType) -> bool:
    encoded = isinstance(kind, pa.DictionaryType | pa.RunEndEncodedType | pa.BaseExtensionType)
    return encoded or kind.num_fields > 0


def judge_types(schema: pa.Schema) -> None:
    """Raise on names that cannot be exported, on types without end, and on extensions that an encoding hides."""
    pending: list[tuple[str, Any, int]] = []
    for position in range(len(schema)):
        pending.append((_name(schema.field(position), ""), schema.field(position).type, 1))
    while pending:
        path, kind, depth = pending.pop()
        if depth > _LAYERS_MAX:
            raise Code.NESTING_TOO_DEEP("a column nests too deeply", expected=f"{NESTING_DEPTH_MAX} levels", got="more")
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        if isinstance(kind, pa.DictionaryType | pa.RunEndEncodedType):
            if isinstance(kind.value_type, pa.BaseExtensionType):
                raise Code.ARROW_TYPE_UNSUPPORTED(
                    f"column {path!r} hides an extension type in an encoding", got=str(kind)[:200], column=path
                )
            pending.append((path, kind.value_type, depth + 1))
        elif pa.types.is_nested(kind):
            for position in range(kind.num_fields):
                field = kind.field(position)
                pending.append((_name(field, f"{path}."), field.type, depth + 1))


def _name(field: pa.Field[Any], prefix: str) -> str:
    try:
        name = field.name
    except UnicodeDecodeError as error:
        raise _invalid(f"a name that is not UTF-8: {error.reason}") from None
    if "\0" in name:
        # The C data interface ends a name at U+0000: "a\0b" would pass for "a".
        raise Code.COLUMN_UNEXPECTED(got=ascii(name)[:200])
    return prefix + name


def nodes(array: Any) -> Iterator[Any]:
    """The array and every array inside it; not deeper than `judge_types` allows."""
    yield array
    inside: list[Any] = []
    if isinstance(array, pa.ExtensionArray):
        inside = [array.storage]
    elif isinstance(array, pa.StructArray):
        inside = [array.field(position) for position in range(array.type.num_fields)]
    elif isinstance(array, pa.DictionaryArray):
        inside = [array.dictionary]
    elif isinstance(array, pa.RunEndEncodedArray):
        inside = [array.run_ends, array.values]
    elif pa.types.is_nested(array.type) and not pa.types.is_union(array.type):
        inside = [array.values]
    for child in inside:
        yield from nodes(child)


_OFFSETS: Final = (
    (pa.types.is_string, 4),
    (pa.types.is_binary, 4),
    (pa.types.is_list, 4),
    (pa.types.is_map, 4),
    (pa.types.is_large_string, 8),
    (pa.types.is_large_binary, 8),
    (pa.types.is_large_list, 8),
)


def _judge_node(array: Any) -> None:
    """What `validate` leaves open."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind) and (array.offset + len(array)) * kind.list_size > len(array.values):
        raise _invalid("a fixed-size list that leaves its child")
    if len(array) or not array.offset:
        return
    # An empty array that begins somewhere: its first offset is read, to know the size of its data.
    for is_kind, width in _OFFSETS:
        if is_kind(kind):
            offsets = array.buffers()[1]
            end = (array.offset + 1) * width
            if offsets is None or offsets.size < end:
                raise _invalid("an empty array that begins past its offsets")
            if int.from_bytes(memoryview(offsets)[end - width : end], "little", signed=True) < 0:
                raise _invalid("an empty array with a negative offset")


def _invalid(got: str) -> InputError:
    return InputError(Code.ARROW_INVALID, "the batch contradicts itself", expected="valid Arrow arrays", got=got[:400])
