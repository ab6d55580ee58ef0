"""Projections: the columns of a target that are hashed. No column is left out without a declared reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from pvdm.errors import Code
from pvdm.model.codec import Document
from pvdm.model.schema import Schema


class ProjectionName(Enum):
    """The two projections: the contract's key columns, and all columns not excluded. A value is the name in proofs."""

    IDENTITY = "identity"
    CONTENT = "content"


@dataclass(frozen=True, slots=True)
class Exclusion(Document, title="an exclusion"):
    """A column that the content projection leaves out, with the reason. Proofs contain both."""

    column: str
    reason: str


@dataclass(frozen=True, slots=True)
class Projection(Document, title="a projection"):
    """Columns of a target, sorted by name. `identity` and `content` below create projections for a schema."""

    name: ProjectionName
    columns: tuple[str, ...]
    excluded: tuple[Exclusion, ...] = ()

    def require_consistent(self) -> None:
        """There is at least one column."""
        if not self.columns:
            message, least = f"the {self.name.value} projection has no column", "at least one column"
            raise Code.PROJECTION_INVALID(message, reason="projection_empty", expected=least, got="none")


def identity(schema: Schema, keys: Iterable[str]) -> Projection:
    """The projection of the declared key columns. Raises for an unknown or repeated column, or without a column."""
    names = _require_names(keys)
    for name in names:
        schema.column(name)
    return Projection(ProjectionName.IDENTITY, tuple(sorted(names)))


def content(
    schema: Schema, *, columns: Iterable[str] | None = None, exclude: Mapping[str, str] | None = None
) -> Projection:
    """Every column except those of `exclude`, each with a reason. `columns`, if given, must be all other columns."""
    # `PLAN_INVALID` is the error of the digest plan (pvdm.digest.plan), which checks its content projection here.
    exclude = exclude or {}
    unchecked: object = exclude  # its type is checked at run time too: callers may not use a type checker
    if not isinstance(unchecked, Mapping):
        message, expected = "exclusions cannot be accepted", "a mapping from column to reason"
        raise Code.PROJECTION_INVALID(message, expected=expected, got=type(unchecked).__name__)
    for name, reason in unchecked.items():
        schema.column(name)
        if not isinstance(reason, str) or not reason.strip():
            message = f"column {name!r} is excluded from the content projection without a reason"
            raise Code.PLAN_INVALID(message, reason="exclusion_reason_missing", got="none", column=name)
    required = {name for name in schema.names if name not in exclude}
    if columns is not None:
        declared = set(_require_names(columns))
        for name in declared:
            schema.column(name)
        if declared != required:
            missing = ", ".join(sorted(required - declared))
            fault = f"missing: {missing}" if missing else "excluded ones are listed too"
            got = f"{len(declared)}; {fault}"
            raise Code.PLAN_INVALID(reason="coverage_incomplete", expected=f"{len(required)} columns", got=got)
    return Projection(
        ProjectionName.CONTENT,
        tuple(sorted(required)),
        tuple(Exclusion(name, exclude[name]) for name in sorted(exclude)),
    )


def _require_names(columns: Iterable[str]) -> list[str]:
    """The names as a list. Raises for a repeated name, and for a single string: its characters are not names."""
    names = [columns] if isinstance(columns, str) else list(columns)
    if isinstance(columns, str) or not all(isinstance(name, str) for name in names):
        message = "columns cannot be accepted"
        raise Code.PROJECTION_INVALID(message, expected="a list of column names", got=repr(columns)[:80])
    if len(set(names)) != len(names):
        raise Code.PROJECTION_INVALID("a column is named twice", expected="distinct columns", got=", ".join(names))
    return names
