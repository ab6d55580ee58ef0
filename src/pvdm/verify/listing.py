"""Manifests of source files: which files, their sizes and hashes, and a schema that all of them can be read by."""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pvdm.digest import schema_from_arrow
from pvdm.errors import Code, InputError, VerificationError
from pvdm.lake.format.json_document import Json, Node
from pvdm.lake.format.schema.document import parse_schema
from pvdm.lake.format.schema.logical import to_iceberg, to_model
from pvdm.model.schema import Field, Inner, ListType, MapType, Schema, StructType, Type
from pvdm.verify.fetch import Files
from pvdm.verify.footers import Footer, read_footer
from pvdm.verify.source import SOURCE_FILES_KIND, SOURCE_FILES_MAX
from pvdm.verify.source_fit import int96, require_schema

Watch = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Listing:
    """A manifest as it is written, and what is in it."""

    data: bytes
    schema: Schema
    files: int
    size: int


def list_files(locations: Sequence[str], schema: Mapping[str, Json] | None, files: Files, watch: Watch) -> Listing:
    """The manifest of these files in the order of their names; `schema` in Iceberg's JSON, or the files' own."""
    if not 0 < len(locations) <= SOURCE_FILES_MAX:
        raise Code.SOURCE_REFUSED(
            reason="source_files_count", expected=f"1 to {SOURCE_FILES_MAX} Parquet files", got=str(len(locations))
        )
    ordered = sorted(locations)
    with _named():
        footers = [(each, read_footer(each, files)) for each in ordered]
    raw = dict(schema) if schema is not None else to_iceberg(_own_schema(footers))
    model = to_model(parse_schema(Node(raw, "$")))
    known: set[bytes] = set()
    for location, footer in footers:
        if footer.key not in known:
            require_schema(model, location, footer)
            known.add(footer.key)
    listed: list[dict[str, Any]] = []
    for done, location in enumerate(ordered):
        watch("hash", done, len(ordered))
        with _named():
            seen = files.hash(location)
        listed.append({"path": location, "size": seen.size, "sha256": seen.sha256})
    watch("hash", len(ordered), len(ordered))
    manifest = {"kind": SOURCE_FILES_KIND, "schema": raw, "files": listed}
    data = json.dumps(manifest, ensure_ascii=False, indent=1).encode() + b"\n"
    return Listing(data, model, len(listed), sum(each["size"] for each in listed))


@contextlib.contextmanager
def _named() -> Iterator[None]:
    """A file that cannot be listed is bad input here, and nobody's verdict."""
    try:
        yield
    except VerificationError as error:
        raise Code.SOURCE_REFUSED(
            error.message,
            reason="source_file_unusable",
            expected=error.expected,
            got=error.got,
            hint=error.hint,
            cause=error.reason,
        ) from None


def _own_schema(footers: Sequence[tuple[str, Footer]]) -> Schema:
    """What every file says of its columns; ids are theirs, or dealt out where none of them has any."""
    (first, _), found = footers[0], _of_file(*footers[0])
    for location, footer in footers[1:]:
        other = _of_file(location, footer)
        if other != found:
            column = next((each.name for each in found.fields if each not in other.fields), None)
            more = next((each.name for each in other.fields if each not in found.fields), column)
            raise Code.SOURCE_REFUSED(
                f"{location} has other columns than {first}",
                reason="source_schemas_differ",
                got=f"a difference in column {str(column or more)[:80]!a}",
                file=location,
            )
    return found if any(each.field_id is not None for each in found.fields) else _numbered(found)


def _of_file(location: str, footer: Footer) -> Schema:
    for column in sorted(footer.int96):
        raise int96(location, column)
    try:
        found = schema_from_arrow(footer.schema)
    except InputError as error:
        raise Code.SOURCE_REFUSED(
            f"{location}: {error.message}",
            reason="source_file_unusable",
            expected=error.expected,
            got=error.got,
            hint=error.hint or "give a schema with --schema-from, or write the file as an Iceberg table does",
            cause=error.reason,
            file=location,
        ) from None
    # What a file has no nulls of may have some in the next one: nothing is claimed.
    return Schema(tuple(_optional(each) for each in found.fields))


def _optional(field: Field) -> Field:
    return replace(field, type=_optional_type(field.type), required=False)


def _optional_type(kind: Type) -> Type:
    match kind:
        case StructType(fields):
            return StructType(tuple(_optional(each) for each in fields))
        case ListType(element):
            return ListType(_optional_inner(element))
        case MapType(key, value):
            return MapType(replace(key, type=_optional_type(key.type)), _optional_inner(value))
        case _:
            return kind


def _optional_inner(slot: Inner) -> Inner:
    return replace(slot, type=_optional_type(slot.type), required=False)


def _numbered(schema: Schema) -> Schema:
    """Ids from 1 on, level by level; files without ids are read by their columns' names, so any ids will do."""
    ids = _dealt(schema.fields)
    return Schema(tuple(_with_ids(each, (at,), ids) for at, each in enumerate(schema.fields)))


Way = tuple[int, ...]


def _dealt(fields: Sequence[Field]) -> dict[Way, int]:
    found: dict[Way, int] = {}
    waiting: deque[tuple[Way, Field | Inner]] = deque(((at,), each) for at, each in enumerate(fields))
    while waiting:
        way, slot = waiting.popleft()
        found[way] = len(found) + 1
        waiting.extend(((*way, at), each) for at, each in enumerate(_inside(slot.type)))
    return found


def _inside(kind: Type) -> tuple[Field | Inner, ...]:
    match kind:
        case StructType(fields):
            return fields
        case ListType(element):
            return (element,)
        case MapType(key, value):
            return key, value
        case _:
            return ()


def _with_ids(field: Field, way: Way, ids: Mapping[Way, int]) -> Field:
    return replace(field, type=_type_with_ids(field.type, way, ids), field_id=ids[way])


def _inner_with_ids(slot: Inner, way: Way, ids: Mapping[Way, int]) -> Inner:
    return replace(slot, type=_type_with_ids(slot.type, way, ids), field_id=ids[way])


def _type_with_ids(kind: Type, way: Way, ids: Mapping[Way, int]) -> Type:
    match kind:
        case StructType(fields):
            return StructType(tuple(_with_ids(each, (*way, at), ids) for at, each in enumerate(fields)))
        case ListType(element):
            return ListType(_inner_with_ids(element, (*way, 0), ids))
        case MapType(key, value):
            return MapType(_inner_with_ids(key, (*way, 0), ids), _inner_with_ids(value, (*way, 1), ids))
        case _:
            return kind
