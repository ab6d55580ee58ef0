"""AWS Glue as an upstream, for tables of format 2: publications by Glue's comparison of versions, and its limits."""

from __future__ import annotations

import datetime
import itertools
import json
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer
from pyiceberg.catalog.glue import GlueCatalog

from pvdm.errors import InputError, NotAllowedError, UnavailableError
from pvdm.lake.format.table.new_table import new_table
from pvdm.lake.stores.s3_client import S3Settings, open_client, store_properties
from pvdm.lake.upstream import CommitRequest, GlueSettings, TableIdentifier
from pvdm.lake.upstream.glue import GlueUpstream
from pvdm.model.role import Role
from pvdm.steward.config.resources import open_mounts
from pvdm.steward.config.sections import UpstreamConfig
from pvdm.steward.config.steward import StewardConfig
from tests.behaviour.upstream.test_upstream_serving import commit, load_as, refusal_reason
from tests.support import fault
from tests.support.catalog.core import request
from tests.support.catalog.upstream import (
    BEFORE,
    NEW,
    announced_of,
    load_attempt,
    new_snapshot_on,
    publish,
    reason_of,
    receipts_of,
)
from tests.support.gate.approvals import SALES, Scene, with_catalog
from tests.support.gate.protected_tables import House, contract
from tests.support.ledger.databases import memory_folder
from tests.support.servers.fault_proxy import (
    Fault,
    FaultProxy,
    ProxiedRequest,
    ProxiedResponse,
    after_doing,
    fault_proxy,
    hold_request,
    lose_answer,
    lose_request,
)
from tests.support.servers.silent_proxy import silent_proxy
from tests.support.steward.notary import stand_at
from tools.proof_kit import NOW, SECOND

Doc = dict[str, Any]
REGION = "eu-central-1"
_NUMBERS = itertools.count()


def compare_versions(proxy: FaultProxy, request: ProxiedRequest) -> ProxiedResponse | None:
    """Refuse an update that names an old version, as AWS does. Moto accepts any version."""
    if not request.is_commit:
        return None
    asked = json.loads(request.body)
    wanted = {"DatabaseName": asked["DatabaseName"], "Name": asked["TableInput"]["Name"]}
    look = replace(request, headers={**request.headers, "X-Amz-Target": "AWSGlue.GetTable"}, body=b"")
    look.body = json.dumps(wanted).encode()
    now = json.loads(proxy.send(look).body)["Table"]["VersionId"]
    if asked["VersionId"] == now:
        return None
    error = {"__type": "ConcurrentModificationException", "Message": f"the table is at version {now}"}
    return ProxiedResponse(400, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(error).encode())


@dataclass(slots=True)
class GlueScene(Scene):
    """A scene whose tables are created at Glue itself, with the time of the tests."""

    glue: GlueCatalog | None = None
    home: Path = Path()
    shop: str = ""

    def make(
        self,
        name: str = "orders",
        *,
        version: int = 2,
        levels: Any = SALES,
        changed: Callable[[Doc], object] = lambda _: None,
    ) -> Any:
        assert self.glue is not None
        place = f"{self.home}/{name}"
        asked = {"name": name, **request(version)}
        made = new_table(asked, location=f"file://{place}", table_uuid=str(uuid.uuid4()), now_ms=self.now // 1_000)
        (Path(place) / "metadata").mkdir(parents=True)
        document = json.loads(made.to_bytes())
        changed(document)
        (Path(place) / "metadata" / "00000-first.metadata.json").write_text(json.dumps(document))
        self.glue.register_table((self.shop, name), f"file://{place}/metadata/00000-first.metadata.json")
        return self.table_state(name, levels)


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
        server.stop()


@pytest.fixture
def proxy(moto: str) -> Iterator[FaultProxy]:
    with fault_proxy(moto) as found:
        found.guard = compare_versions
        yield found


class _Clock:
    """The tests' clock for PyIceberg, which writes the time of its own process into metadata files."""

    @staticmethod
    def now() -> datetime.datetime:
        return datetime.datetime.fromtimestamp(NOW // SECOND, tz=datetime.UTC)


@pytest.fixture
def house(moto: str, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    monkeypatch.setattr("pyiceberg.table.update.datetime", _Clock)
    with memory_folder() as folder:
        glue = GlueCatalog("there", **{"glue.endpoint": moto, "glue.region": REGION})
        shop = f"shop_{next(_NUMBERS)}"
        glue.create_namespace(shop)

        def changed(config: StewardConfig) -> StewardConfig:
            plain = with_catalog(folder)(config)
            found = GlueSettings(REGION, proxy.url)
            return replace(
                plain, catalog=replace(plain.catalog, upstreams=(UpstreamConfig("glue", SALES, (shop,), found),))
            )

        with stand_at(folder, changed=changed) as stand:
            scene = GlueScene(stand, glue=glue, home=folder / "there", shop=shop)
            stand.notary.catalog.namespaces.create(scene.grant(), SALES, {"pvdm.domain": "sales"})
            made = House(stand, scene)
            made.table(rows=BEFORE)
            yield made


def state_of(house: House, attempt: Any) -> tuple[str, list[int], list[str], int]:
    return str(load_attempt(house, attempt).state), house.rows(), announced_of(house, attempt), len(receipts_of(house))


def test_a_publication_is_visible_in_glue_itself(house: House) -> None:
    scene: Any = house.scene
    house.table("empty")  # PyIceberg assumes that a table without a snapshot has no branch
    publish(house, house.proved("e", NEW, name="empty"))
    done = publish(house, house.proved("w", NEW))
    table = scene.glue.load_table((scene.shop, "orders"))
    assert table.metadata.current_snapshot_id == done.shown.new_snapshot_id
    assert table.metadata_location == done.shown.metadata_path
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [1, 2, 3, 4]
    assert house.rows("empty") == [3, 4]


def test_lost_answers_late_commits_and_other_writers_neither_lose_nor_double_a_publication(
    house: House, proxy: FaultProxy
) -> None:
    ways: dict[str, tuple[list[Fault], list[str]]] = {
        "lost after": ([lose_answer], ["DONE"]),
        "lost before": ([lose_request], ["DONE", "RELEASED"]),
        "overtaken": ([after_doing(lambda: commit_other_branch(house))], ["DONE", "RELEASED"]),
        "fence lost": ([lose_request, lose_answer], ["DONE", "RELEASED"]),
        "late": ([hold_request, after_doing(proxy.deliver)], ["DONE"]),
    }
    house.open("w", list(ways))
    for at, (name, (plan, ended)) in enumerate(ways.items()):
        attempt = house.proved("w", [(3 + at, 1, "Ulm")], chunk_id=name, opened=False)
        proxy.plan += plan
        publish(house, attempt)
        assert state_of(house, attempt) == ("COMMITTED", list(range(1, 4 + at)), ended, at + 1), name


def commit_other_branch(house: House) -> None:
    """Create another branch with PyIceberg, at Glue itself."""
    scene: Any = house.scene
    table = scene.glue.load_table((scene.shop, "orders"))
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id, "theirs").commit()


def test_a_commit_that_arrives_after_it_was_given_up_is_refused_by_its_version(house: House, proxy: FaultProxy) -> None:
    attempt = house.proved("w", NEW)
    proxy.plan.append(hold_request)
    with fault.armed("upstream.after_swap", fault.Raise(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        publish(house, attempt)
    house.publishing().settle()
    assert (announced_of(house, attempt), proxy.deliver(), house.rows()) == (["RELEASED"], [400], [1, 2])
    publish(house, attempt)
    assert state_of(house, attempt) == ("COMMITTED", [1, 2, 3, 4], ["DONE", "RELEASED"], 1)


def test_nothing_is_published_on_a_snapshot_that_somebody_put_onto_main_in_glue(
    house: House, proxy: FaultProxy
) -> None:
    attempt = house.proved("w", NEW)

    def slip() -> None:
        state = house.table_state()
        files = house.write_files(f"{state.metadata.location}/data/slipped", [(8, 1, "Ulm")])
        made = new_snapshot_on(house, state.metadata, files, "main")
        house.notary.catalog.upstreams.commit(
            state.row, house.notary.catalog.upstreams.load(state.row)[1], [], list(made.updates)
        )

    proxy.plan.append(after_doing(slip))
    assert reason_of(house, attempt) == "upstream_main_moved"
    assert state_of(house, attempt) == ("COMMITTING", [1, 2, 8], ["RELEASED"], 0)


def test_a_table_of_another_format_or_kind_is_not_served(house: House) -> None:
    scene: Any = house.scene
    grant = house.scene.grant(Role.OPERATOR)
    with pytest.raises(InputError) as caught:
        scene.make("newer", version=3)
    assert caught.value.reason == "upstream_format_refused"
    scene.glue.glue.create_table(DatabaseName=scene.shop, TableInput={"Name": "hive", "Parameters": {}})
    with pytest.raises(InputError) as caught:
        house.notary.catalog.tables.load(grant, SALES, "hive")
    assert caught.value.reason == "table_unknown"
    scene.glue.glue.delete_table(DatabaseName=scene.shop, Name="hive")
    assert house.notary.catalog.tables.page(grant, SALES, after=None, count=None) == ["newer", "orders"]


# A principal that may write to a table decides its properties.

_PLANTED = """
from pathlib import Path


class Planted:
    def __init__(self, *_):
        Path({mark!r}).touch()
        raise ValueError("it ran")
"""


@pytest.mark.parametrize("name", ["py-io-impl", "write.py-location-provider.impl"])
def test_the_steward_loads_no_class_that_a_tables_properties_name(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    mark = tmp_path / "ran"
    (tmp_path / "planted_class.py").write_text(_PLANTED.format(mark=str(mark)))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "planted_class", raising=False)
    scene: Any = house.scene
    scene.make("free")
    for value in ("planted_class.Planted", "planted_class.Planted "):  # the second commit finds the first value
        commit(house, [{"action": "set-properties", "updates": {name: value}}], name="free")
    assert house.table_state("free").metadata.properties[name].startswith("planted_class")
    assert not mark.exists()


def test_metadata_files_are_written_only_in_the_tables_own_folder(house: House) -> None:
    scene: Any = house.scene
    scene.make("free")
    reserved = f"file://{house.vault.root.local}/planted"
    with pytest.raises(NotAllowedError) as caught:
        commit(house, [{"action": "set-properties", "updates": {"write.metadata.path": reserved}}], name="free")
    assert caught.value.reason == "location_reserved"
    elsewhere = f"file://{house.vault.root.local.parent}/planted"
    commit(house, [{"action": "set-properties", "updates": {"write.metadata.path": elsewhere}}], name="free")
    found = house.table_state("free")
    assert found.metadata.properties["write.metadata.path"] == elsewhere
    assert found.row.pointer.location.startswith(f"{found.metadata.location}/metadata/")


def test_a_table_is_not_found_by_its_name_in_another_case(house: House, proxy: FaultProxy) -> None:
    scene: Any = house.scene
    scene.make("free")
    house.stand.reopen()

    def ignore_case(found: FaultProxy, request: ProxiedRequest) -> ProxiedResponse | None:
        """AWS finds a table by its name in any case; moto does not."""
        if not request.body_contains('"FREE"'):
            return compare_versions(found, request)
        return found.send(replace(request, body=request.body.replace(b"FREE", b"free")))

    proxy.guard = ignore_case
    grant = house.scene.grant(Role.CONSUMER, "sales")
    tables = house.notary.catalog.tables
    assert refusal_reason(lambda: tables.load(grant, SALES, "FREE")) == "table_unknown"
    assert tables.load(grant, SALES, "free").row.name == "free"


def test_a_table_with_fields_that_pyiceberg_would_drop_is_not_changed_and_stays_readable(house: House) -> None:
    scene: Any = house.scene
    publish(house, house.proved("w", NEW))
    assert load_as(house, Role.CONSUMER)["metadata"]["snapshots"]
    before = house.table_state().row.pointer
    for name, change in (
        ("named", lambda document: document.update(vendor={"a": 1})),
        ("column", lambda document: document["schemas"][0]["fields"][0].update(vendor="x")),
    ):
        scene.make(name, changed=change)
        house.contracts[name] = contract(name)
        scene.protect(scene.protection(name, contract=house.contracts[name]))
        assert refusal_reason(lambda name=name: house.proved(name, NEW, name=name)) == "upstream_commit_lossy"  # type: ignore[misc]
        assert load_as(house, Role.CONSUMER, name)["metadata"]["location"]
    assert house.table_state().row.pointer == before


def test_a_publication_that_would_drop_unknown_fields_is_not_announced(house: House) -> None:
    scene: Any = house.scene
    attempt = house.proved("w", NEW)
    metadata = house.table_state().metadata
    document = json.loads(metadata.to_bytes())
    document["refs"]["theirs"] = {"snapshot-id": metadata.current_snapshot_id, "type": "branch", "vendor": "x"}
    file = Path(scene.home) / "orders" / "metadata" / "00099-theirs.metadata.json"
    file.write_text(json.dumps(document))
    shown = {"table_type": "ICEBERG", "metadata_location": f"file://{file}"}
    scene.glue.glue.update_table(DatabaseName=scene.shop, TableInput={"Name": "orders", "Parameters": shown})
    assert reason_of(house, attempt) == "upstream_commit_lossy"
    assert state_of(house, attempt) == ("COMMITTING", [1, 2], [], 0)


def test_files_in_an_object_store_are_read_and_written_with_the_stewards_own_settings(moto: str) -> None:
    """Without them PyIceberg would look for the files at AWS, whatever endpoint the environment names."""
    store = S3Settings(REGION, moto, path_style=True)
    bucket, shop = f"glue-{next(_NUMBERS)}", f"shop_{next(_NUMBERS)}"
    client = open_client(store)
    client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    there = GlueCatalog("there", **{"glue.endpoint": moto, "glue.region": REGION, **store_properties(store)})
    there.create_namespace(shop)
    there.create_table((shop, "orders"), pa.schema({"id": pa.int64()}), location=f"s3://{bucket}/orders")
    (mount,) = open_mounts([UpstreamConfig("glue", SALES, (shop,), GlueSettings(REGION, moto))], store)
    place = TableIdentifier((shop,), "orders")
    seen = mount.upstream.load(place)
    assert seen.metadata.location == f"s3://{bucket}/orders"
    requirement: Doc = {"type": "assert-table-uuid", "uuid": seen.metadata.table_uuid}
    wanted: Doc = {"action": "set-properties", "updates": {"note": "new"}}
    mount.upstream.commit(place, CommitRequest(seen, [requirement], [wanted]))
    after = mount.upstream.load(place)
    assert (after.metadata.properties["note"], after.metadata_location != seen.metadata_location) == ("new", True)
    assert there.load_table((shop, "orders")).properties["note"] == "new"


def test_requests_fail_at_once_after_glue_was_silent(moto: str, house: House) -> None:
    scene: Any = house.scene
    address = urlsplit(moto)
    with silent_proxy(str(address.hostname), address.port or 0) as quiet:
        upstream = GlueUpstream("glue", GlueSettings(REGION, quiet.url, timeout_seconds=3))
        place = TableIdentifier((scene.shop,), "orders")
        assert upstream.load(place).metadata.location
        quiet.silent = True
        with pytest.raises(UnavailableError):
            upstream.load(place)
        count = quiet.connections
        for work in (lambda: upstream.load(place), lambda: upstream.names(place.levels)):
            with pytest.raises(UnavailableError):
                work()
        assert quiet.connections == count
        quiet.resume()
        again = upstream.reconnect()
        assert again.load(place).metadata.location  # a new connection is always tried; its success ends the refusals
        assert upstream.names(place.levels) == ["orders"]
        for each in (again, upstream):
            each.close()


def test_a_refused_connection_does_not_count_as_silence(moto: str) -> None:
    upstream = GlueUpstream("glue", GlueSettings(REGION, "http://127.0.0.1:1"))
    for _ in range(2):
        with pytest.raises(UnavailableError) as caught:
            upstream.load(TableIdentifier(("shop",), "orders"))
        assert caught.value.got == "EndpointConnectionError"
    upstream.close()
