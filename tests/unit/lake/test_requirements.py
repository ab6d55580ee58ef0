"""Requirements of a commit: one that fails is a conflict, an unknown one is refused."""

from __future__ import annotations

import pytest

from pvdm.errors import ConflictError, InputError
from pvdm.lake.format.table.commit_request import REQUIREMENTS, check_requirements, is_create
from tests.support.for_each import for_each
from tests.support.lake.metadata import UUID, Doc, table

FULFILLED: list[Doc] = [
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
NOT_FULFILLED: list[tuple[Doc, str]] = [
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
    assert {str(each["type"]) for each in FULFILLED} | {"assert-create"} == REQUIREMENTS


@for_each("requirement", FULFILLED)
def test_a_fulfilled_requirement_is_accepted(requirement: Doc) -> None:
    check_requirements(table(), [requirement])


@for_each(("requirement", "reason"), NOT_FULFILLED)
def test_a_requirement_that_is_not_fulfilled_is_a_conflict(requirement: Doc, reason: str) -> None:
    with pytest.raises(ConflictError) as caught:
        check_requirements(table(), [FULFILLED[0], requirement])
    assert (caught.value.reason, caught.value.details["place"]) == (reason, "$.requirements[1]")


def test_a_missing_table_can_be_created() -> None:
    check_requirements(None, [{"type": "assert-create"}])


@for_each("requirement", FULFILLED)
def test_a_requirement_about_a_missing_table_is_a_conflict(requirement: Doc) -> None:
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
        check_requirements(table(), [NOT_FULFILLED[0][0], {"type": "assert-nothing"}])
    assert caught.value.reason == "requirement_unknown"


@for_each(
    ("requirement", "reason"),
    [
        ({"type": "assert-table-uuid"}, "lake_field_missing"),
        ({"type": "assert-current-schema-id", "current-schema-id": "1"}, "lake_value_invalid"),
        ({}, "lake_field_missing"),
        ([], "lake_value_invalid"),
    ],
)
def test_a_requirement_of_another_form_is_refused(requirement: Doc, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        check_requirements(table(), [requirement])
    assert caught.value.reason == reason


def test_too_many_requirements_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pvdm.lake.format.table.commit_request.REQUIREMENTS_MAX", 1)
    with pytest.raises(InputError) as caught:
        check_requirements(table(), FULFILLED)
    assert caught.value.reason == "requirements_too_many"


def test_main_can_be_asserted_without_an_entry_in_refs() -> None:
    check_requirements(table(refs={}), [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 12}])


def test_a_commit_that_asserts_create_creates_a_table() -> None:
    assert (is_create([{"type": "assert-create"}]), is_create(FULFILLED), is_create([])) == (True, False, False)


def test_assert_create_beside_other_requirements_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        is_create([{"type": "assert-create"}, FULFILLED[0]])
    assert caught.value.reason == "requirements_mixed"
