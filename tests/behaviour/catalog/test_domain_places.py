"""Not even an operator of one domain can put a table, or its files, into the folders of another domain."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from pvdm.errors import NotAllowedError, PvdmError
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.new_table import new_table
from pvdm.lake.paths import parse_location
from pvdm.ledger.record.tokens import Grant
from pvdm.model.role import Role
from tests.support.catalog.core import NOW_MS, OPERATOR, PRODUCER, RISK, SALES, Core, core_in, grant, request
from tests.support.for_each import for_each
from tests.support.lake.metadata import document_of

SALES_OPERATOR = grant(Role.OPERATOR, "sales")
PATHS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
FOREIGN = {
    "another domain's folder": "file://{risk}/made",
    "the folder itself": "file://{risk}",
    "with one slash": "file:{risk}/made",
    "with two": "file://localhost{risk}//made",
    "a plain path": "{risk}/deep/made",
    "the warehouse": "file://{warehouse}",
    "around the warehouse": "file://{around}",
    "no namespace's folder": "file://{warehouse}/later/made",
    "behind a link": "file://{folder}/way/made",
    "around it by a link": "file://{folder}/warehouse-way",
}


@pytest.fixture
def core(tmp_path: Path, migrated_file: Path) -> Iterator[Core]:
    with core_in(tmp_path, migrated_file) as made:
        made.warehouse.child(*RISK).local.mkdir(parents=True)
        (tmp_path / "way").symlink_to(made.warehouse.child(*RISK).local)
        (tmp_path / "warehouse-way").symlink_to(made.warehouse.local)
        yield made


def format_place(core: Core, place: str) -> str:
    warehouse = core.warehouse.local
    return place.format(risk=warehouse / "risk", warehouse=warehouse, around=warehouse.parent, folder=core.folder)


def document(core: Core, location: str, **properties: str) -> TableMetadata:
    body = request(2) | {"properties": {key.replace("_", "."): value for key, value in properties.items()}}
    return new_table(body, location=location, table_uuid="0e8ef9c1-29a0-4d9c-90a8-7e2f1b2a4f6d", now_ms=NOW_MS)


def create(core: Core, by: Grant, location: str, **properties: str) -> None:
    core.commits.create(by, core.get_namespace(), "made", document(core, location, **properties))


def reason_of(caught: pytest.ExceptionInfo[PvdmError]) -> str:
    return caught.value.reason


@pytest.fixture
def with_table(core: Core) -> Core:
    core.table(protected=False)
    return core


@for_each("place", FOREIGN.values(), ids=FOREIGN)
def test_an_operator_cannot_place_a_table_in_another_domains_folder(core: Core, place: str) -> None:
    with pytest.raises(NotAllowedError) as caught:
        create(core, SALES_OPERATOR, format_place(core, place))
    assert reason_of(caught) in ("location_of_other_domain", "location_reserved")


@for_each("place", FOREIGN.values(), ids=FOREIGN)
def test_an_operator_cannot_move_a_table_into_another_domains_folder(with_table: Core, place: str) -> None:
    move = [{"action": "set-location", "location": format_place(with_table, place)}]
    with pytest.raises(NotAllowedError) as caught:
        with_table.commit("orders", move, by=SALES_OPERATOR)
    assert reason_of(caught) in ("location_of_other_domain", "location_reserved")


@for_each(("place", "key", "by"), list(product(FOREIGN.values(), PATHS, (SALES_OPERATOR, PRODUCER))))
def test_no_property_sends_files_into_another_domains_folder(with_table: Core, place: str, key: str, by: Grant) -> None:
    updates = {key: format_place(with_table, place)}
    with pytest.raises(NotAllowedError) as caught:
        with_table.commit("orders", [{"action": "set-properties", "updates": updates}], by=by)
    assert reason_of(caught) in ("location_of_other_domain", "location_reserved")


def test_no_table_is_created_with_a_path_in_another_domains_folder(core: Core) -> None:
    with pytest.raises(NotAllowedError) as caught:
        create(core, PRODUCER, core.place("made"), write_data_path=format_place(core, "{risk}/made"))
    assert reason_of(caught) == "location_of_other_domain"


def test_a_path_with_dots_or_escapes_is_refused(core: Core) -> None:
    core.table(protected=False)
    for tail in ("/../../risk/x", "/%2e%2e/risk", "/a/./b"):
        updates = {"write.data.path": core.place("orders") + tail}
        with pytest.raises(PvdmError) as caught:
            core.commit("orders", [{"action": "set-properties", "updates": updates}])
        assert reason_of(caught) == "location_invalid"


def test_no_property_sends_files_into_another_tables_place(core: Core) -> None:
    core.table(protected=False)
    core.table("two", protected=False)
    updates = {"write.data.path": f"{core.place('two')}/data"}
    with pytest.raises(NotAllowedError) as caught:
        core.commit("orders", [{"action": "set-properties", "updates": updates}], by=OPERATOR)
    assert reason_of(caught) == "location_taken"


def test_no_property_sends_files_into_the_stewards_own_folder(core: Core) -> None:
    core.table(protected=False)
    updates = {"write.metadata.path": str(core.root / "x")}
    with pytest.raises(NotAllowedError) as caught:
        core.commit("orders", [{"action": "set-properties", "updates": updates}], by=OPERATOR)
    assert reason_of(caught) == "location_reserved"


def test_a_place_behind_a_link_into_another_domains_folder_is_refused(core: Core) -> None:
    home = core.warehouse.child(*SALES).local
    home.mkdir(parents=True)
    (home / "made").symlink_to(core.warehouse.child(*RISK).local)
    with pytest.raises(NotAllowedError) as caught:
        create(core, PRODUCER, core.place("made"))
    assert reason_of(caught) == "location_of_other_domain"


def test_an_operator_can_use_places_of_its_domain_and_outside_the_warehouse(core: Core, tmp_path: Path) -> None:
    core.namespace(("more",))
    create(core, SALES_OPERATOR, str(core.warehouse.child("more", "made")))
    for at, place in enumerate((tmp_path / "elsewhere" / "one", core.warehouse.child(*SALES, "two").local)):
        core.commit("made", [{"action": "set-location", "location": str(place)}], by=SALES_OPERATOR)
        updates = {PATHS[at]: f"{place}/data", "write.parquet.page-size-bytes": "1"}
        core.commit("made", [{"action": "set-properties", "updates": updates}], by=SALES_OPERATOR)
        core.commit("made", [{"action": "remove-properties", "removals": [PATHS[at]]}], by=SALES_OPERATOR)


def test_an_operator_of_every_domain_can_place_tables_in_each(core: Core) -> None:
    create(core, OPERATOR, str(core.warehouse.child(*RISK, "made")))
    assert parse_location(core.get("made").metadata.location).is_under(core.warehouse.child(*RISK))


def test_an_old_property_with_such_a_path_does_not_stop_other_commits(core: Core) -> None:
    base = core.table(protected=False).metadata
    root = document_of(base) | {"properties": {"write.data.path": format_place(core, "{risk}/x")}}
    core.plant("orders", TableMetadata.from_json(root))
    core.commit("orders", [{"action": "set-properties", "updates": {"a": "b"}}])
