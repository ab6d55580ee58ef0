"""Chunks in an object store and the Steward's Spark application, without a JVM: who reads them, and by what."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from pvdm.api.work import AttemptView
from pvdm.client import StewardClient
from pvdm.errors import InputError
from pvdm.lake.paths import parse_location
from pvdm.lake.stores.s3 import S3Store
from pvdm.lake.stores.s3_client import SECRET_ACCESS_KEY, SESSION_TOKEN, settings_from_config
from pvdm.lake.stores.store import WriteHooks
from pvdm.model.statements.verdict import FailureClass, Outcome
from pvdm.model.states import AttemptState
from pvdm.steward.config.steward import StewardConfig
from pvdm.steward.pipeline import spark as spark_desk
from pvdm.steward.pipeline.spark import SparkVerifier
from pvdm.verify.spark.access import StoreAccess
from pvdm.verify.spark.settings import SparkSettings
from pvdm.verify.spark.task import Common
from tests.behaviour.stores.conftest import Lake
from tests.support.gate.approvals import code_of
from tests.support.ledger.databases import memory_folder
from tests.support.spark.verification import InProcess
from tests.support.steward.pipeline import contract, line_at
from tests.support.steward.secret_search import traces
from tests.support.stores.s3_server import S3Server

pytest.importorskip("pvdm_kernel")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg")
SPARK = "extraction: spark"


@dataclass(slots=True)
class House:
    """A lake whose Steward leaves every chunk that it can to Spark."""

    lake: Lake
    vended: list[dict[str, str]]

    @property
    def desk(self) -> SparkVerifier:
        found = self.lake.line.notary.spark
        assert found is not None
        return found

    @property
    def application(self) -> InProcess:
        found = self.desk.application
        assert isinstance(found, InProcess)
        return found

    def published(self, *words: str) -> AttemptView:
        """What becomes of good rows under this contract."""
        self.lake.line.protect(contract(*words))
        with self.lake.line.client() as producer:
            return self.lake.settled(producer, self.lake.staged(producer))


@pytest.fixture
def open_house(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., House]]:
    """Makes one, with roles to vend or without."""
    monkeypatch.setattr(spark_desk, "Application", InProcess)
    vended: list[dict[str, str]] = []
    whole = StoreAccess.vend

    def noted(self: StoreAccess, *given: Any) -> dict[str, str] | None:
        found = whole(self, *given)
        vended.extend([] if found is None else [found])
        return found

    monkeypatch.setattr(StoreAccess, "vend", noted)
    with memory_folder() as folder, contextlib.ExitStack() as running:

        def made(*, vending: bool = True) -> House:
            bucket = s3_server.bucket()
            settings = SparkSettings("local[2]", folder / "spark", bytes_least=0)

            def changed(config: StewardConfig) -> StewardConfig:
                there = bucket.config()(config)
                return replace(there, spark=settings, vending=there.vending if vending else None)

            if not vending:
                s3_server.lend_to(monkeypatch)  # producers bring credentials of their own
            line = running.enter_context(line_at(folder, changed=changed))
            return House(Lake(line, bucket, s3_server.store), vended)

        yield made


@pytest.fixture
def house(open_house: Callable[..., House]) -> House:
    return open_house()


@pytest.mark.parametrize("storage", ["open", "copied", "sealed"])
def test_workers_read_objects_and_what_they_saw_is_published(house: House, storage: str) -> None:
    found = house.published(f"storage: {storage}")
    assert (found.state, found.verdict) == (AttemptState.COMMITTED, Outcome.PASS)
    assert len(house.application.seen) == 1, "by workers, not by threads"


def test_a_jobs_session_reads_what_the_job_reads_and_writes_nothing(house: House) -> None:
    house.published("storage: copied")
    (config,) = house.vended
    own, admin = S3Store(settings_from_config(config)), house.lake.admin
    places = [each.place for each in admin.walk(parse_location(house.lake.bucket.root))]
    source = next(each for each in places if "/raw/" in str(each) and "/data/" in str(each))
    assert own.facts(source).size > 0
    for folder in ("/catalog/", "/metadata/", "/vault/"):
        other = next(each for each in places if folder in str(each))
        assert admin.facts(other).size > 0
        with pytest.raises(PermissionError):
            own.facts(other)
    with pytest.raises(PermissionError):
        own.put_new(source.child("x"), b"x", WriteHooks())


def test_orders_hold_the_session_under_the_jobs_seal_alone(house: House) -> None:
    house.published("storage: open")
    (config,) = house.vended
    ((common, tasks),) = house.application.seen
    assert Common.from_bytes(common).store is not None
    for travelled in (common, zlib.decompress(common), *tasks, *map(zlib.decompress, tasks)):
        for name in (SECRET_ACCESS_KEY, SESSION_TOKEN):
            assert traces(config[name].encode(), travelled) == []


@pytest.mark.parametrize("storage", ["copied", "sealed"])
def test_another_reader_reads_objects_and_what_it_saw_is_published(house: House, storage: str) -> None:
    found = house.published(f"storage: {storage}", SPARK)
    assert (found.state, found.verdict) == (AttemptState.COMMITTED, Outcome.PASS)
    assert len(house.vended) == 3, "workers, and the reader on either side"


def test_a_version_that_came_while_another_reader_read_is_noticed_though_its_bytes_are_the_same(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = InProcess.extract

    def swapping(self: InProcess, *given: Any) -> Any:
        found = whole(self, *given)
        for place in house.lake.data(attempts[0]):
            data, tag = house.lake.admin.read_tagged(place, 100_000)
            assert house.lake.admin.swap(place, data, tag)
        return found

    monkeypatch.setattr(InProcess, "extract", swapping)
    house.lake.line.protect(contract("storage: sealed", SPARK))
    attempts: list[AttemptView] = []
    with house.lake.line.client() as producer:
        attempts.append(house.lake.staged(producer))
        found = house.lake.settled(producer, attempts[0])
    assert (found.state, found.verdict) == (AttemptState.VERIFICATION_FAILED, Outcome.FAIL)
    assert found.classes == (FailureClass.PHYSICAL,)


def test_without_sessions_to_vend_threads_read_what_workers_could_not(open_house: Callable[..., House]) -> None:
    house = open_house(vending=False)
    found = house.published("storage: copied")
    assert (found.state, found.verdict) == (AttemptState.COMMITTED, Outcome.PASS)
    assert house.application.seen == []


def test_without_sessions_to_vend_no_contract_for_sparks_reader_is_taken(open_house: Callable[..., House]) -> None:
    house = open_house(vending=False)
    with pytest.raises(InputError) as caught:
        house.lake.line.protect(contract("storage: copied", SPARK))
    assert (caught.value.reason, caught.value.got) == (
        "extraction_store_unreachable",
        f"{house.lake.line.scene.found('orders', ('sales',)).metadata.location}/data/file",
    )
    assert "[s3.vending]" in str(caught.value.expected)
    assert caught.value.hint


def test_a_workload_is_not_opened_where_sessions_are_vended_no_more(house: House) -> None:
    line = house.lake.line
    line.protect(contract("storage: copied", SPARK))
    reader = house.desk.extraction
    line.notary.workloads.spark_extraction = replace(reader, access=StoreAccess(line.notary.config.s3))
    with line.client() as producer:
        assert _refused(producer) == "extraction_store_unreachable"
        line.notary.workloads.spark_extraction = reader
        producer.open_workload("late", "sales.orders", {})


def _refused(producer: StewardClient) -> str:
    return code_of(lambda: producer.open_workload("late", "sales.orders", {}), InputError)


def test_a_connect_server_reads_no_store_for_the_steward(house: House) -> None:
    reader = house.desk.extraction
    remote = replace(reader, settings=replace(reader.settings, master="sc://127.0.0.1:1"))
    reader.require_reach(["s3://lake/a/x"])
    remote.require_reach(["file:///a/x"])
    assert code_of(lambda: remote.require_reach(["s3://lake/a/x"]), InputError) == "extraction_store_unreachable"
    assert code_of(lambda: reader.require_reach(["s3://lake/x"]), InputError) == "extraction_store_unreachable", (
        "no session is for a whole bucket"
    )
