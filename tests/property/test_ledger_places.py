"""The search for overlapping tables: the index gives the answer of a scan of all tables."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import make_url, select, text

from pvdm.errors import InputError
from pvdm.lake.paths import Location, Pointer, parse_location
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.tables import TABLE_PLACE_MAX_BYTES, NewTable, TableRow
from pvdm.ledger.schema import catalog
from tests.support.ledger.databases import NOW
from tests.support.ledger.rows import hex32, hex64
from tools.ledger_sql import statements

pytestmark = pytest.mark.property

# Characters around the slash in the order of bytes, letters that a locale would order otherwise, and wild cards.
_PART = st.text(st.sampled_from("aAbB.-0_% é\U0001f300"), min_size=1, max_size=2).filter(lambda each: each.strip("."))
_PLACES = st.builds(
    lambda scheme, parts: f"{scheme}/{'/'.join(parts)}",
    st.sampled_from(["file://", "", "s3://a", "s3a://a", "s3://ab", "gs://a"]),
    st.lists(_PART, max_size=4),
).map(lambda each: each or "/")


def overlaps_any_table(unit: Unit, place: Location, *, except_id: str | None) -> bool:
    """Whether a table overlaps the place, found by a scan of all tables."""
    rows = [row for row in tables.list_live(unit) if row.table_id != except_id]
    return any(place.overlaps(parse_location(row.location)) for row in rows)


def create_table(unit: Unit, namespace_id: str, number: int, location: str) -> TableRow:
    pointer = Pointer(f"file:///m/{number}.json", hex64(str(number)))
    return tables.create(
        unit, NewTable(namespace_id, f"t{number}", "sales", str(uuid.uuid4()), location, pointer, None)
    )


@given(existing=st.lists(_PLACES, max_size=6), searched=_PLACES, moved=st.booleans(), gone=st.booleans())
@example(existing=["/a/b"], searched="/a", moved=False, gone=False)
@example(existing=["/a"], searched="/a/b/c", moved=False, gone=False)
@example(existing=["/a0", "/a-", "/a.", "/A"], searched="/a", moved=False, gone=False)
@example(existing=["/"], searched="/a", moved=False, gone=False)
@example(existing=["/a/é"], searched="/a", moved=False, gone=False)
@example(existing=["s3://ab/x"], searched="s3://a/", moved=False, gone=False)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
def test_the_index_gives_the_answer_of_a_scan_of_all_tables(
    shared_ledger: Ledger, existing: list[str], searched: str, moved: bool, gone: bool
) -> None:
    place = parse_location(searched)
    with shared_ledger.write(at_micros=NOW) as unit:
        home = namespaces.create(unit, (str(uuid.uuid4()),), domain="sales", properties={}).namespace_id
        rows = [create_table(unit, home, number, location) for number, location in enumerate(existing)]
        if moved and rows:
            rows[0] = tables.swap(unit, rows[0], Pointer("file:///m/new.json", hex64("new")), location="/moved/here")
        if gone and rows:
            tables.drop(unit, rows[-1])
        for except_id in (None, *(row.table_id for row in rows)):
            found = tables.find_overlapping(unit, place, except_id=except_id)
            assert (found is not None) is overlaps_any_table(unit, place, except_id=except_id)
            assert found is None or place.overlaps(parse_location(found.location))


def test_a_place_that_is_too_long_for_an_index_is_refused() -> None:
    fits = "/" + "x" * (TABLE_PLACE_MAX_BYTES - len("file:////"))
    assert len(tables.place_key(parse_location(fits))) == TABLE_PLACE_MAX_BYTES
    with pytest.raises(InputError) as caught:
        tables.place_key(parse_location(fits + "y"))
    assert caught.value.reason == "location_invalid"


def test_postgresql_orders_places_by_their_bytes_whatever_its_locale() -> None:
    assert [each for each in statements("postgresql") if '\tplace TEXT COLLATE "C" NOT NULL' in each]


def test_the_longest_place_is_held_by_both_databases(scratch: Unit) -> None:
    home = namespaces.create(scratch, ("long",), domain="sales", properties={}).namespace_id
    # Hexadecimal of a hash: nothing that a database could make shorter.
    name = "".join(hex64(str(number)) for number in range(40))[: TABLE_PLACE_MAX_BYTES - len("file:////")]
    row = create_table(scratch, home, 1, f"/{name}")
    assert tables.find_overlapping(scratch, parse_location(f"/{name[:100]}")) is None
    assert tables.find_overlapping(scratch, parse_location("/")) == row


def fill(unit: Unit, count: int) -> None:
    """Create many tables, and let the database analyze them."""
    home = namespaces.create(unit, ("many",), domain="sales", properties={}).namespace_id
    create_table(unit, home, 0, "/many/0")
    first = dict(unit.rows(select(catalog.tables))[0])
    rows = [
        first | {"table_id": hex32(n), "table_uuid": str(n), "name": f"t{n}", "place": f"file:///many/{n}/"}
        for n in range(1, count)
    ]
    unit.insert_many(catalog.tables, rows)
    unit.execute(text("ANALYZE tables"))


def test_the_search_for_overlapping_tables_uses_the_index(scratch: Unit) -> None:
    fill(scratch, 2_000)
    dialect = make_url("sqlite://" if scratch.is_sqlite else "postgresql+psycopg://").get_dialect()()
    for query in tables.select_overlapping(parse_location("/many/7/x")):
        statement = str(query.limit(1).compile(dialect=dialect, compile_kwargs={"literal_binds": True}))
        steps = scratch.rows(text(f"EXPLAIN {'QUERY PLAN ' if scratch.is_sqlite else ''}{statement}"))
        plan = " ".join(str(value) for step in steps for value in step.values())
        assert "tables_place" in plan
        assert ("SEARCH tables" if scratch.is_sqlite else "Index Cond") in plan
