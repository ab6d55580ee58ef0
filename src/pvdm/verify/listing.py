"""Writes manifests of source files: the files with sizes and hashes, and a schema that all of them fit."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pvdm.digest import schema_from_arrow
from pvdm.errors import Code, InputError, PvdmError, VerificationError
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
        raise _unusable(error, error.message, error.hint) from None


def _unusable(error: PvdmError, message: str, hint: str | None, **details: str) -> PvdmError:
    expected, got, found = error.expected, error.got, {"cause": error.reason, **details}
    return Code.SOURCE_REFUSED(message, reason="source_file_unusable", expected=expected, got=got, hint=hint, **found)


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
        hint = "give a schema with --schema-from, or write the file as an Iceberg table does"
        raise _unusable(error, f"{location}: {error.message}", hint, file=location) from None
    # A column without nulls in one file may have some in the next.
    return Schema(tuple(_rebuild(each, lambda _: {"required": False}) for each in found.fields))


def _rebuild(slot: _Slot, change: Callable[[int], dict[str, Any]], level: int = 0) -> _Slot:
    """The slot and all slots inside with the changes for their levels, outermost first; map keys stay required."""
    changes = change(level)
    match slot.type:
        case StructType(fields):
            kind: Type = StructType(tuple(_rebuild(each, change, level + 1) for each in fields))
        case ListType(element):
            kind = ListType(_rebuild(element, change, level + 1))
        case MapType(key, value):
            key = replace(_rebuild(key, change, level + 1), required=True)
            kind = MapType(key, _rebuild(value, change, level + 1))
        case other:
            kind = other
    return replace(slot, type=kind, **changes)


def _numbered(schema: Schema) -> Schema:
    """The schema with ids from 1 on, level by level. Files without ids are read by names, so any ids will do."""
    levels: list[int] = []

    def note(level: int) -> dict[str, Any]:
        levels.append(level)
        return {}

    for each in schema.fields:
        _rebuild(each, note)
    order = sorted(range(len(levels)), key=levels.__getitem__)
    ids = iter(sorted(range(len(order)), key=order.__getitem__))
    return Schema(tuple(_rebuild(each, lambda _: {"field_id": next(ids) + 1}) for each in schema.fields))
