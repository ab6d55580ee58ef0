"""Views under stress, on both databases: concurrent writers, contested names, a crash at each step of a change."""

from __future__ import annotations

import os
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pvdm.catalog.commit import Change
from pvdm.catalog.namespaces import Namespaces
from pvdm.catalog.tables import CatalogParts, Tables
from pvdm.catalog.views import Views, ViewState
from pvdm.errors import ConflictError, NotAllowedError, PvdmError, StateUnknownError
from pvdm.lake.stores.stores import Stores
from pvdm.ledger import Unit
from pvdm.ledger.catalog import namespaces, tables, views
from tests.support import fault
from tests.support.catalog.core import CONTRACT, OPERATOR, PRODUCER, SALES, Core, core_at
from tests.support.catalog.core import request as table_request
from tests.support.catalog.views import OTHER, query, replaced, request

WRITERS = 8
# Whether a change has happened after a crash at each fault point.
POINTS = {
    "catalog.after_metadata_file": False,
    "ledger.before_commit": False,
    "ledger.after_commit": True,
    "catalog.after_swap": True,
}


@dataclass
class Stand:
    """The catalog's tables and views over one core."""

    core: Core

    def __post_init__(self) -> None:
        core = self.core
        spaces = Namespaces(core.ledger, core.clock, core.access, core.states.upstreams)
        parts = CatalogParts(
            core.ledger, core.clock, core.states, core.access, spaces, core.commits, core.warehouse, Stores()
        )
        self.views, self.tables = Views(parts, core.files), Tables(parts)

    def load(self, name: str = "v") -> ViewState:
        return self.views.load(OPERATOR, SALES, name)

    def replace(self, updates: list[Any], name: str = "v") -> ViewState:
        asserted = [{"type": "assert-view-uuid", "uuid": self.load(name).metadata.view_uuid}]
        return self.views.commit(PRODUCER, Change(SALES, name, asserted, updates))

    def names(self) -> list[str]:
        return self.views.page(OPERATOR, SALES, after=None, count=None)


@pytest.fixture
def stand(tmp_path: Path, migrated_url: str) -> Iterator[Stand]:
    with core_at(tmp_path, migrated_url) as core:
        made = Stand(core)
        made.views.create(PRODUCER, SALES, request())
        yield made


def run_at_once(work: Callable[[int], object], writers: int = WRITERS) -> Counter[str]:
    """Run every writer in its own thread; counts how they ended: "done", or an error's reason."""
    outcomes: Counter[str] = Counter()
    barrier = threading.Barrier(writers)

    def run(number: int) -> None:
        barrier.wait()
        try:
            work(number)
            outcome = "done"
        except PvdmError as error:
            outcome = error.reason
        outcomes[outcome] += 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_concurrent_replacements_of_a_view_are_each_made_once(stand: Stand) -> None:
    keep = {"action": "set-properties", "updates": {"version.history.num-entries": "100"}}
    stand.replace([keep])
    outcomes = run_at_once(lambda number: stand.replace(replaced(2, query(f"select {number} from t"))))
    after = stand.load()
    assert outcomes == {"done": WRITERS}
    assert [each.version_id for each in after.metadata.versions] == list(range(1, WRITERS + 2))
    assert {each.representations[0].sql for each in after.metadata.versions[1:]} == {
        f"select {number} from t" for number in range(WRITERS)
    }
    assert len(after.metadata.version_log) == WRITERS + 1
    assert after.row.revision == WRITERS + 1
    assert len(stand.core.on_disk()) == WRITERS + 2


def test_equal_concurrent_replacements_of_a_view_make_one_version(stand: Stand) -> None:
    updates = [{"action": "add-schema", "schema": OTHER}, *replaced(2, query("same"), schema_id=-1)]
    assert run_at_once(lambda _: stand.replace(updates)) == {"done": WRITERS}
    after = stand.load().metadata
    assert ([each.version_id for each in after.versions], [each.schema_id for each in after.schemas]) == (
        [1, 2],
        [0, 1],
    )


def test_a_base_that_moves_at_every_try_ends_as_a_conflict(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_as_moved(*_: object, **__: object) -> None:
        raise ConflictError("view_moved", "the view has changed since it was read")

    monkeypatch.setattr(views, "swap", fail_as_moved)
    before = stand.core.on_disk()
    with pytest.raises(ConflictError) as caught:
        stand.replace(replaced())
    assert caught.value.reason == "view_moved"
    assert stand.core.on_disk() == before


def test_of_concurrent_tables_and_views_of_one_name_one_is_created(stand: Stand) -> None:
    def work(number: int) -> None:
        if number % 2:
            stand.views.create(PRODUCER, SALES, request("both"))
        else:
            stand.tables.create(PRODUCER, SALES, {"name": "both", **table_request()})

    outcomes = run_at_once(work)
    assert outcomes["done"] == 1
    assert set(outcomes) <= {"done", "view_exists", "table_exists", "name_of_view", "name_of_table"}
    with stand.core.ledger.read() as unit:
        home = namespaces.get(unit, SALES).namespace_id
        found = [tables.find(unit, home, "both"), views.find(unit, home, "both")]
    assert sum(each is not None for each in found) == 1


def test_of_two_concurrent_renames_to_one_name_one_succeeds(stand: Stand) -> None:
    stand.views.create(PRODUCER, SALES, request("w"))
    outcomes = run_at_once(lambda n: stand.views.rename(PRODUCER, (SALES, "vw"[n]), (SALES, "x")), writers=2)
    assert outcomes == {"done": 1, "view_exists": 1}
    assert stand.names() in (["v", "x"], ["w", "x"])


def test_of_many_concurrent_drops_of_a_view_one_succeeds(stand: Stand) -> None:
    outcomes = run_at_once(lambda _: stand.views.drop(PRODUCER, SALES, "v"))
    assert outcomes == {"done": 1, "view_unknown": WRITERS - 1}


@pytest.mark.parametrize("change", ["create", "replace", "drop", "rename"])
def test_a_namespace_protected_meanwhile_is_checked_as_protected(stand: Stand, change: str) -> None:
    """The namespace is protected between the checks and the swap."""
    work: dict[str, Callable[[], object]] = {
        "create": lambda: stand.views.create(PRODUCER, SALES, request("w")),
        "replace": lambda: stand.replace(replaced()),
        "drop": lambda: stand.views.drop(PRODUCER, SALES, "v"),
        "rename": lambda: stand.views.rename(PRODUCER, (SALES, "v"), (SALES, "w")),
    }
    before = stand.load()
    core, original = stand.core, stand.core.clock.now_micros
    time_reads = 0

    def protect(unit: Unit) -> None:
        namespaces.protect(unit, namespaces.get(unit, SALES), CONTRACT)

    def now() -> int:
        # The time of the swap is read after all checks.
        nonlocal time_reads
        time_reads += 1
        if time_reads == (2 if change in ("create", "replace") else 1):
            core.ledger.transact(protect, at_micros=core.micros)
        return original()

    core.clock.now_micros = now  # type: ignore[method-assign]
    with pytest.raises(NotAllowedError) as caught:
        work[change]()
    assert caught.value.reason == "namespace_gated"
    assert (stand.load(), stand.names()) == (before, ["v"])


def crash_at(work: Callable[[], object], point: str) -> None:
    """Run the work in a child process that ends at the fault point, as if its power were cut."""
    child = os.fork()
    if child == 0:
        fault.arm(point, fault.Exit())
        try:
            work()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == fault.EXIT_CODE


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_while_a_view_is_replaced_leaves_it_whole(stand: Stand, point: str) -> None:
    crash_at(lambda: stand.replace(replaced(2, query("new"))), point)
    again = Stand(stand.core.fresh())
    assert again.load().metadata.current_version_id == (2 if POINTS[point] else 1)
    assert again.replace(replaced(2, query("new"))).row.revision == 1


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_while_a_view_is_created_leaves_a_whole_view_or_none(stand: Stand, point: str) -> None:
    crash_at(lambda: stand.views.create(PRODUCER, SALES, request("w")), point)
    again = Stand(stand.core.fresh())
    assert again.names() == (["v", "w"] if POINTS[point] else ["v"])
    for name in again.names():
        assert again.load(name).metadata.current_version_id == 1


@pytest.mark.parametrize("point", ["ledger.before_commit", "ledger.after_commit", "catalog.after_swap"])
def test_an_unknown_outcome_leaves_the_file(stand: Stand, point: str) -> None:
    files = stand.core.on_disk()
    error = StateUnknownError("commit_unknown", "no answer")
    with fault.armed(point, fault.Raise(error)), pytest.raises(StateUnknownError):
        stand.replace(replaced(2, query("new")))
    assert len(stand.core.on_disk() - files) == 1
    assert Stand(stand.core.fresh()).load().metadata.current_version_id == (2 if POINTS[point] else 1)


def test_an_error_before_the_swap_removes_the_file(stand: Stand) -> None:
    files = stand.core.on_disk()
    error = PvdmError("whatever", "something")
    with fault.armed("ledger.before_commit", fault.Raise(error)), pytest.raises(PvdmError):
        stand.replace(replaced(2, query("new")))
    assert stand.core.on_disk() == files


def test_a_view_in_a_place_that_a_table_took_meanwhile_is_refused(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check before the transaction is taken out: the transaction must check the place again."""
    place = stand.core.place("orders")
    stand.core.table("orders", protected=False, shown=False)
    monkeypatch.setattr(stand.core.access, "require_place", lambda *_, **__: None)
    with pytest.raises(NotAllowedError) as caught:
        stand.views.create(PRODUCER, SALES, request("w", location=place))
    assert caught.value.reason == "location_taken"
    with pytest.raises(NotAllowedError) as caught:
        stand.replace([{"action": "set-location", "location": place}])
    assert caught.value.reason == "location_taken"
    assert stand.names() == ["v"]


@pytest.mark.parametrize("change", ["swap", "rename", "drop"])
def test_a_change_from_an_older_row_is_refused(stand: Stand, change: str) -> None:
    stale = stand.load().row
    stand.replace(replaced(2, query("new")))
    after = stand.load()

    def work(unit: Unit) -> None:
        home = namespaces.get(unit, SALES)
        if change == "swap":
            views.swap(unit, home, stale, stale.pointer, location=stale.location)
        elif change == "rename":
            views.rename(unit, stale, "w", old_home=home, new_home=home)
        else:
            views.drop(unit, home, stale)

    with pytest.raises(ConflictError) as caught:
        stand.core.ledger.transact(work, at_micros=stand.core.micros)
    assert caught.value.reason == "view_moved"
    assert stand.load() == after


def test_a_second_view_of_one_uuid_is_refused(stand: Stand) -> None:
    row = stand.load().row

    def work(unit: Unit) -> None:
        home = namespaces.get(unit, SALES)
        views.create(unit, home, views.NewView("w", row.view_uuid.upper(), row.location, row.pointer))

    with pytest.raises(ConflictError) as caught:
        stand.core.ledger.transact(work, at_micros=stand.core.micros)
    assert caught.value.reason == "view_uuid_taken"
    assert uuid.UUID(row.view_uuid).version == 4
