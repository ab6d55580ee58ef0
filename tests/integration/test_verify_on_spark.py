"""The Steward's own Spark application on this host: files by its workers, rows by Spark's reader, one digest."""

from __future__ import annotations

import datetime
import importlib.util
import secrets
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pvdm.digest import Keys
from pvdm.model.chunk import ChunkDefinition
from pvdm.model.projection import ProjectionName
from pvdm.model.schema import (
    DecimalType,
    Field,
    Inner,
    Kind,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
    StructType,
)
from pvdm.model.statements.core import ExtractionPath
from pvdm.verify.chunk_files import files_of_chunk
from pvdm.verify.fetch import Files
from pvdm.verify.findings import Partials
from pvdm.verify.intent import digest_plan
from pvdm.verify.job import VerificationResult, VerifyJob, verify
from pvdm.verify.readers import JobInputs, JobKeys, SourceItem, Work
from pvdm.verify.spark.extracting import extract_intent, job_folder
from tests.support.lake.scans import Lake, fetch, pinned, table_of, to_doc
from tests.support.services import SHORT_LIVED, require
from tests.support.spark.traces import keys_of, places, traces_in, verbose_settings
from tests.support.spark.verification import Lab, facts, lab_at
from tests.support.steward.notary import context_of, core_of
from tests.support.steward.secret_search import traces
from tests.support.verify.attempts import ROWS
from tests.support.verify.intents import digest_intent
from tests.unit.contract.examples import contract_with

pytestmark = pytest.mark.usefixtures("kernel")
LONG, DOUBLE, STRING, BOOLEAN, DATE, BINARY, TIMESTAMP, ZONED = (
    PrimitiveType(kind)
    for kind in (
        Kind.LONG,
        Kind.DOUBLE,
        Kind.STRING,
        Kind.BOOLEAN,
        Kind.DATE,
        Kind.BINARY,
        Kind.TIMESTAMP,
        Kind.TIMESTAMPTZ,
    )
)
COLUMNS = Schema(
    (
        Field("id", LONG, field_id=1),
        Field("text", STRING, field_id=2),
        Field("price", DecimalType(9, 2), field_id=3),
        Field("ratio", DOUBLE, field_id=4),
        Field("flag", BOOLEAN, field_id=5),
        Field("day", DATE, field_id=6),
        Field("blob", BINARY, field_id=7),
        Field("at", TIMESTAMP, field_id=8),
        Field("when it was", ZONED, field_id=9),
        Field("tags", ListType(Inner(STRING, field_id=21)), field_id=10),
        Field("seen", MapType(Inner(STRING, True, field_id=22), Inner(LONG, field_id=23)), field_id=11),
        Field("who", StructType((Field("name", STRING, field_id=24), Field("age", LONG, field_id=25))), field_id=12),
    )
)
ALL = ChunkDefinition("all", "true", None)
PLANTED = secrets.token_bytes(32)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A Steward that reads every chunk on Spark: files by its workers, rows by Spark's reader."""
    require(importlib.util.find_spec("pandas"), "pandas is not installed, without which Spark hands no batches over")
    contracted = {"storage": "copied", "extraction": "spark"}
    folder = tmp_path_factory.mktemp("local").resolve()
    settings = verbose_settings(folder) | {"spark.driver.extraJavaOptions": f"{SHORT_LIVED} -Dplanted={PLANTED.hex()}"}
    with lab_at(folder, source=(ROWS[:40], ROWS[40:]), contracted=contracted, settings=settings) as made:
        yield made


def direct(job: VerifyJob) -> VerifyJob:
    """The same job under a contract that leaves rows to the kernel."""
    contract = replace(job.bound.contract, extraction=ExtractionPath.DIRECT)
    return replace(job, bound=replace(job.bound, contract=contract))


@pytest.fixture(scope="module")
def verified_attempt(lab: Lab) -> tuple[str, VerificationResult]:
    """An attempt, and what the application found of it."""
    attempt, _ = lab.bench.staged(ROWS[:25], ROWS[25:])
    return attempt.attempt_id, lab.verified(attempt, lab.on_spark())


def test_rows_by_sparks_reader_and_files_by_its_workers_have_the_digests_of_threads(
    lab: Lab, verified_attempt: tuple[str, VerificationResult]
) -> None:
    attempt_id, found = verified_attempt
    by_threads = verify(direct(lab.bench.verification.load_job(attempt_id)), lab.tools)
    assert found.core.verdict.passed
    assert found.commitments == by_threads.commitments, "under one key: the digests are equal"
    assert (found.files, found.context) == (by_threads.files, by_threads.context)
    assert found.core.method.extraction is ExtractionPath.SPARK
    assert found.core.method.extraction_version.startswith("spark-4.")
    assert "-iceberg-1." in found.core.method.extraction_version
    plain = direct(lab.bench.verification.load_job(attempt_id))
    assert facts(verify(plain, lab.on_spark())) == facts(by_threads), "the same without Spark's reader"


def test_the_search_finds_a_planted_key_and_none_of_the_attempts_keys(
    lab: Lab, verified_attempt: tuple[str, VerificationResult]
) -> None:
    shown = places(lab)
    folders = [lab.settings.scratch, lab.settings.scratch.parent / "events"]
    assert traces_in(PLANTED, folders[1]), "the event log"
    for kind in ("UI environment/", "UI api/v1/applications/", "command of"):
        assert any(traces(PLANTED, text) for place, text in shown.items() if place.startswith(kind)), kind
    for name, secret in keys_of(lab, verified_attempt[1]).items():
        assert [place for folder in folders for place in traces_in(secret, folder)] == [], name
        assert [place for place, text in shown.items() if traces(secret, text)] == [], name


def row(at: int) -> dict[str, Any]:
    zoned = datetime.datetime(2026, 1, 1, 12, 30, 15, 123_456, tzinfo=datetime.UTC) + datetime.timedelta(days=at)
    moment = zoned.replace(tzinfo=None)
    return {
        "id": at,
        "text": None if at % 5 == 0 else f"text {at} ✓",
        "price": Decimal(at) / 4,
        "ratio": float("nan") if at % 7 == 0 else at / 3,
        "flag": at % 2 == 0,
        "day": moment.date(),
        "blob": bytes([at]),
        "at": moment,
        "when it was": zoned,
        "tags": None if at % 4 == 0 else [f"tag {at}", None],
        "seen": {"a": at, "b": None},
        "who": {"name": f"n{at}", "age": None},
    }


def deleting_lake(folder: Path) -> Lake:
    """Three files of which rows were deleted by position and by value."""
    folder.mkdir()
    lake = Lake(folder, (to_doc(COLUMNS),))
    first, *_ = [lake.data(table_of(COLUMNS, [row(at) for at in range(10 * n, 10 * n + 10)])) for n in range(3)]
    lake.positions([(first, 0), (first, 7)])
    lake.equalities(table_of(COLUMNS.select({"id"}), [{"id": 12}, {"id": 25}]), [1])
    return lake


@pytest.mark.parametrize("one_file", [False, True])
def test_a_source_with_deletes_and_every_type_is_seen_alike(lab: Lab, tmp_path: Path, one_file: bool) -> None:
    source = pinned(deleting_lake(tmp_path / f"lake-{one_file}"))
    bound = contract_with(("projections/identity", ["id"]), ("boundary/where", "id < 28")).bind({})
    plan = digest_plan(bound.contract, COLUMNS)
    chunk = replace(ALL, where=None, files=(source.scan.files[1].location,)) if one_file else ALL
    inputs = JobInputs(plan, lab.bench.state().metadata, bound, chunk, source)
    notary = lab.bench.scene.notary
    job_id = f"verify:deletes:{one_file}"
    handle = notary.handles.issue(job_id, redemptions=1_000)
    notary.handles.freeze(job_id, context_of(core_of("one"), notary.keys.epoch_for(None)))
    keys: Keys = notary.handles.redeem(handle, job_id=job_id, worker="steward")
    held = JobKeys(job_id, handle, keys)
    by_threads = digest_intent(bound, source, chunk, plan, keys, fetch)
    with job_folder(lab.settings.scratch, job_id) as folder:
        by_reader = extract_intent(lab.desk.extraction, inputs, folder, held)
    by_workers = lab.desk.reader.read(Work(inputs, (), tuple(_items(inputs))), held).intent
    notary.handles.end(job_id)
    # Of 28 rows with smaller ids four are deleted, one of them in the second file of ten rows.
    assert by_threads[ProjectionName.CONTENT].rows == (9 if one_file else 24)
    for other in (by_reader, by_workers):
        assert all(_matches(by_threads, other, name) for name in ProjectionName)


def _items(inputs: JobInputs) -> Iterator[SourceItem]:
    for file in files_of_chunk(inputs.bound, inputs.source, inputs.chunk):
        yield SourceItem(file, tuple(Files().hash(each) for each in inputs.source.scan.locations([file])))


def _matches(mine: Partials, other: Partials, name: ProjectionName) -> bool:
    return mine[name].matches(other[name])
