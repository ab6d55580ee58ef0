"""Located faults in words for people: how many rows of which class, the first keys, and who may see them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pvdm.model.located import Located, LocatedClass, RowsIn, SampleKey
from pvdm.model.printable import place, quoted
from pvdm.model.statements.verdict import FailureClass

_KEYS_NAMED: Final = 6
_PLACES_NAMED: Final = 3


def counted(located: Located) -> str:
    """`6 rows missing, 1 row modified`."""
    return ", ".join(f"{_rows(each.rows)} {each.failure.value}" for each in located.classes)


def first_keys(each: LocatedClass, *, named: int = _KEYS_NAMED) -> str:
    """`first missing order_id: 88121, 88122`; of modified rows with the fields that differ; empty without keys."""
    if not each.samples:
        return ""
    names = [quoted(name) for name, _ in each.samples[0].key]
    head = names[0] if len(names) == 1 else f"({', '.join(names)})"
    kept = len(each.samples)
    more = f", … ({named} of the {kept} keys that are kept)" if kept > named else ""
    return f"first {each.failure.value} {head}: {', '.join(_key(key) for key in each.samples[:named])}{more}"


def rest_of_keys(located: Located, workload_id: str) -> str | None:
    """Where the keys are that `first_keys` leaves out; None where it names them all."""
    if all(len(each.samples) <= _KEYS_NAMED for each in located.classes):
        return None
    return f"all keys that are kept: `pvdm status --workload-id {workload_id} --json`"


def who_sees(located: Located) -> str | None:
    """Who may see keys, where the one who asks was told none; None where there is nothing to say."""
    if not located.classes or any(each.samples for each in located.classes):
        return None
    if not located.keys_for:
        return "nobody may see keys: the contract's governance.sample-keys names no role"
    roles = " and ".join(each.value for each in located.keys_for)
    return f"keys, partitions and fields that differ are for the {roles}, by the contract's governance.sample-keys"


def files_of(each: LocatedClass) -> str:
    """The files that have the most rows of a class, with how many, and how many files there are besides."""
    return ", ".join(_places(each.files, each.files_more))


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
        yield from _file_lines(of, _places(each.files, each.files_more))
        if partitions := ", ".join(_places(each.partitions, each.partitions_more)):
            yield f"  partitions: {partitions}"
    if fields := fields_that_differ(located):
        modified = located.rows(FailureClass.MODIFIED)
        of = "" if located.compared == modified else f" in {located.compared:,} of {modified:,} rows that were compared"
        yield f"fields that differ{of}: {fields}"
    if who := who_sees(located):
        yield who


def fields_that_differ(located: Located) -> str:
    """The columns that differ in modified rows, each with the number of such rows."""
    return ", ".join(f"{quoted(field.name)} ({field.rows:,})" for field in located.fields)


def _file_lines(of: str, files: list[str]) -> Iterator[str]:
    """Paths are long: several of them have a line each."""
    if len(files) > 1:
        yield f"  {of}:"
        yield from (f"    {each}" for each in files)
    elif files:
        yield f"  {of}: {files[0]}"


def _places(found: tuple[RowsIn, ...], left: int) -> list[str]:
    named = [f"{place(each.name)} ({each.rows:,})" for each in found[:_PLACES_NAMED]]
    rest = max(0, len(found) - _PLACES_NAMED) + left
    return [*named, f"and {rest:,} more"] if rest else named


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


def _key(sample: SampleKey) -> str:
    values = [quoted(value) for _, value in sample.key]
    text = values[0] if len(values) == 1 else f"({', '.join(values)})"
    times = f" {sample.rows:,} times" if sample.rows > 1 else ""
    fields = f" ({', '.join(map(quoted, sample.fields))})" if sample.fields else ""
    return f"{text}{times}{fields}"
