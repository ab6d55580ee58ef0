"""Writes manifests of source files: the files with sizes and hashes, and a schema that all of them fit."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pvdm.digest import schema_from_arrow
from pvdm.errors import Code, InputError, VerificationError
from pvdm.lake.format.json_document import Json, Node
from pvdm.lake.format.schema.document import parse_schema
from pvdm.lake.format.schema.logical import to_iceberg, to_model
from pvdm.model.schema import Field, Inner, ListType, MapType, Schema, StructType, Type
from pvdm.verify.fetch import Files
from pvdm.verify.fit import Footer, int96, read_footer, require_schema
from pvdm.verify.source import SOURCE_FILES_KIND, SOURCE_FILES_MAX

Watch = Callable[[str, int, int], None]
_Slot = TypeVar("_Slot", Field, Inner)


@dataclass(frozen=True, slots=True)
class Listing:
    """A manifest's bytes and what is in it."""

    data: bytes
    schema: Schema
    files: int
    size: int


def list_files(locations: Sequence[str], schema: Mapping[str, Json] | None, files: Files, watch: Watch) -> Listing:
    """The manifest of these files, ordered by name; `schema` is Iceberg's JSON, by default the files' own."""
    if not 0 < len(locations) <= SOURCE_FILES_MAX:
        raise Code.SOURCE_REFUSED(
            reason="source_files_count", expected=f"1 to {SOURCE_FILES_MAX} Parquet files", got=str(len(locations))
        )
    ordered = sorted(locations)
    with _as_input_error():
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
        with _as_input_error():
            seen = files.hash(location)
        listed.append({"path": location, "size": seen.size, "sha256": seen.sha256})
    watch("hash", len(ordered), len(ordered))
    manifest = {"kind": SOURCE_FILES_KIND, "schema": raw, "files": listed}
    data = json.dumps(manifest, ensure_ascii=False, indent=1).encode() + b"\n"
    return Listing(data, model, len(listed), sum(each["size"] for each in listed))


@contextlib.contextmanager
def _as_input_error() -> Iterator[None]:
    """Raise an error about a file as bad input, since there is no verdict here."""
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
    """The schema that all files share; raises where they differ. New ids are given where the files have none."""
    (first, _), found = footers[0], _file_schema(*footers[0])
    for location, footer in footers[1:]:
        other = _file_schema(location, footer)
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


def _file_schema(location: str, footer: Footer) -> Schema:
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
            hint="give a schema with --schema-from, or write the file as an Iceberg table does",
            cause=error.reason,
            file=location,
        ) from None
    # A column without nulls in one file may have some in the next.
    return Schema(tuple(_optional(each) for each in found.fields))


def _optional(slot: _Slot) -> _Slot:
    """The slot, optional at every depth; only map keys stay required."""
    match slot.type:
        case StructType(fields):
            kind: Type = StructType(tuple(_optional(each) for each in fields))
        case ListType(element):
            kind = ListType(_optional(element))
        case MapType(key, value):
            kind = MapType(replace(_optional(key), required=True), _optional(value))
        case other:
            kind = other
    return replace(slot, type=kind, required=False)


def _numbered(schema: Schema) -> Schema:
    """The schema with ids from 1 on, level by level. Files without ids are read by names, so any ids will do."""
    levels: list[int] = []

    def visit(kind: Type, level: int) -> None:
        for slot in _inside(kind):
            levels.append(level)
            visit(slot.type, level + 1)

    visit(StructType(schema.fields), 0)
    order = sorted(range(len(levels)), key=levels.__getitem__)
    ids = iter(sorted(range(len(order)), key=order.__getitem__))
    return Schema(tuple(_with_ids(each, ids) for each in schema.fields))


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


def _with_ids(slot: _Slot, ids: Iterator[int]) -> _Slot:
    """The slot and all slots inside with the next ids, counted from 0, outermost first."""
    field_id = next(ids) + 1
    match slot.type:
        case StructType(fields):
            kind: Type = StructType(tuple(_with_ids(each, ids) for each in fields))
        case ListType(element):
            kind = ListType(_with_ids(element, ids))
        case MapType(key, value):
            kind = MapType(_with_ids(key, ids), _with_ids(value, ids))
        case other:
            kind = other
    return replace(slot, type=kind, field_id=field_id)
