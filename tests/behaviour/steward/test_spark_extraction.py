"""`extraction: spark` without a JVM: the rows of a second reader must have the digest of the direct reader's."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pvdm.catalog.commit import Change
from pvdm.errors import InputError, UnavailableError
from pvdm.model.schema import Field, FixedType, Kind, PrimitiveType, Schema, StructType
from pvdm.model.statements.core import ExtractionPath
from pvdm.verify.fetch import Files
from pvdm.verify.fit import require_extractable, require_identity, require_usable
from pvdm.verify.job import Tools, VerificationResult
from pvdm.verify.spark.application import SparkTable
from pvdm.verify.spark.settings import SparkSettings
from tests.support.for_each import for_each
from tests.support.gate.approvals import COLUMN, reason_of, scene_at
from tests.support.lake.scans import Lake, pinned, to_doc
from tests.support.spark.verification import InProcess, Lab, lab_at
from tests.support.verify.attempts import ROWS, contract, with_changed_row
from tests.unit.contract.examples import contract_with

pytestmark = pytest.mark.usefixtures("kernel")
Deviation = Callable[[list[pa.RecordBatch]], list[pa.RecordBatch]]
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    contracted = {"storage": "copied", "extraction": "spark"}
    with lab_at(tmp_path_factory.mktemp("lab"), source=(ROWS[:40], ROWS[40:]), contracted=contracted) as made:
        yield made


class _DeviatingReader(InProcess):
    """A reader that changes the rows of one table: `at` 0 is the first that it reads, 1 the second."""

    def __init__(self, lab: Lab, at: int, deviate: Deviation) -> None:
        super().__init__(lab.settings)
        self._at = at
        self._deviate = deviate
        self._read = itertools.count()

    def seen_by_reader(self, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        return self._deviate(batches) if next(self._read) == self._at else batches


STAGED, SOURCE = 0, 1
"""The order in which the tables are read."""


def tools_with(lab: Lab, application: InProcess) -> Tools:
    return replace(lab.tools, extraction=replace(lab.desk.extraction, application=application))


def verify_with(lab: Lab, application: InProcess, rows: object = ROWS) -> VerificationResult:
    attempt, _ = lab.bench.staged(rows, workload_id=f"work-{next(_NUMBERS)}")  # type: ignore[arg-type]
    return lab.verified(attempt, tools_with(lab, application))


def without_the_last(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return [batches[0].slice(0, batches[0].num_rows - 1), *batches[1:]]


def with_another_id(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    changed = pa.array([10**6, *batches[0].column("id").to_pylist()[1:]], pa.int64())
    return [batches[0].set_column(batches[0].schema.get_field_index("id"), "id", changed), *batches[1:]]


def test_the_rows_of_a_second_reader_are_digested_and_the_proof_names_the_reader(lab: Lab) -> None:
    found = verify_with(lab, InProcess(lab.settings))
    assert found.core.verdict.passed
    assert found.core.method.extraction is ExtractionPath.SPARK
    assert found.core.method.extraction_version == "pyiceberg-in-its-place"
    assert (found.core.rows.intent, found.core.rows.staged) == (100, 100)
    assert not list((lab.settings.scratch / "extraction").iterdir()), "the reader's files are removed"


def test_a_changed_row_fails_with_a_second_reader_too(lab: Lab) -> None:
    found = verify_with(lab, InProcess(lab.settings), with_changed_row(ROWS, 3, town="another"))
    assert [each.value for each in found.core.verdict.classes] == ["modified"]
    assert found.findings == ()


@pytest.mark.parametrize(
    ("deviate", "got"),
    [
        (without_the_last, "99 rows by Spark's reader"),
        (with_another_id, "100 rows of other content by Spark's reader"),
    ],
)
def test_a_difference_between_two_readers_of_staged_rows_fails_the_attempt_and_names_both(
    lab: Lab, deviate: Deviation, got: str
) -> None:
    found = verify_with(lab, _DeviatingReader(lab, STAGED, deviate))
    (finding,) = found.findings
    assert (finding.failure.value, finding.code) == ("metadata", "extraction_differs")
    assert (finding.expected, finding.got) == ("100 rows by the direct reader", got)
    assert "metadata" in [each.value for each in found.core.verdict.classes]


@pytest.mark.parametrize("deviate", [without_the_last, with_another_id])
def test_a_difference_between_two_readers_of_the_source_gives_no_verdict(lab: Lab, deviate: Deviation) -> None:
    application = _DeviatingReader(lab, SOURCE, deviate)
    assert reason_of(lambda: verify_with(lab, application), UnavailableError) == "extraction_source_differs"


class _PropertyRecorder(InProcess):
    """Records the properties of the tables that it reads."""

    def __init__(self, settings: SparkSettings) -> None:
        super().__init__(settings)
        self.properties: list[object] = []

    def extract(
        self, job_id: str, common: bytes, selection: bytes, table: SparkTable
    ) -> tuple[list[str | None], list[bytes]]:
        self.properties.append(json.loads((table.folder / "metadata" / "v1.metadata.json").read_bytes())["properties"])
        return super().extract(job_id, common, selection, table)


def test_spark_gets_no_property_of_a_table(lab: Lab) -> None:
    """With these properties Spark would make one split for each byte of the source, and other jobs would wait."""
    notary = lab.bench.scene.notary
    properties = {"read.split.target-size": "1", "read.split.adaptive-size.enabled": "false"}
    change = Change(("raw",), "orders", (), [{"action": "set-properties", "updates": properties}])
    notary.catalog.commits.commit(lab.bench.scene.grant(), [change])
    application = _PropertyRecorder(lab.settings)
    assert verify_with(lab, application).core.verdict.passed
    assert application.properties == [{}, {}]


def test_a_file_that_cannot_be_read_is_not_given_to_spark(lab: Lab) -> None:
    attempt, _ = lab.bench.staged(
        ROWS,
        workload_id=f"work-{next(_NUMBERS)}",
        change=lambda file: replace(file, record_count=file.record_count + 1),
    )
    found = lab.verified(attempt, tools_with(lab, InProcess(lab.settings)))
    assert [each.code for each in found.findings] == ["record_count_lies"]


def test_a_steward_without_spark_refuses_a_contract_with_extraction_spark(tmp_path: Path) -> None:
    with scene_at(tmp_path) as scene:
        text = contract(storage="copied", extraction="spark").replace("sales.sums", "sales.orders")
        protection = scene.protection("orders", contract=text)
        assert reason_of(lambda: scene.protect(protection), UnavailableError) == "extraction_not_configured"


def test_without_spark_no_workload_is_opened_and_no_attempt_verified(lab: Lab) -> None:
    workloads = lab.bench.workloads
    workloads.spark_extraction = None
    try:
        code = reason_of(lambda: lab.bench.attempt("late"), UnavailableError)
    finally:
        workloads.spark_extraction = lab.desk.extraction
    assert code == "extraction_not_configured"
    attempt, _ = lab.bench.staged(ROWS, workload_id=f"work-{next(_NUMBERS)}")
    tools = replace(lab.tools, extraction=None)
    assert reason_of(lambda: lab.verified(attempt, tools), UnavailableError) == "extraction_not_configured"


@pytest.mark.parametrize(
    "changes",
    [
        [("extraction", "spark"), ("storage", "open")],
        [
            ("extraction", "spark"),
            ("storage", "copied"),
            ("boundary/source", {"files": {"manifest": "file:///lake/files.json"}}),
        ],
    ],
)
def test_a_contract_with_open_storage_or_a_set_of_files_is_refused(changes: list[tuple[str, object]]) -> None:
    assert reason_of(lambda: contract_with(*changes), InputError) == "contract_invalid"


@for_each(
    "kind",
    [
        *(PrimitiveType(each) for each in (Kind.TIME, Kind.TIMESTAMP_NS, Kind.TIMESTAMPTZ_NS, Kind.UUID)),
        FixedType(4),
    ],
)
def test_a_type_that_spark_reads_as_another_is_refused_with_its_column(kind: PrimitiveType | FixedType) -> None:
    with pytest.raises(InputError) as caught:
        require_extractable(Schema((Field("a", kind, field_id=1),)), "target")
    assert (caught.value.reason, caught.value.details["column"]) == ("extraction_type_unsupported", "a")
    require_extractable(Schema((Field("a", PrimitiveType(Kind.LONG), field_id=1),)), "target")


def test_a_type_that_spark_reads_as_another_is_refused_when_the_workload_is_opened(tmp_path: Path) -> None:
    columns = Schema((Field("id", PrimitiveType(Kind.UUID), field_id=1),))
    lake = Lake(tmp_path, (to_doc(columns),))
    changes = (("extraction", "spark"), ("storage", "copied"), ("projections/identity", ["id"]))
    spark, direct = contract_with(*changes).bind({}), contract_with(*changes[2:]).bind({})
    require_usable(direct, pinned(lake), columns, Files())
    code = reason_of(lambda: require_usable(spark, pinned(lake), columns, Files()), InputError)
    assert code == "extraction_type_unsupported"


def add_column(kind: str) -> list[Any]:
    """Updates that give a table one more column, `channel`, of this type."""
    updates = copy.deepcopy(COLUMN)
    updates[0]["schema"]["fields"][-1]["type"] = kind
    return updates


@pytest.mark.parametrize(("kind", "code"), [("time", "extraction_type_unsupported"), ("string", None)])
def test_a_type_that_spark_reads_as_another_is_refused_when_the_table_is_protected(
    lab: Lab, kind: str, code: str | None
) -> None:
    scene, name = lab.bench.scene, f"with_{kind}"
    scene.make(name)
    scene.commit(add_column(kind), name)
    text = contract(storage="copied", extraction="spark").replace("sales.sums", f"sales.{name}")
    text = text.replace("raw.orders", f"raw.{name}")
    protection = scene.protection(name, contract=text)
    if code is None:
        scene.protect(protection)
    else:
        assert reason_of(lambda: scene.protect(protection), InputError) == code
    assert (scene.contract_of(name) is None) is (code is not None)


@pytest.mark.parametrize(("identity", "code"), [("channel", "identity_type_unsupported"), ("id", None)])
def test_a_variant_is_refused_as_a_key_when_the_table_is_protected(lab: Lab, identity: str, code: str | None) -> None:
    scene, name = lab.bench.scene, f"by_{identity}"
    scene.make(name, version=3)
    scene.commit(add_column("variant"), name)
    text = contract(storage="copied").replace("sales.sums", f"sales.{name}").replace("raw.orders", f"raw.{name}")
    protection = scene.protection(name, contract=text.replace("identity: [id]", f"identity: [{identity}]"))
    if code is None:
        scene.protect(protection)
    else:
        assert reason_of(lambda: scene.protect(protection), InputError) == code
    assert (scene.contract_of(name) is None) is (code is not None)


def test_a_variant_and_a_struct_with_one_are_refused_as_keys() -> None:
    columns = Schema(
        (
            Field("id", PrimitiveType(Kind.LONG), field_id=1),
            Field("v", PrimitiveType(Kind.VARIANT), field_id=2),
            Field("s", StructType((Field("v", PrimitiveType(Kind.VARIANT), field_id=4),)), field_id=3),
        )
    )
    require_identity(columns, ("id",))
    for name in ("v", "s"):
        code = reason_of(lambda name=name: require_identity(columns, ("id", name)), InputError)  # type: ignore[misc]
        assert code == "identity_type_unsupported"


@pytest.mark.parametrize("snapshot", [0, 1], ids=["written before", "written after"])
def test_a_column_newer_than_the_pinned_snapshot_is_reported(tmp_path: Path, snapshot: int) -> None:
    old = Schema((Field("id", PrimitiveType(Kind.LONG), field_id=1),))
    new = Schema((*old.fields, Field("later", PrimitiveType(Kind.LONG), field_id=2)))
    lake = Lake(tmp_path, (to_doc(old), to_doc(new, 1)), current=1, snapshot_schema=snapshot)
    bound = contract_with(("projections/identity", ["id"])).bind({})
    if snapshot == 1:
        require_usable(bound, pinned(lake), new, Files())
        return
    with pytest.raises(InputError) as caught:
        require_usable(bound, pinned(lake), new, Files())
    assert caught.value.reason == "source_unusable"
    assert "has a column 'later' now, but its pinned snapshot" in str(caught.value.hint)
