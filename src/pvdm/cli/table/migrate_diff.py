"""The difference between two structures of a table in plain lines: every change has one, and columns are told by id."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from pvdm.lake.format.json_document import Json, canonical
from pvdm.lake.format.schema.document import TableSchema
from pvdm.lake.format.table.main_state import structure_of
from pvdm.lake.format.table.metadata import TableMetadata

_SHOWN_CHARACTERS: Final = 400
_Shown = Callable[[str | None], str]
# Told by lines of their own.
_OWN: Final = frozenset({"properties", "schemas", "partition-specs", "sort-orders"})
_LISTS: Final = (
    ("schemas", "schema-id", "schema"),
    ("partition-specs", "spec-id", "partition spec"),
    ("sort-orders", "order-id", "sort order"),
)


def difference_lines(before: TableMetadata, after: TableMetadata, *, cut: bool = False) -> list[str]:
    """What the second has that the first has not (`+`), the other way round (`-`), and what is other (`~`)."""
    shown = _cut if cut else _whole
    old, new = structure_of(before), structure_of(after)
    return [
        *_columns(before.current_schema, after.current_schema, shown),
        *_scalars(old, new, shown),
        *(line for key, number, what in _LISTS for line in _list(old[key], new[key], number, what, shown)),
        *_properties(before.properties, after.properties, shown),
    ]


def _columns(before: TableSchema, after: TableSchema, shown: _Shown) -> Iterator[str]:
    """The columns that `main` is read with, at every depth."""
    old_names, new_names = _names(before), _names(after)
    old_raws, new_raws = _raws(before), _raws(after)
    for field_id in sorted({*before.fields, *after.fields}):
        old, new = before.fields.get(field_id), after.fields.get(field_id)
        if old is None and new is not None:
            yield f"+ column {new_names[field_id]}: {new.type}, {_required(new.required)}, id {field_id}"
        elif old is not None and new is None:
            yield f"- column {old_names[field_id]}: {old.type}, {_required(old.required)}, id {field_id}"
        elif old is not None and new is not None:
            name = old_names[field_id]
            if name != new_names[field_id]:
                yield f"~ column {name}: is called {new_names[field_id]} now, id {field_id}"
            if old.type != new.type:
                yield f"~ column {name}: {old.type} becomes {new.type}, id {field_id}"
            if old.required != new.required:
                yield f"~ column {name}: becomes {_required(new.required)}, id {field_id}"
            if old_raws.get(field_id) != new_raws.get(field_id):
                yield f"~ column {name}: {shown(old_raws.get(field_id))} becomes {shown(new_raws.get(field_id))}"
    if before.identifier_field_ids != after.identifier_field_ids:
        yield f"~ identifier columns: {_ids(before, old_names)} becomes {_ids(after, new_names)}"
    kept = [field_id for field_id in before.fields if field_id in after.fields]
    if kept != [field_id for field_id in after.fields if field_id in before.fields]:
        yield "~ the columns stand in another order"


def _scalars(old: Mapping[str, Json], new: Mapping[str, Json], shown: _Shown) -> Iterator[str]:
    for key in sorted({*old, *new} - _OWN):
        was, now = (canonical(each[key]) if key in each else None for each in (old, new))
        if was != now:
            yield f"~ {key}: {shown(was)} becomes {shown(now)}"


def _list(old: Json, new: Json, number: str, what: str, shown: _Shown) -> Iterator[str]:
    was, now = _by_id(old, number), _by_id(new, number)
    for key in sorted({*was, *now}, key=int):
        if key not in was:
            yield f"+ {what} {key}: {shown(now[key])}"
        elif key not in now:
            yield f"- {what} {key}: {shown(was[key])}"
        elif was[key] != now[key]:
            yield f"~ {what} {key}: {shown(was[key])} becomes {shown(now[key])}"
    if [key for key in was if key in now] != [key for key in now if key in was]:
        yield f"~ the {what}s stand in another order"


def _by_id(value: Json, number: str) -> dict[str, str]:
    items = value if isinstance(value, list) else []
    return {str(item[number]): canonical(item) for item in items if isinstance(item, Mapping)}


def _properties(old: Mapping[str, str], new: Mapping[str, str], shown: _Shown) -> Iterator[str]:
    for key in sorted({*old, *new}):
        if key not in old:
            yield f"+ property {key} = {shown(new[key])}"
        elif key not in new:
            yield f"- property {key} = {shown(old[key])}"
        elif old[key] != new[key]:
            yield f"~ property {key}: {shown(old[key])} becomes {shown(new[key])}"


def _names(schema: TableSchema) -> dict[int, str]:
    """The full name of each column; the short ones of `ids` come after it."""
    found: dict[int, str] = {}
    for name, field_id in schema.ids.items():
        found.setdefault(field_id, name)
    return found


def _raws(schema: TableSchema) -> dict[int, str]:
    """What a column says beside id, name, type and whether it is required: its comment, its defaults."""
    found: dict[int, str] = {}
    _collect(schema.raw, found)
    return found


def _collect(value: Json, found: dict[int, str]) -> None:
    if isinstance(value, Mapping):
        number = value.get("id")
        if isinstance(number, int):
            rest = {key: each for key, each in value.items() if key not in ("id", "name", "type", "required")}
            if rest:
                found[number] = canonical(rest)
        for each in value.values():
            _collect(each, found)
    elif isinstance(value, list | tuple):
        for each in value:
            _collect(each, found)


def _ids(schema: TableSchema, names: Mapping[int, str]) -> str:
    return ", ".join(sorted(names[each] for each in schema.identifier_field_ids)) or "none"


def _required(required: bool) -> str:
    return "required" if required else "optional"


def _whole(text: str | None) -> str:
    return "none" if text is None else text


def _cut(text: str | None) -> str:
    whole = _whole(text)
    return whole if len(whole) <= _SHOWN_CHARACTERS else f"{whole[:_SHOWN_CHARACTERS]}… ({len(whole)} characters)"
