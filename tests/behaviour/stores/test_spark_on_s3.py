"""Chunks in an object store and the Steward's Spark application, without a JVM: who reads them, with which session."""

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
from pvdm.steward.pipeline import spark as spark_pipeline
from pvdm.steward.pipeline.spark import SparkVerifier
from pvdm.verify.spark.access import StoreAccess
from pvdm.verify.spark.settings import SparkSettings
from pvdm.verify.spark.task import Common
from tests.behaviour.stores.conftest import Lake
from tests.support.gate.approvals import reason_of
from tests.support.ledger.databases import memory_folder
from tests.support.spark.verification import InProcess
from tests.support.steward.pipeline import contract, line_at
from tests.support.steward.secret_search import traces
from tests.support.stores.s3_server import S3Server

pytest.importorskip("pvdm_kernel")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg")
SPARK = "extraction: spark"


@dataclass(slots=True)
class SparkLake:
    """A lake whose Steward leaves every chunk that it can to Spark, and the sessions that it has vended for it."""

    lake: Lake
    vended: list[dict[str, str]]

    @property
    def verifier(self) -> SparkVerifier:
        found = self.lake.line.notary.spark
        assert found is not None
        return found

    @property
    def application(self) -> InProcess:
        found = self.verifier.application
        assert isinstance(found, InProcess)
        return found

    def publish(self, *contract_lines: str) -> AttemptView:
        """Stage the right rows under a contract with these lines. Returns the ended attempt."""
        self.lake.line.protect(contract(*contract_lines))
        with self.lake.line.client() as producer:
            return self.lake.hand_in(producer, self.lake.stage_attempt(producer))


@pytest.fixture
def open_spark_lake(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., SparkLake]]:
    """A function that opens a `SparkLake`, with roles to vend sessions for or without."""
    monkeypatch.setattr(spark_pipeline, "Application", InProcess)
    vended: list[dict[str, str]] = []
    whole = StoreAccess.vend

    def vend_and_record(self: StoreAccess, *given: Any) -> dict[str, str] | None:
        found = whole(self, *given)
        vended.extend([] if found is None else [found])
        return found

    monkeypatch.setattr(StoreAccess, "vend", vend_and_record)
    with memory_folder() as folder, contextlib.ExitStack() as running:

        def open_lake(*, vending: bool = True) -> SparkLake:
            bucket = s3_server.bucket()
            settings = SparkSettings("local[2]", folder / "spark", bytes_least=0)

            def changed(config: StewardConfig) -> StewardConfig:
                with_bucket = bucket.config()(config)
                return replace(with_bucket, spark=settings, vending=with_bucket.vending if vending else None)

            if not vending:
                s3_server.lend_to(monkeypatch)  # producers use their own credentials
            line = running.enter_context(line_at(folder, changed=changed))
            return SparkLake(Lake(line, bucket, s3_server.store), vended)

        yield open_lake


@pytest.fixture
def spark_lake(open_spark_lake: Callable[..., SparkLake]) -> SparkLake:
    return open_spark_lake()


@pytest.mark.parametrize("storage", ["open", "copied", "sealed"])
def test_objects_that_workers_read_are_published(spark_lake: SparkLake, storage: str) -> None:
    found = spark_lake.publish(f"storage: {storage}")
    assert (found.state, found.verdict) == (AttemptState.COMMITTED, Outcome.PASS)
    assert len(spark_lake.application.seen) == 1, "read by workers, not by threads"


def test_a_jobs_session_reads_the_jobs_files_only_and_writes_none(spark_lake: SparkLake) -> None:
    spark_lake.publish("storage: copied")
    (config,) = spark_lake.vended
    own, admin = S3Store(settings_from_config(config)), spark_lake.lake.admin
    places = [each.place for each in admin.walk(parse_location(spark_lake.lake.bucket.root))]
    source = next(each for each in places if "/raw/" in str(each) and "/data/" in str(each))
    assert own.facts(source).size > 0
    for folder in ("/catalog/", "/metadata/", "/vault/"):
        other = next(each for each in places if folder in str(each))
        assert admin.facts(other).size > 0
        with pytest.raises(PermissionError):
            own.facts(other)
    with pytest.raises(PermissionError):
        own.put_new(source.child("x"), b"x", WriteHooks())


def test_tasks_contain_the_session_only_in_encrypted_form(spark_lake: SparkLake) -> None:
    spark_lake.publish("storage: open")
    (config,) = spark_lake.vended
    ((common, tasks),) = spark_lake.application.seen
    assert Common.from_bytes(common).store is not None
    for travelled in (common, zlib.decompress(common), *tasks, *map(zlib.decompress, tasks)):
        for name in (SECRET_ACCESS_KEY, SESSION_TOKEN):
            assert traces(config[name].encode(), travelled) == []


@pytest.mark.parametrize("storage", ["copied", "sealed"])
def test_objects_that_a_second_reader_reads_are_published(spark_lake: SparkLake, storage: str) -> None:
    found = spark_lake.publish(f"storage: {storage}", SPARK)
    assert (found.state, found.verdict) == (AttemptState.COMMITTED, Outcome.PASS)
    assert len(spark_lake.vended) == 3, "for the workers, and for the reader of each side"


def test_a_new_version_during_the_second_reading_fails_even_if_its_bytes_are_the_same(
    spark_lake: SparkLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = InProcess.extract

    def extract_and_rewrite(self: InProcess, *given: Any) -> Any:
        found = whole(self, *given)
        for place in spark_lake.lake.data_files(attempts[0]):
            data, tag = spark_lake.lake.admin.read_tagged(place, 100_000)
            assert spark_lake.lake.admin.swap(place, data, tag)
        return found

    monkeypatch.setattr(InProcess, "extract", extract_and_rewrite)
    spark_lake.lake.line.protect(contract("storage: sealed", SPARK))
    attempts: list[AttemptView] = []
    with spark_lake.lake.line.client() as producer:
        attempts.append(spark_lake.lake.stage_attempt(producer))
        found = spark_lake.lake.hand_in(producer, attempts[0])
    assert (found.state, found.verdict) == (AttemptState.VERIFICATION_FAILED, Outcome.FAIL)
    assert found.classes == (FailureClass.PHYSICAL,)


def test_without_vended_sessions_threads_read_the_objects(open_spark_lake: Callable[..., SparkLake]) -> None:
    spark_lake = open_spark_lake(vending=False)
    found = spark_lake.publish("storage: copied")
    assert (found.state, found.verdict) == (AttemptState.COMMITTED, Outcome.PASS)
    assert spark_lake.application.seen == []


def test_without_vended_sessions_a_contract_with_extraction_spark_is_refused(
    open_spark_lake: Callable[..., SparkLake],
) -> None:
    spark_lake = open_spark_lake(vending=False)
    with pytest.raises(InputError) as caught:
        spark_lake.lake.line.protect(contract("storage: copied", SPARK))
    assert (caught.value.reason, caught.value.got) == (
        "extraction_store_unreachable",
        f"{spark_lake.lake.line.scene.table_state('orders', ('sales',)).metadata.location}/data/file",
    )
    assert "[s3.vending]" in str(caught.value.expected)
    assert caught.value.hint


def test_a_workload_is_not_opened_if_sessions_are_not_vended_any_more(spark_lake: SparkLake) -> None:
    line = spark_lake.lake.line
    line.protect(contract("storage: copied", SPARK))
    reader = spark_lake.verifier.extraction
    line.notary.workloads.spark_extraction = replace(reader, access=StoreAccess(line.notary.config.s3))
    with line.client() as producer:
        assert opening_reason(producer) == "extraction_store_unreachable"
        line.notary.workloads.spark_extraction = reader
        producer.open_workload("late", "sales.orders", {})


def opening_reason(producer: StewardClient) -> str:
    return reason_of(lambda: producer.open_workload("late", "sales.orders", {}), InputError)


def test_a_spark_connect_server_cannot_read_a_store_for_the_steward(spark_lake: SparkLake) -> None:
    reader = spark_lake.verifier.extraction
    remote = replace(reader, settings=replace(reader.settings, master="sc://127.0.0.1:1"))
    reader.require_reach(["s3://lake/a/x"])
    remote.require_reach(["file:///a/x"])
    assert reason_of(lambda: remote.require_reach(["s3://lake/a/x"]), InputError) == "extraction_store_unreachable"
    assert reason_of(lambda: reader.require_reach(["s3://lake/x"]), InputError) == "extraction_store_unreachable", (
        "no session is for a whole bucket"
    )
