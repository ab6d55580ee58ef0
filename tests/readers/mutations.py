"""Every change of every field of a file's metadata: dropped, added, set, swapped, longer, shorter, reordered."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.readers.document import Part, Root, edit, find, parts, roots
from tests.readers.thrift_schema import BOOL, STRUCTS, Slot
from tests.support.parquet.edit import (
    BINARY,
    BOOLEANS,
    BYTE,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    Struct,
    columns,
    get,
    groups,
    metadata_of,
    put,
)
from tests.support.parquet.field_ids import ColumnField, FooterField, GroupField, SchemaField

Step = tuple[int, int | None]
"""A field of a struct, and the element where the field is a list of structs."""
GREATEST: Final = {I32: 2**31 - 1, I64: 2**63 - 1, I16: 2**15 - 1, BYTE: 127}
UNKNOWN_FIELD: Final = 90
UNKNOWN_VALUE: Final = 99
"""An id and an enum's value that parquet.thrift does not define."""


@dataclass(frozen=True, slots=True, order=True)
class Mutation:
    """One change: where, of which field, and how."""

    root: Root
    steps: tuple[Step, ...]
    field: int
    how: str
    name: str
    """The field by its names, without numbers: mutations of one name and one `how` are of one kind."""

    @property
    def kind(self) -> tuple[str, str]:
        return self.name, self.how

    def __str__(self) -> str:
        where = "".join(f".{field}" + ("" if at is None else f"[{at}]") for field, at in self.steps)
        return f"{self.name} {self.how} ({self.root.place}, at {where or '.'}.{self.field})"

    def apply(self, data: bytes) -> bytes:
        return edit(data, self.root, self._change)

    def _change(self, top: Struct) -> None:
        _apply_change(self.how, _follow(top, self.steps), self.field, top, self.steps, self.root.part)


def _follow(top: Struct, steps: Sequence[Step]) -> Struct:
    for field, at in steps:
        found = get(top, field)
        top = found if at is None else found[1][at]
    return top


def mutations(data: bytes) -> list[Mutation]:
    """Every single change of a file."""
    return [
        each for root, top in roots(data) for each in _struct_mutations(root, top, (), str(root.part), str(root.part))
    ]


def _struct_mutations(
    root: Root, fields: Struct, steps: tuple[Step, ...], struct: str, name: str
) -> Iterator[Mutation]:
    """Every change of a struct's own fields, and of the structs inside it."""
    known, present = STRUCTS[struct], {number for number, _, _ in fields}
    for number, slot in known.items():
        named = f"{name}.{slot.name}"
        hows = _field_changes(slot, find(fields, number)) if number in present else (["add", "add other"])
        if number in present and any(at is not None for _, at in steps):
            hows = [*hows, "swap with the next"]
        yield from (Mutation(root, steps, number, how, named) for how in hows)
    yield Mutation(root, steps, UNKNOWN_FIELD, "add", f"{name}.unknown")
    numbers = sorted(present)
    for first, second in itertools.pairwise(numbers):
        yield Mutation(root, steps, first, f"trade with {second}", f"{name}.{_field_name(known, first)}")
    for number, slot in known.items():
        value = find(fields, number)
        if value is None or slot.inner not in STRUCTS:
            continue
        below = f"{name}.{slot.name}"
        if slot.kind == STRUCT:
            yield from _struct_mutations(root, value, (*steps, (number, None)), slot.inner, below)
        else:
            for at, each in enumerate(value[1]):
                yield from _struct_mutations(root, each, (*steps, (number, at)), slot.inner, below)


def _field_name(known: dict[int, Slot], number: int) -> str:
    return known[number].name if number in known else "unknown"


def _field_changes(slot: Slot, value: Any) -> list[str]:
    """What can be done to a field that is there."""
    common = ["drop"]
    if slot.values:
        return [*common, *(f"set {each}" for each in slot.values if each != value), f"set {UNKNOWN_VALUE}"]
    if slot.kind in GREATEST:
        return [*common, "one more", "one less", "negate", "set 0", "set greatest"]
    if slot.kind == BOOL:
        return [*common, "negate"]
    if slot.kind == BINARY:
        return [
            *common,
            "empty",
            "longer",
            "longer in front",
            "shorter",
            "shorter in front",
            "other",
            "upper case",
            "dot",
        ]
    if slot.kind == LIST:
        made = [*common, "empty", "without the last", "last twice", "reverse", "first changed"]
        return made if len(value[1]) > 1 else [each for each in made if each != "reverse"]
    return [*common, "empty"]


def _apply_change(how: str, fields: Struct, number: int, top: Struct, steps: Sequence[Step], part: Part) -> None:
    """Change the field `number` in place, as `how` says."""
    if how.startswith("trade with"):
        _trade(fields, number, int(how.rpartition(" ")[2]))
    elif how == "swap with the next":
        _swap(fields, number, top, steps)
    elif how == "drop":
        fields[:] = [each for each in fields if each[0] != number]
    elif how.startswith("add"):
        _add(fields, number, top, part, other=how.endswith("other"))
    else:
        (each,) = [each for each in fields if each[0] == number]
        each[2] = _changed_value(how, each[1], each[2])


def _trade(fields: Struct, first: int, second: int) -> None:
    """Exchange what two fields of one struct hold; each keeps its number."""
    (one,) = [each for each in fields if each[0] == first]
    (two,) = [each for each in fields if each[0] == second]
    one[1:], two[1:] = two[1:], one[1:]


def _swap(fields: Struct, number: int, top: Struct, steps: Sequence[Step]) -> None:
    """Exchange with the same field of the next element of the innermost list."""
    at = max(place for place, step in enumerate(steps) if step[1] is not None)
    field, element = steps[at]
    assert element is not None
    siblings = get(_follow(top, steps[:at]), field)[1]
    other: Struct = siblings[(element + 1) % len(siblings)]
    for step in steps[at + 1 :]:
        found = find(other, step[0])
        if found is None:
            return
        other = found if step[1] is None else found[1][step[1] % len(found[1])]
    value = find(other, number)
    if value is None or other is fields:
        return
    kind = next(each[1] for each in fields if each[0] == number)
    own = get(fields, number)
    put(fields, number, kind, value)
    put(other, number, kind, own)


def _add(fields: Struct, number: int, top: Struct, part: Part, *, other: bool) -> None:
    if number == UNKNOWN_FIELD:
        fields.append([number, I32, 7])
        return
    struct = _find_struct_name(top, str(part), fields)
    assert struct is not None
    slot = STRUCTS[struct][number]
    made: Any = {BINARY: b"x" if other else b"", LIST: (STRUCT, []), STRUCT: [], BOOL: not other}.get(
        slot.kind, 1 if other else 0
    )
    if slot.kind == LIST:
        inner = {"i32": I32, "i64": I64, "binary": BINARY, "bool": BOOL}.get(slot.inner, STRUCT)
        made = (inner, [{I32: 0, I64: 0, BINARY: b"x", BOOL: True, STRUCT: []}[inner]] if other else [])
    elif slot.inner and other:
        first = next(iter(STRUCTS[slot.inner].items()), None)
        made = [] if first is None or first[1].kind != STRUCT else [[first[0], STRUCT, []]]
    put(fields, number, slot.kind, made)


def _find_struct_name(at: Struct, struct: str, wanted: Struct) -> str | None:
    """The name of the struct that is wanted, at or below one of this name."""
    if at is wanted:
        return struct
    for number, kind, value in at:
        slot = STRUCTS[struct].get(number)
        if slot is None or slot.kind != kind or slot.inner not in STRUCTS:
            continue
        for each in [value] if kind == STRUCT else value[1]:
            if (found := _find_struct_name(each, slot.inner, wanted)) is not None:
                return found
    return None


_NUMBERS: Final[dict[str, Callable[[int], int]]] = {
    "one more": lambda value: value + 1,
    "one less": lambda value: value - 1,
    "negate": lambda value: -value,
    "set 0": lambda _: 0,
}
_BYTES: Final[dict[str, Callable[[bytes], bytes]]] = {
    "empty": lambda _: b"",
    "longer": lambda value: value + b"\0",
    "longer in front": lambda value: b"\0" + value,
    "shorter": lambda value: value[:-1],
    "shorter in front": lambda value: value[1:],
    "other": lambda value: bytes([value[0] ^ 1]) + value[1:] if value else b"x",
    "upper case": lambda value: value.upper(),
    "dot": lambda value: value + b".x",
}


def _changed_value(how: str, kind: int, value: Any) -> Any:
    if kind in BOOLEANS:
        return not value
    if kind in GREATEST:
        if how == "set greatest":
            return GREATEST[kind]
        changed = _NUMBERS[how](value) if how in _NUMBERS else int(how.removeprefix("set "))
        return changed & 255 if kind == BYTE else changed
    if kind == BINARY:
        return _BYTES[how](value)
    if kind == STRUCT:
        return []
    inner, elements = value
    made = list(elements)
    if how == "empty":
        made = []
    elif how == "without the last":
        made = made[:-1]
    elif how == "last twice":
        made = [*made, *copy.deepcopy(made[-1:])]
    elif how == "reverse":
        made = made[::-1]
    elif made:
        made[0] = _changed_first(inner, made)
    return (inner, made)


def _changed_first(inner: int, elements: list[Any]) -> Any:
    """Another first element."""
    first = elements[0]
    if inner == STRUCT:
        return copy.deepcopy(elements[-1])
    if inner == BINARY:
        return first + b"\0"
    return not first if inner in BOOLEANS else first + 1


def column_of(mutation: Mutation, data: bytes) -> str | None:
    """The table's column that a mutation is about; None if it is about all of them."""
    _, footer = parts(data)
    root = mutation.root
    if root.part is not Part.FOOTER:
        path = get(metadata_of(columns(groups(footer)[root.group])[root.column]), ColumnField.PATH_IN_SCHEMA)[1]
        return str(path[0].decode())
    steps = dict(mutation.steps)
    if FooterField.ROW_GROUPS in steps and steps.get(GroupField.COLUMNS) is not None:
        group = groups(footer)[steps[FooterField.ROW_GROUPS] or 0]
        chunk = columns(group)[steps[GroupField.COLUMNS] or 0]
        return str(get(metadata_of(chunk), ColumnField.PATH_IN_SCHEMA)[1][0].decode())
    element = dict(mutation.steps[:1]).get(FooterField.SCHEMA)
    if element is None or element == 0:  # no schema element, or the root
        return None
    return _top_name(get(footer, FooterField.SCHEMA)[1], element)


def _top_name(elements: list[Struct], wanted: int) -> str:
    """The name of the column to which a schema element belongs; the elements are listed depth first."""
    left: list[int] = []  # for each struct around the element: its children that are still to come
    at, name = 1, ""
    while at <= wanted:
        while left and left[-1] == 0:
            left.pop()
        if not left:
            name = str(get(elements[at], SchemaField.NAME).decode())
        else:
            left[-1] -= 1
        if (children := find(elements[at], SchemaField.NUM_CHILDREN)) is not None:
            left.append(children)
        at += 1
    return name
