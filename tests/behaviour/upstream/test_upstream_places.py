"""Producers may write at the location that an upstream gives for a table, so the Steward refuses unsafe ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pvdm.lake.paths import parse_location
from pvdm.steward.config.steward import StewardConfig
from tests.behaviour.upstream.test_upstream_serving import change_answers, refusal_reason
from tests.support.catalog.upstream import Upstream, with_upstream
from tests.support.gate.approvals import SALES
from tests.support.gate.protected_tables import House
from tests.support.ledger.databases import memory_folder
from tests.support.steward.notary import stand_at

Doc = dict[str, Any]
_NUMBERS = itertools.count()


def create_at_upstream(upstream: Upstream) -> str:
    """Create a table at the upstream that the Steward has not served yet. Returns its name."""
    name = f"new_{next(_NUMBERS)}"
    body = {"name": name, "schema": {"type": "struct", "fields": []}}
    upstream.catalog.tables.create(upstream.grant(), upstream.levels, body)
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


def test_a_table_located_in_the_stewards_own_folders_is_refused(house: House, upstream: Upstream) -> None:
    for what, place in own_places(house).items():
        name = create_at_upstream(upstream)
        change_answers(upstream, lambda answer, place=place: answer["metadata"].update(location=f"file://{place}"))  # type: ignore[misc]
        assert refusal_reason(lambda name=name: house.table_state(name)) == "location_reserved", what  # type: ignore[misc]
        upstream.proxy.change_load = None
        assert house.table_state(name).row.name == name, what


def test_a_metadata_file_in_the_stewards_own_folder_is_refused(house: House, upstream: Upstream) -> None:
    place = f"file://{house.stand.config.catalog.metadata}/x.metadata.json"
    change_answers(upstream, lambda answer: answer.update({"metadata-location": place}))
    assert refusal_reason(house.table_state) == "location_reserved"
    assert refusal_reason(lambda: house.table_state(create_at_upstream(upstream))) == "location_reserved"


def test_a_table_located_at_a_root_or_in_the_place_of_another_is_refused(house: House, upstream: Upstream) -> None:
    house.notary.catalog.namespaces.create(house.scene.grant(), ("risk",), {"pvdm.domain": "risk"})
    warehouse = house.notary.catalog.warehouse
    for place, code in (
        ("file:///", "location_invalid"),
        ("s3://bucket/", "location_outside"),
        ("s3://*/x", "location_invalid"),
        (f"{warehouse}/risk", "location_taken"),
        (f"{warehouse}/risk/theirs", "location_taken"),
        (warehouse, "location_taken"),
        (f"{house.table_state().metadata.location}/below", "location_taken"),
    ):
        name = create_at_upstream(upstream)
        change_answers(upstream, lambda answer, place=place: answer["metadata"].update(location=place))  # type: ignore[misc]
        assert refusal_reason(lambda name=name: house.table_state(name)) == code, place  # type: ignore[misc]
        upstream.proxy.change_load = None
        assert house.table_state(name).row.name == name, place


def with_places(folder: Any, upstream: Upstream, *places: str) -> Callable[[StewardConfig], StewardConfig]:
    def changed(config: StewardConfig) -> StewardConfig:
        plain: Any = with_upstream(folder, upstream)(config)
        (configured,) = plain.catalog.upstreams
        placed = replace(configured, places=tuple(parse_location(each) for each in places))
        found: StewardConfig = replace(plain, catalog=replace(plain.catalog, upstreams=(placed,)))
        return found

    return changed


def test_tables_outside_the_configured_places_of_an_upstream_are_refused(upstream: Upstream) -> None:
    home = upstream.catalog.warehouse
    for places, code in (
        ((home,), None),
        (("s3://other/lake", home), None),
        (("s3://other/lake",), "location_outside"),
    ):
        with memory_folder() as folder, stand_at(folder, changed=with_places(folder, upstream, *places)) as stand:
            stand.notary.catalog.namespaces.create(stand.grant(), SALES, {"pvdm.domain": "sales"})
            name = create_at_upstream(upstream)
            states = stand.notary.catalog.states
            if code is None:
                assert states.get(SALES, name).row.name == name
            else:
                assert refusal_reason(lambda states=states, name=name: states.get(SALES, name)) == code  # type: ignore[misc]


def test_a_wrong_answer_is_refused_every_time_until_it_is_right(house: House, upstream: Upstream) -> None:
    upstream.append_directly(house, [(8, 1, "Ulm")], branch="theirs")
    house.table_state()  # its metadata file is not in the ledger: the commit was not made through the Steward
    change_answers(upstream, lambda answer: answer["metadata"]["properties"].update({"owner": "somebody"}))
    assert [refusal_reason(house.table_state) for _ in range(3)] == ["upstream_metadata_changed"] * 3
    upstream.proxy.change_load = None
    assert house.table_state().row.name == "orders"
