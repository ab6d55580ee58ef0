"""What the Steward answers about located rows, as the model's own values."""

from __future__ import annotations

from pvdm.client.reading import Reading
from pvdm.model.located import Located, LocatedClass, RowsIn, SampleKey
from pvdm.model.role import Role
from pvdm.model.statements.verdict import FailureClass


def read_located(value: object) -> Located:
    """The answer's value."""
    fields = Reading(value, "what was located")
    return Located(
        fields.items("classes", _class),
        fields.items("fields", _rows_in),
        fields.decimal("compared"),
        fields.optional_text("problem_code"),
        fields.optional_text("problem"),
        fields.flag("withheld"),
        tuple(Role(each) for each in fields.texts("keys_for")),
    )


def _class(value: object) -> LocatedClass:
    fields = Reading(value, "a located class")
    return LocatedClass(
        fields.choice("failure", FailureClass),
        fields.decimal("rows"),
        fields.items("files", _rows_in),
        fields.number("files_more"),
        fields.items("partitions", _rows_in),
        fields.number("partitions_more"),
        fields.items("samples", _sample),
    )


def _rows_in(value: object) -> RowsIn:
    fields = Reading(value, "located rows")
    return RowsIn(fields.text("name"), fields.decimal("rows"))


def _sample(value: object) -> SampleKey:
    fields = Reading(value, "a sample key")
    return SampleKey(
        fields.items("key", _part),
        fields.decimal("rows"),
        fields.text("file"),
        fields.optional_text("partition"),
        None if fields.value("fields") is None else fields.texts("fields"),
    )


def _part(value: object) -> tuple[str, str | None]:
    fields = Reading(value, "a part of a key")
    return fields.text("column"), fields.optional_text("value")
