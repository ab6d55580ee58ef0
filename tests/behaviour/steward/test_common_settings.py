"""Settings that all Stewards of one ledger share: the first one stores them, and one that differs does not start."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pvdm
from pvdm.errors import PvdmError, UnavailableError
from pvdm.lake.paths import Pointer
from pvdm.ledger import Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.record import shared_settings
from pvdm.steward.config.ledger_agreement import store_shared_settings
from pvdm.steward.config.steward import CatalogConfig, StewardConfig
from pvdm.steward.notary import create_notary
from pvdm.steward.restore.restore import restore
from tests.support.ledger.databases import NOW, Postgresql, ledger_at, memory_folder
from tests.support.ledger.rows import hex64
from tests.support.steward.notary import LOG_ORIGIN, NOTARY, Stand, Time, config_at, opened, stand_at
from tests.support.steward.restore import NEW_ORIGIN, ORDER


def with_catalog(config: StewardConfig, folder: Path, **more: Any) -> StewardConfig:
    catalog = CatalogConfig(f"file://{folder}/warehouse", folder / "catalog")
    return replace(config, catalog=replace(catalog, vault=folder / "vault", **more))


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    """A Steward with a catalog, on SQLite."""
    with stand_at(tmp_path, changed=lambda config: with_catalog(config, tmp_path)) as made:
        yield made


@pytest.fixture
def shared_stand(postgresql: Postgresql) -> Iterator[Stand]:
    """A Steward with a catalog, on PostgreSQL, where several Stewards can share the ledger."""
    with memory_folder() as folder:
        url = postgresql.create_database("template0")
        with stand_at(folder, ledger_url=url, changed=lambda config: with_catalog(config, folder)) as made:
            yield made


def create_again(config: StewardConfig) -> None:
    time = Time()
    create_notary(config, reason="again", wall=lambda: time.wall, monotonic=lambda: time.monotonic).close()


def create_table(stand: Stand) -> None:
    def work(unit: Unit) -> None:
        namespace = namespaces.create(unit, ("sales",), domain="sales", properties={})
        pointer = Pointer(f"file://{stand.folder}/catalog/t-1/1.json", hex64("one"))
        place = f"file://{stand.folder}/warehouse/orders"
        tables.create(unit, tables.NewTable(namespace.namespace_id, "orders", "sales", "t-1", place, pointer, None))

    stand.notary.ledger.transact(work, at_micros=NOW)


def with_field(config: StewardConfig, field: str, value: Any) -> StewardConfig:
    if field in ("notary", "origin"):
        return replace(config, **{field: value})
    return replace(config, catalog=replace(config.catalog, **{field: value}))


def assert_steward_differs(call: Any, setting: str, expected: str, got: str) -> None:
    with pytest.raises(UnavailableError) as caught:
        call()
    error = caught.value
    assert (error.reason, error.expected, error.got) == ("steward_differs", expected, got)
    assert f"another {setting}" in str(error)
    assert error.hint is not None


@pytest.mark.parametrize(
    ("field", "before", "now"),
    [("notary", NOTARY, "steward-two"), ("origin", LOG_ORIGIN, "another.example/log"), ("name", "lake", "lake2")],
)
def test_a_steward_with_another_notary_origin_or_catalog_name_does_not_start(
    stand: Stand, field: str, before: str, now: str
) -> None:
    assert_steward_differs(lambda: opened(with_field(stand.config, field, now), stand.time), field, before, now)
    stand.reopen()


@pytest.mark.parametrize("field", ["metadata", "vault", "warehouse"])
def test_of_two_stewards_with_different_folders_the_second_does_not_start(shared_stand: Stand, field: str) -> None:
    elsewhere = shared_stand.folder / "elsewhere"
    value = f"file://{elsewhere}" if field == "warehouse" else elsewhere
    folder_name = {"metadata": "catalog"}.get(field, field)
    assert_steward_differs(
        lambda: opened(with_field(shared_stand.config, field, value), shared_stand.time),
        f"{field} under [catalog]",
        f"file://{shared_stand.folder}/{folder_name}",
        f"file://{elsewhere}",
    )
    create_table(shared_stand)
    shared_stand.reopen()


def test_another_catalog_name_is_refused_on_a_shared_ledger(shared_stand: Stand) -> None:
    assert_steward_differs(
        lambda: opened(with_field(shared_stand.config, "name", "lake2"), shared_stand.time),
        "name under [catalog]",
        "lake",
        "lake2",
    )


def test_of_eight_stewards_that_store_a_catalog_name_at_once_one_succeeds(postgresql: Postgresql) -> None:
    with memory_folder() as folder, ledger_at(postgresql.create_database("template0")) as ledger:
        base = with_catalog(config_at(folder), folder)
        outcomes: list[str] = []
        barrier = threading.Barrier(8)

        def run(number: int) -> None:
            barrier.wait()
            try:
                store_shared_settings(ledger, with_field(base, "name", f"lake{number}"), at_micros=NOW)
                outcomes.append("stored")
            except PvdmError as error:
                outcomes.append(error.reason)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == [*["steward_differs"] * 7, "stored"]


def test_init_of_another_steward_on_the_ledger_creates_no_keys(stand: Stand) -> None:
    other = config_at(stand.folder / "other", ledger_url=stand.config.ledger_url)
    assert_steward_differs(lambda: create_again(replace(other, notary="steward-two")), "notary", NOTARY, "steward-two")
    assert not (stand.folder / "other" / "keys").exists()


def test_while_the_catalog_is_empty_init_accepts_another_name_and_other_folders(shared_stand: Stand) -> None:
    corrected = with_field(
        with_field(shared_stand.config, "name", "lake2"), "metadata", shared_stand.folder / "documents"
    )
    create_again(corrected)
    opened(corrected, shared_stand.time).close()
    assert_steward_differs(
        lambda: opened(shared_stand.config, shared_stand.time), "name under [catalog]", "lake2", "lake"
    )


def test_after_the_first_table_init_refuses_another_catalog_name(stand: Stand) -> None:
    create_table(stand)
    other = with_field(stand.config, "name", "lake2")
    assert_steward_differs(lambda: create_again(other), "name under [catalog]", "lake", "lake2")


def test_after_a_failed_init_its_names_can_be_changed(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    with pytest.raises(PvdmError):
        create_again(replace(config, origin="not a name of a log"))
    create_again(config)


def test_an_embedded_steward_without_tables_may_be_moved(tmp_path: Path) -> None:
    pvdm.Steward.embedded(tmp_path / "steward").close()
    (tmp_path / "steward").rename(tmp_path / "elsewhere")
    with pvdm.Steward.embedded(tmp_path / "elsewhere") as steward:
        assert steward.readiness().ready


def test_a_restore_under_another_name_of_the_notary_is_refused(stand: Stand) -> None:
    stand.notary.close()
    config = with_field(stand.config, "notary", "steward-two")
    time = stand.time
    assert_steward_differs(
        lambda: restore(config, ORDER, wall=lambda: time.wall, monotonic=lambda: time.monotonic),
        "notary",
        NOTARY,
        "steward-two",
    )


def test_a_steward_with_the_old_origin_of_a_renamed_log_does_not_start(stand: Stand) -> None:
    stand.notary.ledger.transact(lambda unit: shared_settings.set_log_origin(unit, NEW_ORIGIN), at_micros=NOW)
    assert_steward_differs(lambda: opened(stand.config, stand.time), "origin", NEW_ORIGIN, LOG_ORIGIN)


def test_a_steward_stores_its_settings_in_a_ledger_that_has_none(stand: Stand) -> None:
    stand.notary.close()
    with contextlib.closing(sqlite3.connect(stand.folder / "ledger.db")) as connection:
        connection.executescript("DROP TRIGGER shared_settings_no_delete; DELETE FROM shared_settings")
    with stand.reopen().ledger.read() as unit:
        assert shared_settings.find_settings(unit) == shared_settings.SharedSettings(NOTARY, LOG_ORIGIN, "lake")
