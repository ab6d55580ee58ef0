"""What all Stewards of one ledger have in common: the first one says it, one that differs does not start."""

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
from pvdm.steward.config.ledger_agreement import store_common_settings
from pvdm.steward.config.steward import CatalogConfig, StewardConfig
from pvdm.steward.notary import create_notary
from pvdm.steward.restore.restore import restore
from tests.support.ledger.databases import NOW, Postgresql, ledger_at, memory_folder
from tests.support.ledger.rows import hex64
from tests.support.steward.notary import LOG_ORIGIN, NOTARY, Stand, Time, config_at, opened, stand_at
from tests.support.steward.restore import NEW_ORIGIN, ORDER


def with_catalog(config: StewardConfig, folder: Path, **changed: Any) -> StewardConfig:
    catalog = CatalogConfig(f"file://{folder}/warehouse", folder / "catalog")
    return replace(config, catalog=replace(catalog, vault=folder / "vault", **changed))


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    """A Steward with a catalog, on SQLite."""
    with stand_at(tmp_path, changed=lambda config: with_catalog(config, tmp_path)) as made:
        yield made


@pytest.fixture
def shared(postgresql: Postgresql) -> Iterator[Stand]:
    """The same on PostgreSQL, where several may serve."""
    with memory_folder() as folder:
        url = postgresql.fresh("template0")
        with stand_at(folder, ledger_url=url, changed=lambda config: with_catalog(config, folder)) as made:
            yield made


def made_again(config: StewardConfig) -> None:
    time = Time()
    create_notary(config, reason="again", wall=lambda: time.wall, monotonic=lambda: time.monotonic).close()


def make_a_table(stand: Stand) -> None:
    def work(unit: Unit) -> None:
        namespace = namespaces.create(unit, ("sales",), domain="sales", properties={})
        pointer = Pointer(f"file://{stand.folder}/catalog/t-1/1.json", hex64("one"))
        place = f"file://{stand.folder}/warehouse/orders"
        tables.create(unit, tables.NewTable(namespace.namespace_id, "orders", "sales", "t-1", place, pointer, None))

    stand.notary.ledger.transact(work, at_micros=NOW)


def changed(config: StewardConfig, field: str, value: Any) -> StewardConfig:
    if field in ("notary", "origin"):
        return replace(config, **{field: value})
    return replace(config, catalog=replace(config.catalog, **{field: value}))


def refused(call: Any, *facts: str) -> None:
    with pytest.raises(UnavailableError) as caught:
        call()
    found = caught.value
    assert (found.reason, found.expected, found.got) == ("steward_differs", *facts[1:])
    assert f"another {facts[0]}" in str(found)
    assert found.hint is not None


@pytest.mark.parametrize(
    ("field", "before", "now"),
    [("notary", NOTARY, "steward-two"), ("origin", LOG_ORIGIN, "another.example/log"), ("name", "lake", "lake2")],
)
def test_a_steward_with_another_name_does_not_start_on_the_ledger(
    stand: Stand, field: str, before: str, now: str
) -> None:
    refused(lambda: opened(changed(stand.config, field, now), stand.time), field, before, now)
    stand.reopen()


@pytest.mark.parametrize("field", ["metadata", "vault", "warehouse"])
def test_of_two_stewards_with_different_folders_the_second_does_not_start(shared: Stand, field: str) -> None:
    there = shared.folder / "elsewhere"
    value = f"file://{there}" if field == "warehouse" else there
    before = {"metadata": "catalog"}.get(field, field)
    refused(
        lambda: opened(changed(shared.config, field, value), shared.time),
        f"{field} under [catalog]",
        f"file://{shared.folder}/{before}",
        f"file://{there}",
    )
    make_a_table(shared)
    shared.reopen()


def test_another_catalog_name_is_refused(shared: Stand) -> None:
    refused(
        lambda: opened(changed(shared.config, "name", "lake2"), shared.time), "name under [catalog]", "lake", "lake2"
    )


def test_of_two_that_name_a_catalog_at_once_one_is_refused(postgresql: Postgresql) -> None:
    with memory_folder() as folder, ledger_at(postgresql.fresh("template0")) as ledger:
        base = with_catalog(config_at(folder), folder)
        found: list[str] = []
        barrier = threading.Barrier(8)

        def run(number: int) -> None:
            barrier.wait()
            try:
                store_common_settings(ledger, changed(base, "name", f"lake{number}"), at_micros=NOW)
                found.append("kept")
            except PvdmError as error:
                found.append(error.reason)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == ["kept", *["steward_differs"] * 7]


def test_init_of_another_steward_on_the_ledger_makes_nothing(stand: Stand) -> None:
    other = config_at(stand.folder / "other", ledger_url=stand.config.ledger_url)
    refused(lambda: made_again(replace(other, notary="steward-two")), "notary", NOTARY, "steward-two")
    assert not (stand.folder / "other" / "keys").exists()


def test_while_the_catalog_is_empty_init_takes_another_name_and_other_folders(shared: Stand) -> None:
    mended = changed(changed(shared.config, "name", "lake2"), "metadata", shared.folder / "documents")
    made_again(mended)
    opened(mended, shared.time).close()
    refused(lambda: opened(shared.config, shared.time), "name under [catalog]", "lake2", "lake")


def test_once_a_table_was_made_init_takes_no_other_name(stand: Stand) -> None:
    make_a_table(stand)
    other = changed(stand.config, "name", "lake2")
    refused(lambda: made_again(other), "name under [catalog]", "lake", "lake2")


def test_after_a_failed_init_its_names_can_be_changed(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    with pytest.raises(PvdmError):
        made_again(replace(config, origin="not a name of a log"))
    made_again(config)


def test_an_embedded_steward_without_tables_may_be_moved(tmp_path: Path) -> None:
    pvdm.Steward.embedded(tmp_path / "steward").close()
    (tmp_path / "steward").rename(tmp_path / "elsewhere")
    with pvdm.Steward.embedded(tmp_path / "elsewhere") as steward:
        assert steward.readiness().ready


def test_a_restore_under_another_name_of_the_notary_is_refused(stand: Stand) -> None:
    stand.notary.close()
    config = changed(stand.config, "notary", "steward-two")
    time = stand.time
    refused(
        lambda: restore(config, ORDER, wall=lambda: time.wall, monotonic=lambda: time.monotonic),
        "notary",
        NOTARY,
        "steward-two",
    )


def test_the_logs_new_name_is_that_of_all_stewards(stand: Stand) -> None:
    stand.notary.ledger.transact(lambda unit: shared_settings.set_log_origin(unit, NEW_ORIGIN), at_micros=NOW)
    refused(lambda: opened(stand.config, stand.time), "origin", NEW_ORIGIN, LOG_ORIGIN)


def test_a_steward_of_a_ledger_that_keeps_nothing_yet_keeps_what_it_is(stand: Stand) -> None:
    stand.notary.close()
    with contextlib.closing(sqlite3.connect(stand.folder / "ledger.db")) as connection:
        connection.executescript("DROP TRIGGER shared_settings_no_delete; DELETE FROM shared_settings")
    with stand.reopen().ledger.read() as unit:
        assert shared_settings.find_settings(unit) == shared_settings.SharedSettings(NOTARY, LOG_ORIGIN, "lake")
