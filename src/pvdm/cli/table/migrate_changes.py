"""Converts the changes that `pvdm migrate propose` names to updates of Iceberg's protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pvdm.errors import Code, InputError
from pvdm.lake.format.json_document import Json, parse_json
from pvdm.lake.format.schema.type_names import parse_type_name
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.model.statements.migration import MIGRATION_UPDATES_MAX_BYTES

_ICEBERG_TYPE_OF_SQL: Final = {
    "bigint": "long",
    "bool": "boolean",
    "byte": "int",
    "bytes": "binary",
    "char": "string",
    "decimal": "decimal(P,S), with P from 1 to 38 and S up to P,",
    "integer": "int",
    "numeric": "decimal(P,S)",
    "real": "float",
    "short": "int",
    "smallint": "int",
    "text": "string",
    "timestamp_ltz": "timestamptz",
    "timestamp_ntz": "timestamp",
    "tinyint": "int",
    "varchar": "string",
}
_NESTED_TYPES: Final = frozenset({"array", "list", "map", "row", "struct"})


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a table, each as the text of its option; `updates` is the content of the file of --updates."""

    add_columns: Sequence[str] = ()
    drop_columns: Sequence[str] = ()
    rename_columns: Sequence[str] = ()
    set_properties: Sequence[str] = ()
    remove_properties: Sequence[str] = ()
    format_version: int | None = None
    updates: bytes | None = None


def make_updates(metadata: TableMetadata, changes: Changes) -> list[Json]:
    """Iceberg's updates: first the updates of the file, then the changes of format, columns and properties."""
    updates: list[Json] = [] if changes.updates is None else _read_updates(changes.updates)
    if changes.format_version is not None:
        updates.append({"action": "upgrade-format-version", "format-version": changes.format_version})
    updates += _schema_updates(metadata, changes)
    if changes.set_properties:
        expected = "a property and its value, such as owner=sales"
        pairs = dict(_split(each, "=", expected) for each in changes.set_properties)
        updates.append({"action": "set-properties", "updates": pairs})
    if changes.remove_properties:
        updates.append({"action": "remove-properties", "removals": list(changes.remove_properties)})
    return updates


def _read_updates(data: bytes) -> list[Json]:
    """The updates of a file: a list, or the body of a commit."""
    value = parse_json(data, size_max_bytes=MIGRATION_UPDATES_MAX_BYTES)
    if isinstance(value, Mapping) and "updates" in value:
        value = value["updates"]
    if not isinstance(value, list):
        raise Code.MIGRATION_INVALID(reason="updates_invalid", got="another value")
    return list(value)


def _schema_updates(metadata: TableMetadata, changes: Changes) -> list[Json]:
    if not (changes.add_columns or changes.drop_columns or changes.rename_columns):
        return []
    raw: dict[str, Any] = dict(metadata.current_schema.raw)
    fields: list[dict[str, Any]] = [dict(field) for field in raw["fields"]]
    for change in changes.rename_columns:
        old, new = _split(change, ":", "the old and the new name, such as town:city")
        _find_column(fields, old)["name"] = new
    for name in changes.drop_columns:
        fields.remove(_find_column(fields, name))
    for count, change in enumerate(changes.add_columns, start=1):
        name, kind = _split(change, ":", "a name and a type, such as channel:string")
        try:
            parse_type_name(kind, name)
        except InputError:
            message = f"column {name} cannot have this type"
            hint = _type_hint(kind)
            raise Code.MIGRATION_INVALID(message, reason="column_type_unknown", got=kind[:80], hint=hint) from None
        fields.append({"id": metadata.last_column_id + count, "name": name, "required": False, "type": kind})
    last = metadata.last_column_id + len(changes.add_columns)
    # The id of an older schema with the same fields; else -1, Iceberg's id of the schema added last.
    older = (each for each in metadata.schemas if each.schema_id != metadata.current_schema_id)
    schema_id = next((each.schema_id for each in older if each.raw.get("fields") == fields), -1)
    return [
        {"action": "add-schema", "schema": {**raw, "fields": fields}, "last-column-id": last},
        {"action": "set-current-schema", "schema-id": schema_id},
    ]


def type_warnings(changes: Changes) -> list[str]:
    """A warning for each type name that means something else in Spark."""
    return [
        f"{change}: Iceberg's timestamp has no zone (Spark's TIMESTAMP_NTZ); Spark's TIMESTAMP is timestamptz"
        for change in changes.add_columns
        if change.partition(":")[2].lower() in ("timestamp", "timestamp_ns")
    ]


def _type_hint(kind: str) -> str:
    word = re.split(r"[^a-z_]", kind.lower(), maxsplit=1)[0]
    if word in _ICEBERG_TYPE_OF_SQL:
        return f"{word} of SQL is {_ICEBERG_TYPE_OF_SQL[word]} in Iceberg"
    if word in _NESTED_TYPES:
        return "a nested column needs --updates FILE; docs/protection.md has an example"
    return "use one of Iceberg's names, or --updates FILE: see docs/protection.md"


def _find_column(fields: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    for field in fields:
        if field["name"] == name:
            return field
    message, expected = f"the table has no column {name!r}", ", ".join(str(field["name"]) for field in fields)[:400]
    raise Code.MIGRATION_INVALID(message, reason="column_unknown", expected=expected, got=name[:80])


def _split(text: str, sign: str, expected: str) -> tuple[str, str]:
    left, found, right = text.partition(sign)
    if not found or not left or not right:
        raise Code.MIGRATION_INVALID(reason="change_invalid", expected=expected, got=text[:80])
    return left, right
