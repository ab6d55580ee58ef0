"""Located faults in words for people: how many rows of which class, and the first keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pvdm.model.located import Located, LocatedClass, SampleKey
from pvdm.model.verdict import FailureClass

_KEYS_NAMED: Final = 6
_PLACES_NAMED: Final = 3


def counted(located: Located) -> str:
    """`6 rows missing, 1 row modified`."""
    return ", ".join(f"{_rows(each.rows)} {each.failure.value}" for each in located.classes)


def first_keys(each: LocatedClass, *, named: int = _KEYS_NAMED) -> str:
    """`first missing order_id: 88121, 88122`; of modified rows with the fields that differ; empty without keys."""
    if not each.samples:
        return ""
    names = [name for name, _ in each.samples[0].key]
    head = names[0] if len(names) == 1 else f"({', '.join(names)})"
    more = ", …" if len(each.samples) > named else ""
    return f"first {each.failure.value} {head}: {', '.join(_key(key) for key in each.samples[:named])}{more}"


def lines(located: Located) -> Iterator[str]:
    """All of it, the deeper lines indented."""
    if located.problem_code is not None:
        why = "" if located.problem is None else f": {located.problem}"
        yield f"rows were not located ({located.problem_code}){why}"
    for each in located.classes:
        yield f"{_rows(each.rows)} {each.failure.value}"
        if keys := first_keys(each):
            yield f"  {keys}"
        of = "source files" if each.failure is FailureClass.MISSING else "files"
        for what, found, left in ((of, each.files, each.files_more), ("partitions", each.partitions, 0)):
            if found:
                named = ", ".join(f"{place.name} ({place.rows:,})" for place in found[:_PLACES_NAMED])
                rest = len(found) - _PLACES_NAMED + left + (each.partitions_more if what == "partitions" else 0)
                yield f"  {what}: {named}" + (f", and {rest:,} more" if rest > 0 else "")
    if located.fields:
        named = ", ".join(f"{field.name} ({field.rows:,})" for field in located.fields)
        modified = located.rows(FailureClass.MODIFIED)
        of = "" if located.compared == modified else f" in {located.compared:,} of {modified:,} rows that were compared"
        yield f"fields that differ{of}: {named}"
    if located.classes and not any(each.samples for each in located.classes):
        yield "keys and fields are for those whom the contract's governance.sample-keys names"


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


def _key(sample: SampleKey) -> str:
    values = ["null" if value is None else value for _, value in sample.key]
    text = values[0] if len(values) == 1 else f"({', '.join(values)})"
    times = f" {sample.rows:,} times" if sample.rows > 1 else ""
    fields = f" ({', '.join(sample.fields)})" if sample.fields else ""
    return f"{text}{times}{fields}"
