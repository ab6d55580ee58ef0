"""Every change of every field of a file's metadata: dropped, added, set, swapped, longer, shorter, reordered."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.readers.document import Part, Root, edit, find, parts, roots
from tests.readers.thrift_schema import BOOL, BYTE, I16, STRUCTS, Slot
from tests.support.parquet.edit import BINARY, I32, I64, LIST, STRUCT, Struct, columns, get, groups, metadata_of, put

Step = tuple[int, int | None]
"""A field of a struct, and the element where the field is a list of structs."""
LEGAL: Final = {I32: 2**31 - 1, I64: 2**63 - 1, I16: 2**15 - 1, BYTE: 127}
UNKNOWN_FIELD: Final = 90


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
        _do(self.how, _go(top, self.steps), self.field, top, self.steps, self.root.part)


def _go(top: Struct, steps: Sequence[Step]) -> Struct:
    for field, at in steps:
        found = get(top, field)
        top = found if at is None else found[1][at]
    return top


def mutations(data: bytes) -> list[Mutation]:
    """Every single change of a file."""
    return [each for root, top in roots(data) for each in _of_struct(root, top, (), str(root.part), str(root.part))]


def _of_struct(root: Root, fields: Struct, steps: tuple[Step, ...], struct: str, name: str) -> Iterator[Mutation]:
    known, there = STRUCTS[struct], {number for number, _, _ in fields}
    for number, slot in known.items():
        named = f"{name}.{slot.name}"
        hows = _of_field(slot, find(fields, number)) if number in there else (["add", "add other"])
        if number in there and any(at is not None for _, at in steps):
            hows = [*hows, "swap with the next"]
        yield from (Mutation(root, steps, number, how, named) for how in hows)
    yield Mutation(root, steps, UNKNOWN_FIELD, "add", f"{name}.unknown")
    numbers = sorted(there)
    for first, second in itertools.pairwise(numbers):
        yield Mutation(root, steps, first, f"trade with {second}", f"{name}.{_named(known, first)}")
    for number, slot in known.items():
        value = find(fields, number)
        if value is None or slot.inner not in STRUCTS:
            continue
        below = f"{name}.{slot.name}"
        if slot.kind == STRUCT:
            yield from _of_struct(root, value, (*steps, (number, None)), slot.inner, below)
        else:
            for at, each in enumerate(value[1]):
                yield from _of_struct(root, each, (*steps, (number, at)), slot.inner, below)


def _named(known: dict[int, Slot], number: int) -> str:
    return known[number].name if number in known else "unknown"


def _of_field(slot: Slot, value: Any) -> list[str]:
    """What can be done to a field that is there."""
    common = ["drop"]
    if slot.values:
        return [*common, *(f"set {each}" for each in slot.values if each != value), "set 99"]
    if slot.kind in LEGAL:
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


def _do(how: str, fields: Struct, number: int, top: Struct, steps: Sequence[Step], part: Part) -> None:
    """Do it in place."""
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
        each[2] = _other(how, each[1], each[2])


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
    siblings = get(_go(top, steps[:at]), field)[1]
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
    struct = _walk(top, str(part), fields)
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


def _walk(at: Struct, struct: str, wanted: Struct) -> str | None:
    """The name of the struct that is wanted, at or below one of this name."""
    if at is wanted:
        return struct
    for number, kind, value in at:
        slot = STRUCTS[struct].get(number)
        if slot is None or slot.kind != kind or slot.inner not in STRUCTS:
            continue
        for each in [value] if kind == STRUCT else value[1]:
            if (found := _walk(each, slot.inner, wanted)) is not None:
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


def _other(how: str, kind: int, value: Any) -> Any:
    if kind in (1, 2):
        return not value
    if kind in LEGAL:
        if how == "set greatest":
            return LEGAL[kind]
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
        made[0] = _first(inner, made)
    return (inner, made)


def _first(inner: int, elements: list[Any]) -> Any:
    """Another first element."""
    first = elements[0]
    if inner == STRUCT:
        return copy.deepcopy(elements[-1])
    if inner == BINARY:
        return first + b"\0"
    return not first if inner in (1, 2) else first + 1


def leaf_of(mutation: Mutation, data: bytes) -> str | None:
    """The table's column that a mutation is about; None if it is about all of them."""
    _, footer = parts(data)
    root = mutation.root
    if root.part is not Part.FOOTER:
        path = get(metadata_of(columns(groups(footer)[root.group])[root.column]), 3)[1]
        return str(path[0].decode())
    steps = dict(mutation.steps)
    if 4 in steps and steps.get(1) is not None:
        group = groups(footer)[steps[4] or 0]
        return str(get(metadata_of(columns(group)[steps[1] or 0]), 3)[1][0].decode())
    element = dict(mutation.steps[:1]).get(2)
    return None if element is None or element == 0 else _top_name(get(footer, 2)[1], element)


def _top_name(elements: list[Struct], wanted: int) -> str:
    left: list[int] = []
    at, name = 1, ""
    while at <= wanted:
        while left and left[-1] == 0:
            left.pop()
        if not left:
            name = str(get(elements[at], 4).decode())
        else:
            left[-1] -= 1
        if (children := find(elements[at], 5)) is not None:
            left.append(children)
        at += 1
    return name
