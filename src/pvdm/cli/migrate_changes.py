"""Changes of a table as people name them on the command line, as updates of Iceberg's protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pvdm.errors import InputError
from pvdm.lake.format.document import Json, parse_json
from pvdm.lake.format.metadata import TableMetadata
from pvdm.model.migration import MIGRATION_UPDATES_MAX_BYTES


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is to become of a table."""

    add_columns: Sequence[str] = ()
    drop_columns: Sequence[str] = ()
    rename_columns: Sequence[str] = ()
    set_properties: Sequence[str] = ()
    remove_properties: Sequence[str] = ()
    format_version: int | None = None
    updates: bytes | None = None


def updates_of(metadata: TableMetadata, wishes: Wishes) -> list[Json]:
    """The updates: those of the file first, then format, columns and properties."""
    found: list[Json] = [] if wishes.updates is None else _from_file(wishes.updates)
    if wishes.format_version is not None:
        found.append({"action": "upgrade-format-version", "format-version": wishes.format_version})
    found += _schema_updates(metadata, wishes)
    if wishes.set_properties:
        pairs = dict(
            _split(each, "=", "a property and its value, such as owner=sales") for each in wishes.set_properties
        )
        found.append({"action": "set-properties", "updates": pairs})
    if wishes.remove_properties:
        found.append({"action": "remove-properties", "removals": list(wishes.remove_properties)})
    return found


def _from_file(data: bytes) -> list[Json]:
    """A list of updates, or the body of a commit that holds one."""
    value = parse_json(data, size_max_bytes=MIGRATION_UPDATES_MAX_BYTES)
    if isinstance(value, Mapping) and "updates" in value:
        value = value["updates"]
    if not isinstance(value, list):
        raise InputError(
            "updates_invalid",
            "the file holds no updates",
            expected='a JSON array of Iceberg\'s updates, or {"updates": […]}',
            got="another value",
        )
    return list(value)


def _schema_updates(metadata: TableMetadata, wishes: Wishes) -> list[Json]:
    if not (wishes.add_columns or wishes.drop_columns or wishes.rename_columns):
        return []
    raw: dict[str, Any] = dict(metadata.current_schema.raw)
    fields: list[dict[str, Any]] = [dict(field) for field in raw["fields"]]
    for wish in wishes.rename_columns:
        old, new = _split(wish, ":", "the old and the new name, such as town:city")
        _named(fields, old)["name"] = new
    for name in wishes.drop_columns:
        fields.remove(_named(fields, name))
    for count, wish in enumerate(wishes.add_columns, start=1):
        name, kind = _split(wish, ":", "a name and a type, such as channel:string")
        fields.append({"id": metadata.last_column_id + count, "name": name, "required": False, "type": kind})
    last = metadata.last_column_id + len(wishes.add_columns)
    return [
        {"action": "add-schema", "schema": {**raw, "fields": fields}, "last-column-id": last},
        {"action": "set-current-schema", "schema-id": _same(metadata, {**raw, "fields": fields})},
    ]


def _same(metadata: TableMetadata, raw: Mapping[str, Any]) -> int:
    """The last one added; where an older schema is the same, none is added and that one becomes current."""
    wanted = [dict(field) for field in raw["fields"]]
    for schema in metadata.schemas:
        if schema.raw.get("fields") == wanted and schema.schema_id != metadata.current_schema_id:
            return schema.schema_id
    return -1


def _named(fields: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    for field in fields:
        if field["name"] == name:
            return field
    raise InputError(
        "column_unknown",
        f"the table has no column {name!r}",
        expected=", ".join(str(field["name"]) for field in fields)[:400],
        got=name[:80],
    )


def _split(text: str, sign: str, expected: str) -> tuple[str, str]:
    left, found, right = text.partition(sign)
    if not found or not left or not right:
        raise InputError("change_invalid", "this change cannot be read", expected=expected, got=text[:80])
    return left, right
