"""Located faults: which rows are missing, added, duplicated and modified, by file and partition, with sample keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from pvdm.model.canonical_json import Value
from pvdm.model.fields import Fields, invalid
from pvdm.model.role import Role
from pvdm.model.statements.core import Profile
from pvdm.model.statements.verdict import FailureClass

# The classes that rows can have, in the order in which they are told.
ROW_CLASSES: Final = (FailureClass.MISSING, FailureClass.ADDED, FailureClass.DUPLICATED, FailureClass.MODIFIED)
_CLASS_KEYS: Final = ("failure", "rows", "files", "files_more", "partitions", "partitions_more", "samples")


@dataclass(frozen=True, slots=True)
class RowsIn:
    """So many rows of a class in one file, or one partition, or with one field."""

    name: str
    rows: int

    def to_json(self) -> Value:
        """In the document."""
        return {"name": self.name, "rows": self.rows}

    @classmethod
    def from_json(cls, value: Value) -> RowsIn:
        """What `to_json` wrote."""
        fields = Fields(value, "located rows", ("name", "rows"))
        return cls(fields.text("name"), fields.number("rows"))


@dataclass(frozen=True, slots=True)
class SampleKey:
    """One key of a class: its values as text, in the table's order; in how many rows it is so, where it was first seen.

    `file` is the staged file, or for a missing row the source's; `fields` are those that differ in the first modified
    row of the key, and None where that is not known.
    """

    key: tuple[tuple[str, str | None], ...]
    rows: int
    file: str
    partition: str | None
    fields: tuple[str, ...] | None = None

    def to_json(self) -> Value:
        """In the document."""
        return {
            "key": [{"column": column, "value": value} for column, value in self.key],
            "rows": self.rows,
            "file": self.file,
            "partition": self.partition,
            "fields": None if self.fields is None else list(self.fields),
        }

    @classmethod
    def from_json(cls, value: Value) -> SampleKey:
        """What `to_json` wrote."""
        fields = Fields(value, "a sample key", ("key", "rows", "file", "partition", "fields"))
        return cls(
            tuple(_part(each) for each in fields.items("key")),
            fields.number("rows"),
            fields.text("file"),
            fields.optional_text("partition"),
            None if fields.value("fields") is None else tuple(fields.texts("fields")),
        )


def _part(value: Value) -> tuple[str, str | None]:
    fields = Fields(value, "a part of a key", ("column", "value"))
    return fields.text("column"), fields.optional_text("value")


@dataclass(frozen=True, slots=True)
class LocatedClass:
    """The rows of one class: how many, in which files and partitions, and the first keys.

    Files and partitions are the staged ones, for missing rows the source's; `…_more` says how many are not listed.
    """

    failure: FailureClass
    rows: int
    files: tuple[RowsIn, ...] = ()
    files_more: int = 0
    partitions: tuple[RowsIn, ...] = ()
    partitions_more: int = 0
    samples: tuple[SampleKey, ...] = ()

    def __post_init__(self) -> None:
        if self.failure not in ROW_CLASSES or self.rows < 1:
            raise invalid("a located class", "rows of a class that rows have", f"{self.rows} {self.failure.value}")

    def to_json(self) -> Value:
        """In the document."""
        return {
            "failure": self.failure.value,
            "rows": self.rows,
            "files": [each.to_json() for each in self.files],
            "files_more": self.files_more,
            "partitions": [each.to_json() for each in self.partitions],
            "partitions_more": self.partitions_more,
            "samples": [each.to_json() for each in self.samples],
        }

    @classmethod
    def from_json(cls, value: Value) -> LocatedClass:
        """What `to_json` wrote."""
        fields = Fields(value, "a located class", _CLASS_KEYS)
        return cls(
            fields.choice("failure", FailureClass),
            fields.number("rows"),
            tuple(RowsIn.from_json(each) for each in fields.items("files")),
            fields.number("files_more"),
            tuple(RowsIn.from_json(each) for each in fields.items("partitions")),
            fields.number("partitions_more"),
            tuple(SampleKey.from_json(each) for each in fields.items("samples")),
        )


@dataclass(frozen=True, slots=True)
class Located:
    """Every class of wrong rows; or why rows could not be located, which is told as code and sentence.

    `fields` are the columns that differ in modified rows, with the number of such rows among the `compared` ones.
    Not kept, but told: `withheld`, where the one who asks may not see all of it, and `keys_for`, the roles that may.
    """

    classes: tuple[LocatedClass, ...] = ()
    fields: tuple[RowsIn, ...] = ()
    compared: int = 0
    problem_code: str | None = None
    problem: str | None = None
    withheld: bool = False
    keys_for: tuple[Role, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.classes) == (self.problem_code is not None):
            raise invalid("what was located", "classes, or why there are none", "both or neither")

    @classmethod
    def not_located(cls, code: str, message: str) -> Located:
        """Nothing is known of single rows, for this reason."""
        return cls(problem_code=code, problem=message)

    @property
    def failures(self) -> frozenset[FailureClass]:
        """The classes that were met."""
        return frozenset(each.failure for each in self.classes)

    def rows(self, failure: FailureClass) -> int:
        """How many rows of a class."""
        return next((each.rows for each in self.classes if each.failure is failure), 0)

    def seen_by(self, role: Role, sample_keys: Collection[Role], profile: Profile) -> Located | None:
        """What a role is told: all of it by `sample_keys`, else counts; under Profile T producers get classes only."""
        told = replace(self, keys_for=tuple(sorted(sample_keys)))
        if role is Role.STEWARD or role in sample_keys:
            return told
        if role is Role.PRODUCER and profile is Profile.T:
            return None
        return replace(told.without_values(), withheld=True)

    def without_values(self) -> Located:
        """What may be told to everybody who may see counts: nothing that is a value, or a name, of data."""
        classes = tuple(_counted(each) for each in self.classes)
        # An error's sentence may quote what it met.
        return replace(self, classes=classes, fields=(), compared=0, problem=None)

    def to_json(self) -> dict[str, Value]:
        """The document that is kept."""
        return {
            "classes": [each.to_json() for each in self.classes],
            "fields": [each.to_json() for each in self.fields],
            "compared": self.compared,
            "problem_code": self.problem_code,
            "problem": self.problem,
        }

    @classmethod
    def from_json(cls, value: Value) -> Located:
        """What `to_json` wrote."""
        fields = Fields(value, "what was located", ("classes", "fields", "compared", "problem_code", "problem"))
        return cls(
            tuple(LocatedClass.from_json(each) for each in fields.items("classes")),
            tuple(RowsIn.from_json(each) for each in fields.items("fields")),
            fields.number("compared"),
            fields.optional_text("problem_code"),
            fields.optional_text("problem"),
        )


def _counted(each: LocatedClass) -> LocatedClass:
    """Staged files are the producer's own; those of the source, and partitions, are named after values."""
    own = each.failure is not FailureClass.MISSING
    return LocatedClass(each.failure, each.rows, each.files if own else (), each.files_more if own else 0)


def most(counted: Iterable[tuple[str, int]], listed: int) -> tuple[tuple[RowsIn, ...], int]:
    """The names with the most rows, and how many names are left out."""
    ordered = sorted(counted, key=lambda each: (-each[1], each[0]))
    return tuple(RowsIn(name, rows) for name, rows in ordered[:listed]), max(0, len(ordered) - listed)
