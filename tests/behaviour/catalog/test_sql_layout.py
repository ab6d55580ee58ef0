"""The ledger's views in the layout of PyIceberg's SqlCatalog: PyIceberg reads them, and the database refuses writes."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import DBAPIError

from pvdm.lake.paths import Pointer
from pvdm.ledger import Unit
from pvdm.ledger.catalog import namespaces, tables, views
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.catalog.views import NewView
from tests.support.catalog.core import FIRST, SALES, Core, core_at
from tests.support.ledger.rows import hex64
from tools.ledger_sql import LAYOUT_CATALOG, LAYOUT_VIEWS


@pytest.fixture
def core(tmp_path: Path, migrated_url: str) -> Iterator[Core]:
    with core_at(tmp_path, migrated_url) as made:
        yield made


def reader_url(core: Core, url: str) -> str:
    """The ledger's URL for a reader: an SQLite file in read-only mode, or a PostgreSQL user who may only select."""
    if url.startswith("sqlite"):
        return f"sqlite:///file:{make_url(url).database}?mode=ro&uri=true"
    driver = make_url(url).set(drivername="postgresql+psycopg")
    name = f"auditor_{driver.database}"
    engine = create_engine(driver, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE ROLE {name} LOGIN"))
        connection.execute(text(f"GRANT SELECT ON {', '.join(LAYOUT_VIEWS)} TO {name}"))
    engine.dispose()
    return driver.set(username=name).render_as_string()


@contextlib.contextmanager
def open_catalog(core: Core, url: str) -> Iterator[SqlCatalog]:
    catalog = SqlCatalog(LAYOUT_CATALOG, uri=reader_url(core, url), init_catalog_tables="false")
    try:
        yield catalog
    finally:
        catalog.engine.dispose()


def make_view(core: Core, name: str, levels: Levels) -> None:
    new = NewView(name, str(uuid.uuid4()), core.place(name, levels), Pointer(f"file:///{name}.json", hex64(name)))
    core.ledger.transact(lambda unit: views.create(unit, namespaces.get(unit, levels), new), at_micros=core.micros)


def left_out(core: Core) -> list[tuple[str, str, int, int]]:
    with core.ledger.read() as unit:
        rows = unit.rows(text("SELECT * FROM iceberg_left_out ORDER BY levels"))
    return [tuple(row.values()) for row in rows]


def test_pyiceberg_lists_and_loads_what_is_there_and_nothing_that_was_dropped(core: Core, migrated_url: str) -> None:
    state = core.table()
    core.table("with.dot", shown=False)
    gone = core.table("gone", protected=False).row
    core.ledger.transact(lambda unit: tables.drop(unit, gone), at_micros=core.micros)
    with open_catalog(core, migrated_url) as catalog:
        assert sorted(catalog.list_tables(SALES)) == [(*SALES, "orders"), (*SALES, "with.dot")]
        loaded = catalog.load_table((*SALES, "orders"))
        assert (str(loaded.metadata.table_uuid), loaded.metadata_location) == (
            state.row.table_uuid,
            state.row.pointer.location,
        )
        assert loaded.metadata.current_snapshot_id == FIRST
        assert catalog.load_table((*SALES, "with.dot")).metadata.current_snapshot_id is None
        with pytest.raises(NoSuchNamespaceError):
            catalog.list_tables("nowhere")
    with core.ledger.read() as unit:
        row = unit.rows(text("SELECT * FROM iceberg_tables WHERE table_name = 'orders'"))[0]
    assert row["previous_metadata_location"] == state.row.previous_location is not None


def test_a_view_is_in_the_layout_as_a_view_and_no_table(core: Core, migrated_url: str) -> None:
    make_view(core, "v", SALES)
    with core.ledger.read() as unit:
        rows = unit.rows(text("SELECT table_namespace, table_name, iceberg_type FROM iceberg_tables"))
    assert [tuple(row.values()) for row in rows] == [("sales.raw", "v", "VIEW")]
    with open_catalog(core, migrated_url) as catalog:
        assert catalog.list_tables(SALES) == []


def test_pyiceberg_lists_namespaces_with_their_properties(core: Core, migrated_url: str) -> None:
    def work(unit: Unit) -> None:
        namespaces.create(unit, ("sales", "raw", "deep"), domain="sales", properties={"owner": 'ruth "r"', "é": "\n"})
        namespaces.drop(unit, namespaces.create(unit, ("gone",), domain="sales", properties={}))

    core.ledger.transact(work, at_micros=core.micros)
    with open_catalog(core, migrated_url) as catalog:
        assert sorted(catalog.list_namespaces()) == [("risk",), ("sales",)]
        assert catalog.list_namespaces("sales.raw") == [("sales", "raw", "deep")]
        assert catalog.load_namespace_properties("sales.raw.deep") == {"owner": 'ruth "r"', "é": "\n"}
        assert catalog.load_namespace_properties("risk") == {"exists": "true"}


def test_levels_keep_their_order_however_many_there_are(core: Core, migrated_url: str) -> None:
    levels = tuple(f"l{number:02d}" for number in range(31, -1, -1))

    def work(unit: Unit) -> None:
        namespaces.create(unit, levels, domain="sales", properties={"owner": "ruth"})

    core.ledger.transact(work, at_micros=core.micros)
    with open_catalog(core, migrated_url) as catalog:
        assert catalog.load_namespace_properties(levels) == {"owner": "ruth"}


def test_a_namespace_with_a_dot_in_a_level_is_left_out_and_counted(core: Core, migrated_url: str) -> None:
    for levels in (("a", "b"), ("a.b",), ("a.b", "c")):
        core.namespace(levels)
    core.table("t", levels=("a", "b"), shown=False)
    for name in ("t", "u"):
        core.table(name, levels=("a.b",), shown=False)
    gone = core.table("gone", levels=("a.b",), shown=False, protected=False).row
    core.ledger.transact(lambda unit: tables.drop(unit, gone), at_micros=core.micros)
    make_view(core, "v", ("a.b",))
    with open_catalog(core, migrated_url) as catalog:
        assert catalog.list_tables("a.b") == [("a", "b", "t")]
        assert catalog.list_namespaces("a.b") == []
        assert str(catalog.load_table("a.b.t").metadata.table_uuid) == core.get("t", levels=("a", "b")).row.table_uuid
    assert left_out(core) == [(LAYOUT_CATALOG, '["a.b","c"]', 0, 0), (LAYOUT_CATALOG, '["a.b"]', 2, 1)]


WRITES = (
    "INSERT INTO iceberg_tables VALUES ('pvdm', 'sales.raw', 'forged', 'file:///x', NULL, 'TABLE')",
    "UPDATE iceberg_tables SET metadata_location = 'file:///x'",
    "DELETE FROM iceberg_tables",
    "INSERT INTO iceberg_namespace_properties VALUES ('pvdm', 'sales', 'owner', 'x')",
    "UPDATE iceberg_namespace_properties SET property_value = 'x'",
    "DELETE FROM iceberg_namespace_properties",
    "UPDATE iceberg_left_out SET levels = '[]'",
    "DELETE FROM iceberg_left_out",
)


@pytest.mark.parametrize("write", WRITES)
def test_the_layout_views_are_read_only_even_for_the_ledgers_user(core: Core, migrated_url: str, write: str) -> None:
    core.table()
    url = make_url(migrated_url)
    driver = url if url.get_backend_name() == "sqlite" else url.set(drivername="postgresql+psycopg")
    engine = create_engine(driver)
    with engine.connect() as connection, pytest.raises(DBAPIError, match="view"):
        connection.execute(text(write))
    engine.dispose()


# A user who may read an SQLite file can read all of it.
@pytest.mark.parametrize("migrated_url", ["postgresql"], indirect=True)
def test_a_reader_of_the_layout_reads_no_other_table_on_postgresql(core: Core, migrated_url: str) -> None:
    engine = create_engine(reader_url(core, migrated_url))
    with engine.connect() as connection, pytest.raises(DBAPIError, match="permission denied"):
        connection.execute(text("SELECT * FROM tables"))
    engine.dispose()
