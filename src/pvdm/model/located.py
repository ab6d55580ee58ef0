"""The wrong rows of a FAIL verdict, by failure class (missing, added, duplicated, modified), file and partition."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Final

from pvdm.model.codec import NOT_STORED, Count, Document, FieldType
from pvdm.model.fields import Fields, invalid
from pvdm.model.printable import counted, quoted, quoted_path
from pvdm.model.role import Role
from pvdm.model.statements.core import Profile
from pvdm.model.statements.verdict import FailureClass

# The failure classes that are about rows, in the order of the report.
ROW_CLASSES: Final = (FailureClass.MISSING, FailureClass.ADDED, FailureClass.DUPLICATED, FailureClass.MODIFIED)


@dataclass(frozen=True, slots=True)
class WrongRowCount(Document, title="located rows"):
    """A file, partition or field by its name, and the number of wrong rows in it."""

    name: str
    rows: Count


def _read_key(fields: Fields, key: str) -> tuple[tuple[str, str | None], ...]:
    parts = [Fields(item, "a part of a key", ("column", "value")) for item in fields.items(key)]
    return tuple((part.text("column"), part.optional_text("value")) for part in parts)


_KEY: Final = FieldType(_read_key, lambda key: [{"column": column, "value": value} for column, value in key])


@dataclass(frozen=True, slots=True)
class SampleKey(Document, title="a sample key"):
    """A key of wrong rows: columns and values as text, its number of rows, and where the first row was found.

    `file` is the staged file, or for a missing row the source file. `fields` are the columns that differ in the first
    modified row of the key; None if they are unknown.
    """

    key: Annotated[tuple[tuple[str, str | None], ...], _KEY]
    rows: Count
    file: str
    partition: str | None
    fields: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class LocatedClass(Document, title="a located class"):
    """The wrong rows of one failure class: their number, their files and partitions, and the first keys.

    Files and partitions are the source's for missing rows, and else the staged ones. `…_more`: how many are not listed.
    """

    failure: FailureClass
    rows: Count
    files: tuple[WrongRowCount, ...] = ()
    files_more: Count = 0
    partitions: tuple[WrongRowCount, ...] = ()
    partitions_more: Count = 0
    samples: tuple[SampleKey, ...] = ()

    def require_consistent(self) -> None:
        """Rows can have this class, and there is at least one row."""
        if self.failure not in ROW_CLASSES or self.rows < 1:
            raise invalid("a located class", "at least one row of a class of rows", f"{self.rows} {self.failure.value}")


@dataclass(frozen=True, slots=True)
class WrongRows(Document, title="what was located"):
    """Every class of wrong rows, or the code and message of the problem that prevented locating them.

    `fields` are the columns that differ in modified rows; `compared` counts the modified rows that were compared.
    Not stored are `withheld` (the caller may not see everything) and `keys_for` (the roles that may see keys).
    """

    classes: tuple[LocatedClass, ...] = ()
    fields: tuple[WrongRowCount, ...] = ()
    compared: Count = 0
    problem_code: str | None = None
    problem: str | None = None
    withheld: Annotated[bool, NOT_STORED] = False
    keys_for: Annotated[tuple[Role, ...], NOT_STORED] = ()

    def require_consistent(self) -> None:
        """There are either classes or a problem."""
        if bool(self.classes) == (self.problem_code is not None):
            raise invalid("what was located", "classes, or why there are none", "both or neither")

    @classmethod
    def not_located(cls, code: str, message: str) -> WrongRows:
        """The result if rows could not be located, with the code and message of the problem."""
        return cls(problem_code=code, problem=message)

    @property
    def failures(self) -> frozenset[FailureClass]:
        """The classes that were found."""
        return frozenset(each.failure for each in self.classes)

    def rows(self, failure: FailureClass) -> int:
        """The number of rows of a class."""
        return next((each.rows for each in self.classes if each.failure is failure), 0)

    def view_for(self, role: Role, keys_for: Collection[Role], profile: Profile) -> WrongRows | None:
        """All for the Steward and the roles `keys_for`, None for a producer under Profile T, else `without_values`."""
        view = replace(self, keys_for=tuple(sorted(keys_for)))
        if role is Role.STEWARD or role in keys_for:
            return view
        if role is Role.PRODUCER and profile is Profile.T:
            return None
        return replace(view.without_values(), withheld=True)

    def without_values(self) -> WrongRows:
        """The counts and the staged files, without values of data and without names that may contain values."""
        classes = tuple(_without_names(each) for each in self.classes)
        # An error message may quote data.
        return replace(self, classes=classes, fields=(), compared=0, problem=None)


def _without_names(each: LocatedClass) -> LocatedClass:
    """The class with names of staged files only: names of source files and partitions can contain values."""
    if each.failure is FailureClass.MISSING:
        return LocatedClass(each.failure, each.rows)
    return LocatedClass(each.failure, each.rows, each.files, each.files_more)


def select_largest(found: Iterable[tuple[str, int]], listed: int) -> tuple[tuple[WrongRowCount, ...], int]:
    """The `listed` names with the most rows, and the number of other names."""
    ordered = sorted(found, key=lambda each: (-each[1], each[0]))
    return tuple(WrongRowCount(name, rows) for name, rows in ordered[:listed]), max(0, len(ordered) - listed)


_KEYS_NAMED: Final = 6  # sample keys in a sentence
_PLACES_NAMED: Final = 3  # files or partitions of a class


def describe_counts(located: WrongRows) -> str:
    """The number of rows of each class, such as `6 rows missing, 1 row modified`."""
    return ", ".join(f"{counted(each.rows, 'row')} {each.failure.value}" for each in located.classes)


def first_keys(each: LocatedClass, *, named: int = _KEYS_NAMED) -> str:
    """The first keys, as in `first missing order_id: 88121, 88122`, with fields that differ. Empty without keys."""
    if not each.samples:
        return ""
    names = [quoted(name) for name, _ in each.samples[0].key]
    head = names[0] if len(names) == 1 else f"({', '.join(names)})"
    kept = len(each.samples)
    more = f", … ({named} of {kept} sample keys)" if kept > named else ""
    return f"first {each.failure.value} {head}: {', '.join(_format_key(key) for key in each.samples[:named])}{more}"


def explain_more_keys(located: WrongRows, workload_id: str) -> str | None:
    """How to see the keys that `first_keys` leaves out; None if it shows all keys."""
    if all(len(each.samples) <= _KEYS_NAMED for each in located.classes):
        return None
    return f"all sample keys: `pvdm status --workload-id {workload_id} --json`"


def explain_hidden_keys(located: WrongRows) -> str | None:
    """Which roles may see keys, if the caller saw none; otherwise None."""
    if not located.classes or any(each.samples for each in located.classes):
        return None
    if not located.keys_for:
        return "no role may see keys: the contract's governance.sample-keys is empty"
    roles = " and ".join(each.value for each in located.keys_for)
    return f"keys, partitions and fields that differ are for the {roles}, by the contract's governance.sample-keys"


def files_of(each: LocatedClass) -> str:
    """The files with the most rows of a class, each with its number of rows, and the number of other files."""
    return ", ".join(_list_places(each.files, each.files_more))


def describe(located: WrongRows) -> Iterator[str]:
    """The lines of the whole report."""
    if located.problem_code is not None:
        why = "" if located.problem is None else f": {located.problem}"
        yield f"rows were not located ({located.problem_code}){why}"
    for each in located.classes:
        yield f"{counted(each.rows, 'row')} {each.failure.value}"
        if keys := first_keys(each):
            yield f"  {keys}"
        label = "source files" if each.failure is FailureClass.MISSING else "files"
        yield from _file_lines(label, _list_places(each.files, each.files_more))
        if partitions := ", ".join(_list_places(each.partitions, each.partitions_more)):
            yield f"  partitions: {partitions}"
    if fields := fields_that_differ(located):
        modified = located.rows(FailureClass.MODIFIED)
        partly = f" ({located.compared:,} of {modified:,} modified rows were compared)"
        yield f"fields that differ{'' if located.compared == modified else partly}: {fields}"
    if explanation := explain_hidden_keys(located):
        yield explanation


def fields_that_differ(located: WrongRows) -> str:
    """The columns that differ in modified rows, each with the number of such rows."""
    return ", ".join(f"{quoted(field.name)} ({field.rows:,})" for field in located.fields)


def _file_lines(label: str, files: list[str]) -> Iterator[str]:
    """One file on the line of the label, several on a line each, because paths are long."""
    if len(files) > 1:
        yield f"  {label}:"
        yield from (f"    {each}" for each in files)
    elif files:
        yield f"  {label}: {files[0]}"


def _list_places(found: tuple[WrongRowCount, ...], not_listed: int) -> list[str]:
    named = [f"{quoted_path(each.name)} ({each.rows:,})" for each in found[:_PLACES_NAMED]]
    rest = max(0, len(found) - _PLACES_NAMED) + not_listed
    return [*named, f"and {rest:,} more"] if rest else named


def _format_key(sample: SampleKey) -> str:
    values = [quoted(value) for _, value in sample.key]
    text = values[0] if len(values) == 1 else f"({', '.join(values)})"
    times = f" {sample.rows:,} times" if sample.rows > 1 else ""
    fields = f" ({', '.join(map(quoted, sample.fields))})" if sample.fields else ""
    return f"{text}{times}{fields}"
