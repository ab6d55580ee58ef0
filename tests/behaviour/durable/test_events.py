"""The step log (the ledger's list of all changes) after a publication: it can be read, and filtered by a name or id."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pvdm import Committed, Coordinator
from pvdm.api.service import Event
from pvdm.model.role import Role
from tests.support.steward.shop import ROWS, Shop, contract, shop_at, table_of


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A shop with one publication, by a producer whose name has SQL wildcards."""
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        made.make("sales.orders")
        made.protect(contract("sales.orders"))
        with made.steward.as_role(Role.PRODUCER, "sales", name="nightly_50%") as producer:
            outcome = Coordinator(producer).run("orders-1", "sales.orders", {}, lambda _spark, _chunk: table_of(ROWS))
            assert isinstance(outcome, Committed)
        yield made


def read_events(shop: Shop, about: str | None = None) -> list[Event]:
    found: list[Event] = []
    with shop.steward.as_role(Role.AUDITOR, "*", name="an auditor") as auditor:
        while page := auditor.events(after=found[-1].event_id if found else None, limit=50, about=about):
            found += page
    return found


def test_the_event_of_a_publication_can_be_read(shop: Shop) -> None:
    """The event can be decoded although some of its values are lists."""
    (published,) = [event for event in read_events(shop) if event.kind == "published"]
    assert dict(published.new or ())["workload_id"] == "orders-1"


def test_events_are_found_by_the_name_of_a_token_and_by_an_id(shop: Shop) -> None:
    by_name = read_events(shop, "nightly_50%")
    assert by_name
    assert {event.subject for event in by_name} == {"tokens", "leases", "attempts"}
    assert all("nightly_50%" in dict(event.new or ()).values() for event in by_name)
    by_workload = read_events(shop, "orders-1")
    assert {"workloads", "attempts"} <= {event.subject for event in by_workload}
    assert len(by_workload) < len(read_events(shop))


def test_wildcards_in_a_name_are_taken_literally(shop: Shop) -> None:
    assert (read_events(shop, "nightly_5%"), read_events(shop, "nightly%")) == ([], [])
    assert read_events(shop, "no_such_name") == []
