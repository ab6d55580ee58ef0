"""Namespaces and tables in the ledger: look-ups, taken names and UUIDs, drops, and changes from an older row."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from pvdm.errors import ConflictError, InputError, NotAllowedError, PvdmError
from pvdm.lake.paths import Pointer
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import NAMESPACE_PROPERTIES_MAX_BYTES, Levels, Namespace
from pvdm.ledger.catalog.tables import NewTable, TableRow
from tests.support.ledger.databases import NOW
from tests.support.ledger.rows import hex32, hex64

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"


@pytest.fixture
def unit(scratch: Unit) -> Unit:
    return scratch


def create_namespace(unit: Unit, *levels: str) -> Namespace:
    return namespaces.create(unit, levels or ("sales",), domain="sales", properties={"owner": "ruth"})


def new_table(namespace: Namespace, name: str = "orders", **changes: Any) -> NewTable:
    start = NewTable(namespace.namespace_id, name, "sales", UUID, f"/lake/{name}", pointer("one"), None)
    return replace(start, **changes)


def pointer(name: str) -> Pointer:
    return Pointer(f"file:///metadata/{name}.json", hex64(name))


def other_uuid(number: int) -> str:
    return f"{number:08d}-03fe-4693-9a96-a0705ddf69c1"


def reason_of(caught: pytest.ExceptionInfo[PvdmError]) -> str:
    return caught.value.reason


def test_a_namespace_is_found_by_its_levels(unit: Unit) -> None:
    found = create_namespace(unit, "sales", "raw")
    assert namespaces.get(unit, ("sales", "raw")) == found
    assert (found.domain, found.properties, found.protected_by) == ("sales", {"owner": "ruth"}, None)


@pytest.mark.parametrize("other", [("a.b",), ("a", "b", ""), ('a","b',), ("A", "b"), ("a",)])
def test_namespaces_that_look_alike_do_not_collide(unit: Unit, other: Levels) -> None:
    first, second = create_namespace(unit, "a", "b"), create_namespace(unit, *other)
    assert (namespaces.get(unit, ("a", "b")), namespaces.get(unit, other)) == (first, second)


def test_a_second_namespace_of_one_name_is_refused(unit: Unit) -> None:
    create_namespace(unit)
    with pytest.raises(ConflictError) as caught:
        create_namespace(unit)
    assert reason_of(caught) == "namespace_exists"


def test_the_database_itself_refuses_a_second_namespace_of_one_name(unit: Unit) -> None:
    create_namespace(unit)
    with pytest.raises(ConflictError) as caught:
        unit.execute(
            text("INSERT INTO namespaces VALUES (:id, '[\"sales\"]', '[]', 'x', '{}', NULL, NULL, 1)"), {"id": hex32(1)}
        )
    assert reason_of(caught) == "ledger_constraint"


def test_a_namespace_that_is_not_there_is_an_error(unit: Unit) -> None:
    with pytest.raises(InputError) as caught:
        namespaces.get(unit, ("nowhere",))
    assert (reason_of(caught), namespaces.find(unit, ("nowhere",))) == ("namespace_unknown", None)


def test_children_are_one_level_below_and_come_in_pages(unit: Unit) -> None:
    for levels in (("a",), ("b",), ("a", "x"), ("a", "y"), ("a", "x", "deep"), ("a.x",)):
        create_namespace(unit, *levels)
    assert [each.levels for each in namespaces.list_children(unit, ("a",))] == [("a", "x"), ("a", "y")]
    assert [each.levels for each in namespaces.list_children(unit, ("a",), count=1)] == [("a", "x")]
    assert [each.levels for each in namespaces.list_children(unit, ("a",), after=("a", "x"))] == [("a", "y")]
    assert {each.levels for each in namespaces.list_children(unit, ())} == {("a",), ("b",), ("a.x",)}


def test_properties_are_replaced(unit: Unit) -> None:
    namespaces.set_properties(unit, create_namespace(unit), {"é": '\n\x01"'})
    assert namespaces.get(unit, ("sales",)).properties == {"é": '\n\x01"'}


@pytest.mark.parametrize("properties", [{"a\0": "b"}, {"a": "b\0"}])
def test_a_property_that_postgresql_cannot_show_is_refused(unit: Unit, properties: dict[str, str]) -> None:
    with pytest.raises(InputError) as caught:
        namespaces.set_properties(unit, create_namespace(unit), properties)
    assert reason_of(caught) == "namespace_property_invalid"


def test_properties_that_are_too_large_are_refused(unit: Unit) -> None:
    found = create_namespace(unit)
    with pytest.raises(InputError) as caught:
        namespaces.set_properties(unit, found, {"x": "y" * NAMESPACE_PROPERTIES_MAX_BYTES})
    assert reason_of(caught) == "namespace_properties_too_large"


def test_a_namespace_is_protected_and_unprotected_again(unit: Unit) -> None:
    namespaces.protect(unit, create_namespace(unit), hex64("contract"))
    found = namespaces.get(unit, ("sales",))
    assert found.protected_by == hex64("contract")
    namespaces.protect(unit, found, None)
    assert namespaces.get(unit, ("sales",)).protected_by is None


def test_a_contract_that_is_no_hash_is_refused(unit: Unit) -> None:
    found = create_namespace(unit)
    for change in (
        lambda: namespaces.protect(unit, found, "x"),
        lambda: tables.protect(unit, create_table(unit, found), "x"),
    ):
        with pytest.raises(InputError) as caught:
            change()
        assert reason_of(caught) == "identifier_invalid"


def test_a_dropped_namespace_is_gone_and_its_name_is_free(unit: Unit) -> None:
    first = create_namespace(unit)
    namespaces.drop(unit, first)
    assert namespaces.find(unit, ("sales",)) is None
    assert namespaces.list_children(unit, ()) == []
    assert create_namespace(unit).namespace_id != first.namespace_id


@pytest.mark.parametrize("what", ["table", "namespace"])
def test_a_namespace_that_is_not_empty_is_not_dropped(unit: Unit, what: str) -> None:
    found = create_namespace(unit)
    if what == "table":
        create_table(unit, found)
    else:
        create_namespace(unit, "sales", "raw")
    with pytest.raises(ConflictError) as caught:
        namespaces.drop(unit, found)
    assert reason_of(caught) == "namespace_not_empty"


def test_a_namespace_whose_table_was_dropped_can_be_dropped(unit: Unit) -> None:
    found = create_namespace(unit)
    tables.drop(unit, create_table(unit, found))
    namespaces.drop(unit, found)
    assert namespaces.find(unit, ("sales",)) is None


@pytest.mark.parametrize("use", ["drop", "protect", "properties"])
@pytest.mark.parametrize("moved", ["changed", "dropped"])
def test_a_namespace_that_changed_since_it_was_read_is_not_changed(unit: Unit, use: str, moved: str) -> None:
    found = create_namespace(unit)
    if moved == "changed":
        namespaces.set_properties(unit, found, {"other": "first"})
    else:
        namespaces.drop(unit, found)
    again = {
        "drop": lambda: namespaces.drop(unit, found),
        "protect": lambda: namespaces.protect(unit, found, None),
        "properties": lambda: namespaces.set_properties(unit, found, {}),
    }
    with pytest.raises(ConflictError) as caught:
        again[use]()
    assert reason_of(caught) == "namespace_moved"


def create_table(unit: Unit, namespace: Namespace, name: str = "orders", **changes: Any) -> TableRow:
    return tables.create(unit, new_table(namespace, name, **changes))


def test_a_table_is_found_by_name_uuid_and_id(unit: Unit) -> None:
    namespace = create_namespace(unit)
    row = create_table(unit, namespace)
    assert tables.find(unit, namespace.namespace_id, "orders") == row
    assert tables.find_by_uuid(unit, UUID) == row
    assert tables.get_by_id(unit, row.table_id) == row
    assert (row.revision, row.protected, row.previous_location, row.pointer) == (0, False, None, pointer("one"))


def test_a_table_that_is_created_with_a_contract_is_protected(unit: Unit) -> None:
    assert create_table(unit, create_namespace(unit), contract_hash=hex64("contract")).protected


def test_a_second_table_of_one_name_is_refused(unit: Unit) -> None:
    namespace = create_namespace(unit)
    create_table(unit, namespace)
    with pytest.raises(ConflictError) as caught:
        create_table(unit, namespace, table_uuid=other_uuid(1))
    assert reason_of(caught) == "table_exists"


@pytest.mark.parametrize("uuid", [UUID, UUID.upper()])
def test_a_second_table_of_one_uuid_is_refused_in_upper_case_too(unit: Unit, uuid: str) -> None:
    namespace = create_namespace(unit)
    create_table(unit, namespace)
    with pytest.raises(ConflictError) as caught:
        create_table(unit, namespace, "other", table_uuid=uuid)
    assert reason_of(caught) == "table_uuid_taken"


def test_tables_of_one_name_in_two_namespaces_are_different_tables(unit: Unit) -> None:
    one = create_table(unit, create_namespace(unit, "a"))
    two = create_table(unit, create_namespace(unit, "b"), table_uuid=other_uuid(1))
    assert one.table_id != two.table_id


@pytest.mark.parametrize("use", ["create", "rename"])
def test_no_table_is_created_in_or_moved_to_a_dropped_namespace(unit: Unit, use: str) -> None:
    gone, row = create_namespace(unit, "gone"), create_table(unit, create_namespace(unit))
    namespaces.drop(unit, gone)
    into: dict[str, Callable[[], object]] = {
        "create": lambda: create_table(unit, gone, "lost", table_uuid=other_uuid(1)),
        "rename": lambda: tables.rename(unit, row, namespace_id=gone.namespace_id, name="lost"),
    }
    with pytest.raises(ConflictError) as caught:
        into[use]()
    assert reason_of(caught) == "namespace_moved"


def test_tables_come_in_pages_by_name(unit: Unit) -> None:
    namespace = create_namespace(unit)
    for number, name in enumerate(("c", "a", "b")):
        create_table(unit, namespace, name, table_uuid=other_uuid(number))
    tables.drop(unit, create_table(unit, namespace, "aa", table_uuid=other_uuid(9)))
    assert [row.name for row in tables.page(unit, namespace.namespace_id)] == ["a", "b", "c"]
    assert [row.name for row in tables.page(unit, namespace.namespace_id, after="a", count=1)] == ["b"]
    assert len(tables.list_live(unit)) == 3


def test_a_swap_shows_the_new_file_and_remembers_the_old_one(unit: Unit) -> None:
    row = create_table(unit, create_namespace(unit))
    swapped = tables.swap(unit, row, pointer("two"), location="/lake/moved")
    assert (swapped.pointer, swapped.previous_location) == (pointer("two"), pointer("one").location)
    assert (swapped.revision, swapped.location, swapped.table_id) == (1, "/lake/moved", row.table_id)


CHANGES = ["swap", "rename", "protect", "drop"]


def change(unit: Unit, row: TableRow, how: str) -> None:
    match how:
        case "swap":
            tables.swap(unit, row, pointer("new"))
        case "rename":
            tables.rename(unit, row, namespace_id=row.namespace_id, name="renamed")
        case "protect":
            tables.protect(unit, row, hex64("contract"))
        case _:
            tables.drop(unit, row)


@pytest.mark.parametrize("first", CHANGES)
@pytest.mark.parametrize("second", CHANGES)
def test_after_any_change_a_change_from_the_older_row_is_refused(unit: Unit, first: str, second: str) -> None:
    row = create_table(unit, create_namespace(unit))
    change(unit, row, first)
    with pytest.raises(ConflictError) as caught:
        change(unit, row, second)
    assert reason_of(caught) == "table_moved"


@pytest.mark.parametrize(
    "forged",
    [
        {"table_id": hex32("other")},
        {"namespace_id": hex32("other")},
        {"name": "other"},
        {"domain": "other"},
        {"table_uuid": other_uuid(3)},
        {"location": "/x"},
        {"pointer": pointer("forged")},
        {"pointer": replace(pointer("one"), sha256=hex64("forged"))},
        {"pointer": replace(pointer("one"), location="file:///metadata/forged.json")},
        {"previous_location": "file:///metadata/none.json"},
        {"revision": 7},
        {"contract_hash": hex64("c")},
    ],
)
def test_a_swap_compares_every_column_that_was_read(unit: Unit, forged: dict[str, Any]) -> None:
    row = create_table(unit, create_namespace(unit))
    with pytest.raises(ConflictError) as caught:
        tables.swap(unit, replace(row, **forged), pointer("two"))
    assert reason_of(caught) == "table_moved"


def test_a_renamed_table_keeps_everything_else(unit: Unit) -> None:
    row = create_table(unit, create_namespace(unit))
    other = create_namespace(unit, "other")
    tables.rename(unit, row, namespace_id=other.namespace_id, name="bills")
    assert tables.get_by_id(unit, row.table_id) == replace(
        row, namespace_id=other.namespace_id, name="bills", revision=1
    )
    assert tables.find(unit, row.namespace_id, "orders") is None


def test_renaming_a_table_to_a_taken_name_is_refused(unit: Unit) -> None:
    namespace = create_namespace(unit)
    row = create_table(unit, namespace)
    create_table(unit, namespace, "bills", table_uuid=other_uuid(1))
    with pytest.raises(ConflictError) as caught:
        tables.rename(unit, row, namespace_id=namespace.namespace_id, name="bills")
    assert reason_of(caught) == "table_exists"


def test_a_protected_table_can_be_unprotected(unit: Unit) -> None:
    row = tables.protect(unit, create_table(unit, create_namespace(unit)), hex64("contract"))
    assert row.protected
    assert not tables.protect(unit, row, None).protected


def test_a_dropped_table_is_gone_and_its_name_is_free(unit: Unit) -> None:
    namespace = create_namespace(unit)
    row = create_table(unit, namespace)
    tables.drop(unit, row)
    assert tables.find(unit, namespace.namespace_id, "orders") is None
    assert tables.find_by_uuid(unit, UUID) is None
    with pytest.raises(ConflictError):
        tables.get_by_id(unit, row.table_id)
    assert create_table(unit, namespace, table_uuid=other_uuid(1)).table_id != row.table_id


def namespace_of_dropped_table(unit: Unit, *, protected: bool = False) -> Namespace:
    """A namespace whose table was dropped; if `protected`, the table had been protected and unprotected before."""
    namespace = create_namespace(unit)
    row = create_table(unit, namespace)
    if protected:
        row = tables.protect(unit, tables.protect(unit, row, hex64("contract")), None)
    tables.drop(unit, row)
    return namespace


def test_a_dropped_table_that_was_never_protected_can_be_registered_again_at_its_location(unit: Unit) -> None:
    namespace = namespace_of_dropped_table(unit)
    row = create_table(unit, namespace, may_reuse_uuid=True, location="file:///lake//orders/", table_uuid=UUID.upper())
    assert tables.find_by_uuid(unit, UUID) == row


def test_a_table_that_moved_before_it_was_dropped_can_be_registered_again_at_its_last_location(unit: Unit) -> None:
    namespace = namespace_of_dropped_table(unit)
    row = create_table(unit, namespace, may_reuse_uuid=True)
    tables.drop(unit, tables.swap(unit, row, row.pointer, location="/lake/moved"))
    again = create_table(unit, namespace, may_reuse_uuid=True, location="/lake/moved")
    assert tables.find_by_uuid(unit, UUID) == again


@pytest.mark.parametrize(
    ("protected", "changes"),
    [
        (False, {}),
        (False, {"may_reuse_uuid": True, "location": "/lake/elsewhere"}),
        (False, {"may_reuse_uuid": True, "domain": "risk"}),
        (True, {"may_reuse_uuid": True}),
    ],
    ids=["a new table", "another place", "another domain", "protected once"],
)
def test_the_uuid_of_a_dropped_table_cannot_be_taken(unit: Unit, protected: bool, changes: dict[str, Any]) -> None:
    namespace = namespace_of_dropped_table(unit, protected=protected)
    with pytest.raises(ConflictError) as caught:
        create_table(unit, namespace, **changes)
    assert reason_of(caught) == "table_uuid_taken"


def test_the_database_itself_refuses_the_uuid_of_a_dropped_table_that_was_protected(unit: Unit) -> None:
    namespace = namespace_of_dropped_table(unit, protected=True)
    other = create_table(unit, namespace, "other", table_uuid=other_uuid(1), contract_hash=hex64("contract"))
    copy_row = "INSERT INTO tables SELECT :id, namespace_id, 'x', domain, :uuid, location, place, metadata_location, "
    copy_row += "metadata_sha256, NULL, 0, upstream, contract_hash, protected_micros, NULL, 1 "
    copy_row += "FROM tables WHERE table_id = :other"
    with pytest.raises(ConflictError) as caught:
        unit.execute(text(copy_row), {"id": hex32(1), "uuid": UUID, "other": other.table_id})
    assert reason_of(caught) == "ledger_constraint"


def test_the_time_when_a_table_was_first_protected_cannot_be_removed(unit: Unit) -> None:
    create_table(unit, create_namespace(unit), contract_hash=hex64("contract"))
    with pytest.raises(NotAllowedError, match="first protected stays known"):
        unit.execute(text("UPDATE tables SET protected_micros = NULL"))


@pytest.mark.parametrize("column", ["domain", "table_uuid"])
def test_a_tables_domain_and_uuid_cannot_be_changed(unit: Unit, column: str) -> None:
    create_table(unit, create_namespace(unit))
    with pytest.raises(NotAllowedError, match="ledger refuses the change"):
        unit.execute(text(f"UPDATE tables SET {column} = 'x'"))


def run_at_once(*works: Any) -> list[str]:
    """Run each in a thread of its own; returns "done" or the error's reason for each."""
    outcomes: list[str] = [""] * len(works)
    barrier = threading.Barrier(len(works))

    def run(place: int) -> None:
        barrier.wait()
        try:
            works[place]()
            outcomes[place] = "done"
        except PvdmError as error:
            outcomes[place] = error.reason

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_of_many_concurrent_swaps_from_one_state_one_succeeds(ledger: Ledger) -> None:
    row = ledger.transact(lambda unit: create_table(unit, create_namespace(unit)), at_micros=NOW)

    def swap(name: str) -> Any:
        return lambda: ledger.transact(lambda unit: tables.swap(unit, row, pointer(name)), at_micros=NOW)

    outcomes = run_at_once(*(swap(str(number)) for number in range(8)))
    assert sorted(outcomes) == ["done", *["table_moved"] * 7]
    with ledger.read() as unit:
        assert tables.get_by_id(unit, row.table_id).revision == 1


def test_of_many_concurrent_creations_of_one_table_one_succeeds(ledger: Ledger) -> None:
    namespace = ledger.transact(create_namespace, at_micros=NOW)

    def create(number: int) -> Any:
        return lambda: ledger.transact(
            lambda unit: create_table(unit, namespace, table_uuid=other_uuid(number)), at_micros=NOW
        )

    assert sorted(run_at_once(*(create(number) for number in range(6)))) == ["done", *["table_exists"] * 5]


def test_a_namespace_is_not_dropped_while_a_table_is_created_in_it(ledger: Ledger) -> None:
    for number in range(8):
        namespace = ledger.transact(
            lambda unit, n=number: create_namespace(unit, str(n)),  # type: ignore[misc]
            at_micros=NOW,
        )
        outcomes = run_at_once(
            lambda n=namespace: ledger.transact(lambda unit: namespaces.drop(unit, n), at_micros=NOW),
            lambda n=namespace, i=number: ledger.transact(
                lambda unit: create_table(unit, n, table_uuid=other_uuid(i)), at_micros=NOW
            ),
        )
        assert outcomes in (["done", "namespace_moved"], ["namespace_not_empty", "done"])


def test_two_swaps_of_the_same_two_tables_do_not_deadlock(ledger: Ledger) -> None:
    def create_two_tables(unit: Unit) -> list[TableRow]:
        namespace = create_namespace(unit)
        return [create_table(unit, namespace, f"t{number}", table_uuid=other_uuid(number)) for number in (1, 2)]

    rows = ledger.transact(create_two_tables, at_micros=NOW)

    def swap_both(name: str, order: list[TableRow]) -> Any:
        def work(unit: Unit) -> None:
            tables.lock(unit, [row.table_uuid for row in order])
            for row in order:
                tables.swap(unit, row, pointer(f"{name}{row.name}"))

        return lambda: ledger.transact(work, at_micros=NOW)

    assert sorted(run_at_once(swap_both("a", rows), swap_both("b", rows[::-1]))) == ["done", "table_moved"]
