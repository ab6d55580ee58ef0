"""Unmodified PyIceberg through the catalog: create, stage on a branch, read and travel, each by the roles that may."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError, UnauthorizedError
from pyiceberg.table import Table

from pvdm.model.role import Role
from tests.support.catalog.http import Lake, lake_at
from tests.support.spark.catalog import publish
from tests.support.steward.notary import RealTime

# PyIceberg's own: it says so of every catalog that has tables in format 3, and of its own deletes.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg", "ignore:Delete operation did not match")
ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "note": ["a", "b"]})
MORE = pa.table({"id": pa.array([3], pa.int64()), "note": ["c"]})
GATED = "is protected"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with lake_at(tmp_path_factory.mktemp("pyiceberg"), clock=RealTime()) as made:
        yield made


def catalog(lake: Lake, role: Role, **settings: str) -> RestCatalog:
    token, grant = lake.steward.stand.token(role, "sales", f"pyiceberg-{role}")
    uri = f"{lake.steward.server.url}/catalog"
    known = {"credential": f"{grant.token_id}:{token}", "oauth2-server-uri": f"{uri}/v1/oauth/tokens"}
    return RestCatalog("lake", uri=uri, **(settings or known))


def ids(table: Table, **scan: int | str) -> list[int]:
    found = table.scan(snapshot_id=int(scan["snapshot_id"])) if "snapshot_id" in scan else table.scan()
    if "ref" in scan:
        found = found.use_ref(str(scan["ref"]))
    listed: list[int] = found.to_arrow().to_pydict()["id"]
    return sorted(listed)


def published(lake: Lake, name: str, version: int = 2) -> Table:
    """A protected table whose main shows two rows, with a branch `stage` of it."""
    made: Table = catalog(lake, Role.PRODUCER).create_table(
        ("sales", name), schema=ROWS.schema, properties={"format-version": str(version)}
    )
    made.append(ROWS)
    head = made.current_snapshot()
    assert head is not None
    made.manage_snapshots().create_branch(head.snapshot_id, "stage").commit()
    lake.protect(name)
    made.refresh()
    return made


@pytest.mark.parametrize("version", [1, 2])
def test_a_producer_creates_stages_changes_and_deletes_on_a_branch(lake: Lake, version: int) -> None:
    table = published(lake, f"staged{version}", version)
    table.append(MORE, branch="stage")
    table.delete("id = 1", branch="stage")
    table.overwrite(pa.table({"id": pa.array([2], pa.int64()), "note": ["n"]}), "id = 2", branch="stage")
    assert ids(table.refresh(), ref="stage") == [2, 3]
    assert ids(table) == [1, 2]


def test_the_stewards_token_stages_on_a_branch_and_makes_no_table(lake: Lake) -> None:
    published(lake, "kept")
    steward = catalog(lake, Role.STEWARD)
    table = steward.load_table(("sales", "kept"))
    table.append(MORE, branch="stage")
    assert ids(table.refresh(), ref="stage") == [1, 2, 3]
    with pytest.raises(ForbiddenError, match="role does not allow"):
        steward.create_table(("sales", "mine"), schema=ROWS.schema)


@pytest.mark.parametrize("role", [Role.PRODUCER, Role.STEWARD])
def test_a_write_to_main_of_a_protected_table_is_refused_with_the_gates_message(lake: Lake, role: Role) -> None:
    name = f"gated_{role}"
    published(lake, name)
    table = catalog(lake, role).load_table(("sales", name))
    before = lake.caller().done("GET", f"/namespaces/sales/tables/{name}")["metadata"]
    with pytest.raises(ForbiddenError, match=GATED):
        table.append(MORE)
    with pytest.raises(ForbiddenError, match=GATED):
        table.delete("id = 1")
    with pytest.raises(ForbiddenError, match=GATED), table.update_schema() as update:
        update.delete_column("note")
    with pytest.raises(ForbiddenError, match=GATED), table.transaction() as transaction:
        transaction.set_properties(owner="me")
    assert lake.caller().done("GET", f"/namespaces/sales/tables/{name}")["metadata"] == before


def test_a_consumer_reads_main_and_what_was_published_and_nothing_staged(lake: Lake) -> None:
    made = published(lake, "shown")
    first = made.current_snapshot()
    made.append(MORE, branch="stage")
    second = publish(lake, "shown")
    made.refresh().append(MORE, branch="stage")
    staged = made.refresh().snapshot_by_name("stage")
    assert first is not None
    assert staged is not None
    table = catalog(lake, Role.CONSUMER).load_table(("sales", "shown"))
    assert ids(table) == [1, 2, 3]
    assert ids(table, snapshot_id=first.snapshot_id) == [1, 2]
    assert set(table.inspect.snapshots()["snapshot_id"].to_pylist()) == {first.snapshot_id, second}
    assert table.inspect.refs()["name"].to_pylist() == ["main"]
    assert [entry.snapshot_id for entry in table.history()] == [first.snapshot_id, second]
    with pytest.raises(ValueError, match=r"Snapshot not found|Cannot scan unknown"):
        ids(table, snapshot_id=staged.snapshot_id)
    with pytest.raises(ValueError, match="Cannot scan unknown ref"):
        ids(table, ref="stage")


def test_a_consumer_writes_nowhere(lake: Lake) -> None:
    published(lake, "closed")
    consumer = catalog(lake, Role.CONSUMER)
    table = consumer.load_table(("sales", "closed"))
    attempts: tuple[Callable[[], object], ...] = (
        lambda: table.append(MORE),
        lambda: table.manage_snapshots().create_branch(table.metadata.current_snapshot_id or 0, "mine").commit(),
        lambda: consumer.create_table(("sales", "mine"), schema=ROWS.schema),
        lambda: consumer.drop_table(("sales", "closed")),
    )
    for work in attempts:
        with pytest.raises(ForbiddenError, match="role does not allow"):
            work()


def test_pyiceberg_works_with_a_bare_token_and_is_refused_without_one(lake: Lake) -> None:
    token, _ = lake.steward.stand.token(Role.CONSUMER, "sales", "bare")
    assert catalog(lake, Role.CONSUMER, token=token).list_namespaces() == [("sales",)]
    # Without a token PyIceberg sends the text `None` as the token.
    with pytest.raises(UnauthorizedError, match="the token is not known"):
        catalog(lake, Role.CONSUMER, warehouse="lake")
