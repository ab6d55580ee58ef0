"""Requirements of a commit: one that fails is a conflict, an unknown one is refused."""

from __future__ import annotations

import pytest

from pvdm.errors import ConflictError, InputError
from pvdm.lake.format.table.commit_request import REQUIREMENTS, check_requirements, is_create
from tests.support.lake.metadata import UUID, Doc, table

HOLD: list[Doc] = [
    {"type": "assert-table-uuid", "uuid": UUID},
    {"type": "assert-table-uuid", "uuid": UUID.upper()},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 12},
    {"type": "assert-ref-snapshot-id", "ref": "new", "snapshot-id": None},
    {"type": "assert-ref-snapshot-id", "ref": "new"},
    {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 4},
    {"type": "assert-current-schema-id", "current-schema-id": 1},
    {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 1000},
    {"type": "assert-default-spec-id", "default-spec-id": 1},
    {"type": "assert-default-sort-order-id", "default-sort-order-id": 3},
]
FAIL: list[tuple[Doc, str]] = [
    ({"type": "assert-create"}, "requirement_table_exists"),
    ({"type": "assert-table-uuid", "uuid": "00000000-0000-0000-0000-000000000000"}, "requirement_uuid"),
    ({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 11}, "requirement_ref_moved"),
    ({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}, "requirement_ref_exists"),
    ({"type": "assert-ref-snapshot-id", "ref": "new", "snapshot-id": 12}, "requirement_ref_missing"),
    ({"type": "assert-last-assigned-field-id", "last-assigned-field-id": 3}, "requirement_id_changed"),
    ({"type": "assert-current-schema-id", "current-schema-id": 0}, "requirement_id_changed"),
    ({"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 999}, "requirement_id_changed"),
    ({"type": "assert-default-spec-id", "default-spec-id": 0}, "requirement_id_changed"),
    ({"type": "assert-default-sort-order-id", "default-sort-order-id": 0}, "requirement_id_changed"),
]


def test_every_requirement_of_the_specification_is_known() -> None:
    assert {str(each["type"]) for each in HOLD} | {"assert-create"} == REQUIREMENTS


@pytest.mark.parametrize("requirement", HOLD)
def test_a_requirement_that_holds_lets_the_commit_pass(requirement: Doc) -> None:
    check_requirements(table(), [requirement])


@pytest.mark.parametrize(("requirement", "code"), FAIL)
def test_a_requirement_that_does_not_hold_is_a_conflict(requirement: Doc, code: str) -> None:
    with pytest.raises(ConflictError) as caught:
        check_requirements(table(), [HOLD[0], requirement])
    assert (caught.value.reason, caught.value.details["place"]) == (code, "$.requirements[1]")


def test_a_table_that_is_not_there_can_be_created() -> None:
    check_requirements(None, [{"type": "assert-create"}])


@pytest.mark.parametrize("requirement", HOLD)
def test_nothing_holds_of_a_table_that_is_not_there(requirement: Doc) -> None:
    with pytest.raises(ConflictError) as caught:
        check_requirements(None, [requirement])
    assert caught.value.reason == "requirement_table_missing"


@pytest.mark.parametrize("kind", ["assert-view-uuid", "assert-nothing", ""])
def test_an_unknown_requirement_is_refused_by_name(kind: str) -> None:
    with pytest.raises(InputError) as caught:
        check_requirements(table(), [{"type": kind, "uuid": UUID}])
    assert caught.value.reason == "requirement_unknown"


def test_an_unknown_requirement_is_refused_even_after_one_that_fails() -> None:
    with pytest.raises(InputError) as caught:
        check_requirements(table(), [FAIL[0][0], {"type": "assert-nothing"}])
    assert caught.value.reason == "requirement_unknown"


@pytest.mark.parametrize(
    ("requirement", "code"),
    [
        ({"type": "assert-table-uuid"}, "lake_field_missing"),
        ({"type": "assert-current-schema-id", "current-schema-id": "1"}, "lake_value_invalid"),
        ({}, "lake_field_missing"),
        ([], "lake_value_invalid"),
    ],
)
def test_a_requirement_of_another_form_is_refused(requirement: Doc, code: str) -> None:
    with pytest.raises(InputError) as caught:
        check_requirements(table(), [requirement])
    assert caught.value.reason == code


def test_too_many_requirements_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pvdm.lake.format.table.commit_request.REQUIREMENTS_MAX", 1)
    with pytest.raises(InputError) as caught:
        check_requirements(table(), HOLD)
    assert caught.value.reason == "requirements_too_many"


def test_main_that_is_not_written_down_is_asserted_all_the_same() -> None:
    check_requirements(table(refs={}), [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 12}])


def test_a_commit_that_asserts_create_makes_a_table() -> None:
    assert (is_create([{"type": "assert-create"}]), is_create(HOLD), is_create([])) == (True, False, False)


def test_a_commit_that_makes_a_table_requires_nothing_else() -> None:
    with pytest.raises(InputError) as caught:
        is_create([{"type": "assert-create"}, HOLD[0]])
    assert caught.value.reason == "requirements_mixed"
