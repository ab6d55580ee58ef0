"""Column ids for a new table, given in the order in which Iceberg gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pvdm.lake.format.json.document import Json
from pvdm.lake.format.json.node import Raw
from pvdm.lake.format.schema.document import TableSchema


def fresh_ids(schema: TableSchema) -> dict[int, int]:
    """The new id of every id: 1 and on."""
    made: dict[int, int] = {}

    def give(old: Json) -> None:
        if isinstance(old, int):
            made[old] = len(made) + 1

    _visit(schema.raw, give)
    return made


def with_ids(schema: TableSchema, ids: Mapping[int, int], schema_id: int) -> dict[str, Json]:
    """The schema's JSON under new ids; what it has besides stays."""
    raw: dict[str, Json] = {**_struct(schema.raw, ids), "schema-id": schema_id}
    if schema.identifier_field_ids:
        raw["identifier-field-ids"] = sorted(ids[old] for old in schema.identifier_field_ids)
    return raw


def _visit(raw: Json, give: Callable[[Json], None]) -> None:
    """A struct's own fields first, then what lies below each; a map's key and value before what lies below."""
    if not isinstance(raw, Mapping):
        return
    match raw.get("type"):
        case "struct":
            fields = _fields(raw)
            for field in fields:
                give(field["id"])
            for field in fields:
                _visit(field["type"], give)
        case "list":
            give(raw["element-id"])
            _visit(raw["element"], give)
        case "map":
            give(raw["key-id"])
            give(raw["value-id"])
            _visit(raw["key"], give)
            _visit(raw["value"], give)


def _fields(raw: Raw) -> list[Raw]:
    found = raw["fields"]
    return [field for field in found if isinstance(field, Mapping)] if isinstance(found, list) else []


def _renamed(raw: Json, ids: Mapping[int, int]) -> Json:
    """One type under new ids: only the places that Iceberg knows as ids and types, nothing that looks like them."""
    if not isinstance(raw, Mapping):
        return raw
    match raw.get("type"):
        case "struct":
            return _struct(raw, ids)
        case "list":
            return _parts(raw, ids, "element")
        case _:
            return _parts(raw, ids, "key", "value")


def _struct(raw: Raw, ids: Mapping[int, int]) -> dict[str, Json]:
    fields: list[Json] = [
        {**field, "id": _new(field["id"], ids), "type": _renamed(field["type"], ids)} for field in _fields(raw)
    ]
    return {**raw, "fields": fields}


def _parts(raw: Raw, ids: Mapping[int, int], *parts: str) -> dict[str, Json]:
    made = dict(raw)
    for part in parts:
        made[f"{part}-id"] = _new(raw[f"{part}-id"], ids)
        made[part] = _renamed(raw[part], ids)
    return made


def _new(old: Json, ids: Mapping[int, int]) -> Json:
    return ids[old] if isinstance(old, int) else old
