"""Builds the JSON manifest that `pvdm source-files` writes, by which a contract names loose Parquet files as source."""

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
from pvdm.verify.fit import Footer, int96_error, read_footer, require_schema
from pvdm.verify.source import SOURCE_FILES_KIND, SOURCE_FILES_MAX

Progress = Callable[[str, int, int], None]  # called with the step's name, files done, and files in total
_Slot = TypeVar("_Slot", Field, Inner)


@dataclass(frozen=True, slots=True)
class SourceManifest:
    """A manifest's bytes, the schema of its files, their number, and their total size in bytes."""

    data: bytes
    schema: Schema
    files: int
    size: int


def build_manifest(
    locations: Sequence[str], schema: Mapping[str, Json] | None, files: Files, watch: Progress
) -> SourceManifest:
    """The manifest of these files, ordered by name. `schema` is Iceberg's JSON; by default it is read from the files.

    `watch` gets the progress of the hashing, as the step "hash".
    """
    if not 0 < len(locations) <= SOURCE_FILES_MAX:
        expected = f"1 to {SOURCE_FILES_MAX} Parquet files"
        raise Code.SOURCE_REFUSED(reason="source_files_count", expected=expected, got=str(len(locations)))
    ordered = sorted(locations)
    with _as_input_error():
        footers = [(each, read_footer(each, files)) for each in ordered]
    raw = dict(schema) if schema is not None else to_iceberg(_common_schema(footers))
    model = to_model(parse_schema(Node(raw, "$")))
    checked: set[bytes] = set()
    for location, footer in footers:
        if footer.key not in checked:  # one check is enough for files with the same columns
            require_schema(model, location, footer)
            checked.add(footer.key)
    listed: list[dict[str, Any]] = []
    for done, location in enumerate(ordered):
        watch("hash", done, len(ordered))
        with _as_input_error():
            hashed = files.hash(location)
        listed.append({"path": location, "size": hashed.size, "sha256": hashed.sha256})
    watch("hash", len(ordered), len(ordered))
    manifest = {"kind": SOURCE_FILES_KIND, "schema": raw, "files": listed}
    data = json.dumps(manifest, ensure_ascii=False, indent=1).encode() + b"\n"
    return SourceManifest(data, model, len(listed), sum(each["size"] for each in listed))


@contextlib.contextmanager
def _as_input_error() -> Iterator[None]:
    """Raise an error about a file as `source_file_unusable`: a wrong file is bad input here, not a FAIL."""
    try:
        yield
    except VerificationError as error:
        raise _file_unusable(error, error.message, error.hint) from None


def _file_unusable(error: PvdmError, message: str, hint: str | None, **details: str) -> PvdmError:
    expected, got, details = error.expected, error.got, {"cause": error.reason, **details}
    return Code.SOURCE_REFUSED(message, reason="source_file_unusable", expected=expected, got=got, hint=hint, **details)


def _common_schema(footers: Sequence[tuple[str, Footer]]) -> Schema:
    """The schema that all files have; raises if they differ. If the files have no field ids, new ones are assigned."""
    first, first_footer = footers[0]
    common = _file_schema(first, first_footer)
    for location, footer in footers[1:]:
        other = _file_schema(location, footer)
        if other != common:
            differing = [field.name for field in common.fields if field not in other.fields]
            differing += [field.name for field in other.fields if field not in common.fields]
            message = f"{location} has other columns than {first}"
            got = f"a difference in column {str(next(iter(differing), None))[:80]!a}"
            raise Code.SOURCE_REFUSED(message, reason="source_schemas_differ", got=got, file=location)
    return common if any(field.field_id is not None for field in common.fields) else _assign_ids(common)


def _file_schema(location: str, footer: Footer) -> Schema:
    """The schema of one file, with all columns optional: a column without nulls may have some in the next file."""
    if footer.int96:
        raise int96_error(location, min(footer.int96))
    try:
        schema = schema_from_arrow(footer.schema)
    except InputError as error:
        hint = "give a schema with --schema-from, or write the file as an Iceberg table does"
        raise _file_unusable(error, f"{location}: {error.message}", hint, file=location) from None
    return Schema(tuple(_rebuild(field, lambda _: {"required": False}) for field in schema.fields))


def _rebuild(slot: _Slot, change: Callable[[int], dict[str, Any]], level: int = 0) -> _Slot:
    """A copy of a field and its inner fields with the attributes that `change(level)` gives. Map keys stay required."""
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


def _assign_ids(schema: Schema) -> Schema:
    """The schema with ids from 1 on, level by level. Files without ids are read by names, so any ids will do."""
    levels: list[int] = []

    def record_level(level: int) -> dict[str, Any]:
        levels.append(level)
        return {}

    for field in schema.fields:
        _rebuild(field, record_level)
    # `_rebuild` visits the fields in the same order each time. `levels[n]` is the level of the field of visit `n`.
    # `visits` has all visit numbers, sorted by the level of their fields: the first one's field gets the id 1.
    visits = sorted(range(len(levels)), key=levels.__getitem__)
    id_of_visit = {visit: field_id for field_id, visit in enumerate(visits, 1)}
    ids = (id_of_visit[visit] for visit in range(len(levels)))
    return Schema(tuple(_rebuild(field, lambda _: {"field_id": next(ids)}) for field in schema.fields))
