"""Projections: the order of columns, columns that may not be left out, and exclusions with a reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pvdm.digest import Plan
from pvdm.errors import InputError
from pvdm.model.projection import Exclusion, Projection, ProjectionName, content, identity
from pvdm.model.schema import Field, Kind, PrimitiveType, Schema

STRING = PrimitiveType(Kind.STRING)
SCHEMA = Schema((Field("id", PrimitiveType(Kind.LONG), required=True), Field("Zone", STRING), Field("amount", STRING)))


def reason_of(caught: pytest.ExceptionInfo[InputError]) -> str:
    return caught.value.reason


def test_content_has_every_column_in_code_point_order() -> None:
    assert content(SCHEMA).columns == ("Zone", "amount", "id")


def test_identity_has_the_keys_in_code_point_order() -> None:
    assert identity(SCHEMA, ["id", "Zone"]).columns == ("Zone", "id")


def test_listed_columns_that_are_all_columns_are_accepted() -> None:
    assert content(SCHEMA, columns=["id", "amount", "Zone"]) == content(SCHEMA)


def test_a_content_projection_that_leaves_a_column_out_silently_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        content(SCHEMA, columns=["id", "amount"])
    assert reason_of(caught) == "coverage_incomplete"


def test_the_error_names_the_column_that_is_left_out() -> None:
    with pytest.raises(InputError, match="Zone"):
        content(SCHEMA, columns=["id", "amount"])


def test_an_exclusion_with_a_reason_leaves_the_column_out() -> None:
    assert content(SCHEMA, exclude={"Zone": "load time, differs by run"}).columns == ("amount", "id")


def test_an_exclusion_is_kept_with_its_reason() -> None:
    assert content(SCHEMA, exclude={"Zone": "load time"}).excluded == (Exclusion("Zone", "load time"),)


def test_an_exclusion_and_its_reason_are_in_the_json() -> None:
    assert content(SCHEMA, exclude={"Zone": "load time"}).to_json() == {
        "name": "content",
        "columns": ["amount", "id"],
        "excluded": [{"column": "Zone", "reason": "load time"}],
    }


@pytest.mark.parametrize("reason", ["", "  ", "\n\t"])
def test_an_exclusion_without_a_reason_is_refused(reason: str) -> None:
    with pytest.raises(InputError) as caught:
        content(SCHEMA, exclude={"Zone": reason})
    assert reason_of(caught) == "exclusion_reason_missing"


def test_an_excluded_column_that_is_listed_too_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        content(SCHEMA, columns=["id", "amount", "Zone"], exclude={"Zone": "load time"})
    assert reason_of(caught) == "coverage_incomplete"


def test_excluding_every_column_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        content(SCHEMA, exclude=dict.fromkeys(SCHEMA.names, "why not"))
    assert reason_of(caught) == "projection_empty"


def test_an_identity_without_keys_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        identity(SCHEMA, [])
    assert reason_of(caught) == "projection_empty"


@pytest.mark.parametrize(
    "make",
    [
        lambda: identity(SCHEMA, ["id", "id"]),
        lambda: content(SCHEMA, columns=["id", "amount", "Zone", "id"]),
        lambda: Plan(SCHEMA, (Projection(ProjectionName.CONTENT, ("Zone", "amount", "id", "id")),)),
    ],
    ids=["key", "column", "plan"],
)
def test_a_column_named_twice_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InputError, match="named twice") as caught:
        make()
    assert (reason_of(caught), caught.value.expected) == ("projection_invalid", "distinct columns")


@pytest.mark.parametrize(
    "make",
    [
        lambda: identity(SCHEMA, ["ID"]),
        lambda: content(SCHEMA, columns=["id", "amount", "Zone", "ghost"]),
        lambda: content(SCHEMA, exclude={"ghost": "never there"}),
    ],
    ids=["key", "column", "exclusion"],
)
def test_a_column_that_the_schema_does_not_have_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(InputError) as caught:
        make()
    assert reason_of(caught) == "projection_column_unknown"


def test_the_projections_have_the_names_used_in_proofs() -> None:
    assert [name.value for name in ProjectionName] == ["identity", "content"]
