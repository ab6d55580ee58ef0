"""Where an upstream says that a table lies, producers are let in: never among our files, another's, or everywhere."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pvdm.lake.paths import parse_location
from pvdm.steward.config.steward import StewardConfig
from tests.behaviour.upstream.test_upstream_serving import lying, refused
from tests.support.catalog.upstream import Upstream, with_upstream
from tests.support.gate.approvals import SALES
from tests.support.gate.protected_tables import House
from tests.support.ledger.databases import memory_folder
from tests.support.steward.notary import stand_at

Doc = dict[str, Any]
_NUMBERS = itertools.count()


def made_there(there: Upstream) -> str:
    """A table that we have not been asked for yet."""
    name = f"new_{next(_NUMBERS)}"
    there.catalog.tables.create(there.grant(), there.levels, {"name": name, "schema": {"type": "struct", "fields": []}})
    return name


def own_places(house: House) -> dict[str, str]:
    config, folder = house.stand.config, house.stand.folder
    return {
        "the vault": str(config.catalog.vault),
        "below the vault": f"{config.catalog.vault}/{'0' * 8}",
        "metadata": str(config.catalog.metadata),
        "all of the Steward": str(folder),
        "the ledger": str(house.notary.ledger.file),
        "the outside checkpoint": str(config.outside_path),
        "the keys": str(config.keys.path),  # type: ignore[union-attr]
    }


def test_a_table_that_would_lie_among_the_stewards_own_files_is_not_served(house: House, there: Upstream) -> None:
    for what, place in own_places(house).items():
        name = made_there(there)
        lying(there, lambda answer, place=place: answer["metadata"].update(location=f"file://{place}"))  # type: ignore[misc]
        assert refused(lambda name=name: house.found(name)) == "location_reserved", what  # type: ignore[misc]
        there.proxy.change_load = None
        assert house.found(name).row.name == name, what


def test_a_metadata_file_among_the_stewards_own_is_not_served(house: House, there: Upstream) -> None:
    place = f"file://{house.stand.config.catalog.metadata}/x.metadata.json"
    lying(there, lambda answer: answer.update({"metadata-location": place}))
    assert refused(house.found) == "location_reserved"
    assert refused(lambda: house.found(made_there(there))) == "location_reserved"


def test_a_table_never_lies_everywhere_nor_in_anothers_place(house: House, there: Upstream) -> None:
    house.notary.catalog.namespaces.create(house.scene.grant(), ("risk",), {"pvdm.domain": "risk"})
    warehouse = house.notary.catalog.warehouse
    for place, code in (
        ("file:///", "location_invalid"),
        ("s3://bucket/", "location_outside"),
        ("s3://*/x", "location_invalid"),
        (f"{warehouse}/risk", "location_taken"),
        (f"{warehouse}/risk/theirs", "location_taken"),
        (warehouse, "location_taken"),
        (f"{house.found().metadata.location}/below", "location_taken"),
    ):
        name = made_there(there)
        lying(there, lambda answer, place=place: answer["metadata"].update(location=place))  # type: ignore[misc]
        assert refused(lambda name=name: house.found(name)) == code, place  # type: ignore[misc]
        there.proxy.change_load = None
        assert house.found(name).row.name == name, place


def with_places(folder: Any, there: Upstream, *places: str) -> Callable[[StewardConfig], StewardConfig]:
    def changed(config: StewardConfig) -> StewardConfig:
        plain: Any = with_upstream(folder, there)(config)
        (upstream,) = plain.catalog.upstreams
        placed = replace(upstream, places=tuple(parse_location(each) for each in places))
        found: StewardConfig = replace(plain, catalog=replace(plain.catalog, upstreams=(placed,)))
        return found

    return changed


def test_tables_of_an_upstream_lie_in_the_places_that_it_is_given(there: Upstream) -> None:
    home = there.catalog.warehouse
    for places, code in (
        ((home,), None),
        (("s3://other/lake", home), None),
        (("s3://other/lake",), "location_outside"),
    ):
        with memory_folder() as folder, stand_at(folder, changed=with_places(folder, there, *places)) as stand:
            stand.notary.catalog.namespaces.create(stand.grant(), SALES, {"pvdm.domain": "sales"})
            name = made_there(there)
            states = stand.notary.catalog.states
            if code is None:
                assert states.get(SALES, name).row.name == name
            else:
                assert refused(lambda states=states, name=name: states.get(SALES, name)) == code  # type: ignore[misc]


def test_what_was_refused_once_is_refused_again(house: House, there: Upstream) -> None:
    there.append_directly(house, [(8, 1, "Ulm")], branch="theirs")
    house.found()  # by a file that the ledger does not know: nothing was committed through us since
    lying(there, lambda answer: answer["metadata"]["properties"].update({"owner": "somebody"}))
    assert [refused(house.found) for _ in range(3)] == ["upstream_metadata_changed"] * 3
    there.proxy.change_load = None
    assert house.found().row.name == "orders"
