"""The chunk plan of a workload from its pinned source, and the claim of the workload from its filter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pvdm.errors import InputError
from pvdm.lake.format.manifest.entry import IdMap
from pvdm.model import chunk
from pvdm.model.chunk import CHUNK_DEFINITION_MAX_BYTES, ChunkPlan
from pvdm.model.filter.claim import Claim, ClaimValue
from pvdm.model.schema import DecimalType, Field, FixedType, Kind, PrimitiveType, Schema
from pvdm.verify.chunk_values import ChunkValues
from pvdm.verify.planning import claim_of
from tests.support.claims import overlap
from tests.support.for_each import for_each
from tests.support.lake.scans import Lake, fetch, identity_spec, pinned, table_of, to_doc
from tests.support.verify.plans import plan_with_rows
from tests.unit.contract.examples import contract_with

DATE = PrimitiveType(Kind.DATE)
BY_ID = {"by": "partition", "columns": ["id"]}
TWO_DAYS = "2026-03-29T00:00:00Z <= t < 2026-03-30T00:00:00.5Z"
COLUMNS = Schema(
    (
        Field("id", PrimitiveType(Kind.LONG), field_id=1),
        Field("d", DATE, field_id=2),
        Field("s", PrimitiveType(Kind.STRING), field_id=3),
        Field("p", DecimalType(9, 2), field_id=4),
        Field("x", FixedType(2), field_id=5),
        Field("f", PrimitiveType(Kind.DOUBLE), field_id=6),
        Field("t", PrimitiveType(Kind.TIMESTAMPTZ), field_id=7),
    )
)


def plan_source(
    folder: Path, rows: list[list[dict[str, Any]]], chunking: dict[str, Any], where: str = "true", **limits: int
) -> ChunkPlan:
    folder.mkdir(exist_ok=True)
    lake = Lake(folder, (to_doc(COLUMNS),))
    for each in rows:
        lake.data(table_of(COLUMNS, each))
    bound = contract_with(("chunking", chunking), ("boundary/where", where), ("limits", limits)).bind({})
    return plan_with_rows(bound, pinned(lake), fetch)


def chunk_ids(found: ChunkPlan) -> list[str]:
    return [each.chunk_id for each in found]


@pytest.mark.usefixtures("kernel")
def test_chunking_by_partition_has_a_chunk_for_each_value_in_the_filtered_rows(tmp_path: Path) -> None:
    rows: list[list[dict[str, Any]]] = [
        [{"id": 1, "s": "a"}, {"id": 2, "s": "b"}],
        [{"id": 3, "s": None}, {"id": 9, "s": "unseen"}],
    ]
    found = plan_source(tmp_path, rows, {"by": "partition", "columns": ["s"]}, "id < 9")
    assert chunk_ids(found) == ["s=a", "s=b", "s=~null"]


@pytest.mark.usefixtures("kernel")
def test_days_after_the_year_9999_are_in_the_chunk_of_other_values(tmp_path: Path) -> None:
    rows = [[{"d": 0}, {"d": 2**31 - 1}]]
    assert chunk_ids(plan_source(tmp_path, rows, {"by": "partition", "columns": ["d"]})) == ["d=1970-01-01", "d=~other"]


@pytest.mark.usefixtures("kernel")
def test_more_values_than_the_limit_of_chunks_are_refused(tmp_path: Path) -> None:
    rows = [[{"id": each} for each in range(100)]]
    with pytest.raises(InputError) as caught:
        plan_source(tmp_path, rows, {"by": "partition", "columns": ["id"]}, chunks=5)
    assert caught.value.reason == "chunks_too_many"


@pytest.mark.usefixtures("kernel")
def test_values_up_to_the_limit_of_chunks_are_planned_unless_one_chunk_must_list_them_all(tmp_path: Path) -> None:
    days = 5_000  # a definition can list about 4,300 days
    rows = [[{"d": each} for each in range(days)]]
    found = plan_source(tmp_path / "days", rows, {"by": "partition", "columns": ["d"]}, chunks=days)
    assert len(found.chunks) == days
    rows[0].append({"d": 2**31 - 1})  # a day without a literal, whose chunk has to list all other days
    with pytest.raises(InputError) as caught:
        plan_source(tmp_path / "other", rows, {"by": "partition", "columns": ["d"]}, chunks=days + 1)
    assert caught.value.reason == "chunk_definition_too_large"
    assert "ranges" in str(caught.value.hint)


def read_values(folder: Path, rows: list[dict[str, Any]], column: str, where: str = "true") -> list[pa.Table]:
    """The values of the column in a file of these rows, batch by batch."""
    folder.mkdir(exist_ok=True)
    lake = Lake(folder, (to_doc(COLUMNS),))
    lake.data(table_of(COLUMNS, rows))
    chunking = {"by": "partition", "columns": [column]}
    values = ChunkValues(contract_with(("chunking", chunking), ("boundary/where", where)).bind({}), pinned(lake))
    return list(values.read(values.files[0], fetch))


@pytest.mark.usefixtures("kernel")
def test_the_values_of_a_file_are_read_batch_by_batch(tmp_path: Path) -> None:
    assert len(read_values(tmp_path, [{"id": each} for each in range(20_000)], "id")) == 2


@pytest.mark.usefixtures("kernel")
def test_a_value_too_long_for_a_definition_is_refused_unless_its_row_is_filtered_out(tmp_path: Path) -> None:
    rows = [{"id": 1, "s": "x" * (CHUNK_DEFINITION_MAX_BYTES + 1)}, {"id": 2, "s": "a"}]
    with pytest.raises(InputError) as caught:
        read_values(tmp_path / "all", rows, "s")
    assert caught.value.reason == "chunk_definition_too_large"
    (table,) = read_values(tmp_path / "filtered", rows, "s", "id = 2")
    assert table.column(0).to_pylist() == ["a"]


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("files", [1, 4])
def test_values_with_more_bytes_than_the_limit_of_a_plan_are_refused(
    tmp_path: Path, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk, "PLAN_VALUES_MAX_BYTES", 30_000)
    texts = [f"{at:02d}" + "x" * 1_000 for at in range(40)]
    rows = [[{"s": text} for text in texts[at::files]] for at in range(files)]
    with pytest.raises(InputError) as caught:
        plan_source(tmp_path, rows, {"by": "partition", "columns": ["s"]})
    assert caught.value.reason == "plan_values_too_large"


@pytest.mark.usefixtures("kernel")
def test_the_chunk_of_other_values_is_planned_only_for_values_without_a_literal_or_without_rows(tmp_path: Path) -> None:
    chunking: dict[str, Any] = {"by": "partition", "columns": ["f"]}
    infinite: list[list[dict[str, Any]]] = [[{"f": 1.5}, {"f": math.inf}]]
    assert chunk_ids(plan_source(tmp_path / "finite", [[{"f": 1.5}, {"f": math.nan}]], chunking)) == ["f=1.5", "f=~nan"]
    assert chunk_ids(plan_source(tmp_path / "infinite", infinite, chunking)) == ["f=1.5", "f=~other"]
    assert chunk_ids(plan_source(tmp_path / "filtered", infinite, chunking, "f < 2.0")) == ["f=1.5"]
    assert chunk_ids(plan_source(tmp_path / "empty", [[{"f": 1.5}]], chunking, "f < 1.0")) == ["f=~other"]


@pytest.mark.usefixtures("kernel")
def test_chunking_by_range_has_a_chunk_for_null_if_a_filtered_row_has_null(tmp_path: Path) -> None:
    chunking = {"by": "range", "column": "id", "bounds": [5]}
    rows: list[list[dict[str, Any]]] = [[{"id": 1}], [{"id": None, "s": "a"}]]
    assert chunk_ids(plan_source(tmp_path / "some", rows, chunking)) == ["id=(,5)", "id=[5,)", "id=~null"]
    assert chunk_ids(plan_source(tmp_path / "none", rows, chunking, "s is null")) == ["id=(,5)", "id=[5,)"]


@pytest.mark.parametrize("chunking", [{"by": "none"}, {"by": "files", "max-size": 1}])
def test_chunking_by_none_or_by_files_reads_no_files(tmp_path: Path, chunking: dict[str, Any]) -> None:
    lake = Lake(tmp_path, (to_doc(COLUMNS),))
    locations = [lake.data(table_of(COLUMNS, [{"id": at}])) for at in (1, 2)]
    for location in locations:
        Path(location.removeprefix("file://")).unlink()
    found = plan_with_rows(contract_with(("chunking", chunking)).bind({}), pinned(lake), fetch)
    assert len(found.chunks) == {"none": 1, "files": 2}[chunking["by"]]


@pytest.mark.usefixtures("kernel")
def test_the_chunk_of_other_values_is_planned_if_no_other_chunk_reads_one_of_the_files(tmp_path: Path) -> None:
    lake = Lake(tmp_path, (to_doc(COLUMNS),), specs={0: identity_spec(3, "s")})
    for name, number in (("a", 1), ("b", 9)):
        lake.data(table_of(COLUMNS, [{"id": number, "s": name}]), partition={1000: name})
    chunking = {"by": "partition", "columns": ["s"]}
    for where, chunks in (("id < 9", ["s=a", "s=~other"]), ("s = 'a'", ["s=a"]), ("true", ["s=a", "s=b"])):
        bound = contract_with(("chunking", chunking), ("boundary/where", where)).bind({})
        assert chunk_ids(plan_with_rows(bound, pinned(lake), fetch)) == chunks


@pytest.mark.usefixtures("kernel")
def test_planning_reads_the_delete_files_that_verification_freezes(tmp_path: Path) -> None:
    lake = Lake(tmp_path, (to_doc(COLUMNS),))
    data = lake.data(table_of(COLUMNS, [{"id": at} for at in range(4)]))
    keys = Schema(COLUMNS.fields[:1])
    deletes = [lake.positions([(data, 0)]), lake.equalities(table_of(keys, [{"id": 2}]), [1])]
    read: list[str] = []

    def fetch_and_note(location: str) -> bytes:
        read.append(location)
        return fetch(location)

    values = ChunkValues(contract_with(("chunking", BY_ID)).bind({}), pinned(lake))
    list(values.read(values.files[0], fetch_and_note))
    assert sorted(read) == sorted([data, *deletes]) == list(pinned(lake).scan.locations())


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("chunking", [BY_ID, {"by": "files", "max-size": 1_000_000}], ids=["by values", "by files"])
def test_a_chunk_is_bound_to_the_manifests_that_it_was_planned_from(tmp_path: Path, chunking: dict[str, Any]) -> None:
    bound, found = contract_with(("chunking", chunking)).bind({}), []
    for length in (1, 2):
        lake = Lake(tmp_path, (to_doc(COLUMNS),))
        changes = {"column_sizes": IdMap([(1, length)])}
        lake.data(table_of(COLUMNS, [{"id": 1}]), changes=changes)
        (planned,) = plan_with_rows(bound, pinned(lake), fetch)
        found.append(planned)
    first, second = found
    assert first.source_sha256 != second.source_sha256
    assert replace(first, source_sha256=None) == replace(second, source_sha256=None)


def claim_by(column: str | None, where: str, parameters: Mapping[str, str] | None = None) -> Claim:
    declared = {name: {"type": "date"} for name in parameters or {}}
    changes: list[tuple[str, Any]] = [("boundary/where", where)]
    if declared:
        changes.append(("parameters", declared))
    if column is not None:
        changes.append(("boundary/claim", {"column": column}))
    return claim_of(contract_with(*changes).bind(parameters or {}), COLUMNS)


def value_claim(column: str, kind: str, one: ClaimValue) -> Claim:
    return Claim.value(column, kind, one)


def range_claim(column: str, kind: str, lower: ClaimValue, upper: ClaimValue) -> Claim:
    return Claim.between(column, kind, lower, upper)


def days_claim(lower: int, upper: int) -> Claim:
    return range_claim("d", "date", lower, upper)


def closed_range_claim(column: str, kind: str, lower: ClaimValue, last: ClaimValue) -> Claim:
    return Claim.between(column, kind, lower, last, after_upper=True)


@for_each(
    ("column", "where", "wanted"),
    [
        (None, "d = '1970-01-02'", Claim.everything()),
        ("d", "d = '1970-01-02'", value_claim("d", "date", 1)),
        ("d", "s = 'a' and d = '1970-01-02'", value_claim("d", "date", 1)),
        ("d", "(s = 'a' or s = 'b') and (not id = 1 and (d = '1970-01-02'))", value_claim("d", "date", 1)),
        ("d", "d in ('1970-01-02')", value_claim("d", "date", 1)),
        ("d", "d in ('1970-01-05', '1970-01-02')", range_claim("d", "date", 1, 5)),
        ("d", "d is null", value_claim("d", "date", None)),
        ("d", "d is null or d is null and s = 'a'", value_claim("d", "date", None)),
        ("d", "d is null and d = '1970-01-02'", value_claim("d", "date", None)),
        ("d", "d >= '1970-01-02' and d < '1970-01-05'", range_claim("d", "date", 1, 4)),
        ("d", "d >= '1970-01-02' and d < '1970-01-03'", value_claim("d", "date", 1)),
        ("d", "d > '1970-01-02' and d <= '1970-01-05'", range_claim("d", "date", 2, 5)),
        ("d", "d >= '1970-01-02' and (d >= '1970-01-03' and d < '1970-01-09') and d < '1970-01-08'", days_claim(2, 7)),
        ("d", "d is not null and d != '1970-01-03' and d in ('1970-01-02', '1970-01-05')", days_claim(1, 5)),
        ("d", "d = '1970-01-05' and s = 'a' or d = '1970-01-02'", days_claim(1, 5)),
        ("d", "(d >= '1970-01-02' or d >= '1970-01-05') and d < '1970-01-08'", days_claim(1, 7)),
        ("d", "d >= '1970-01-02' and d < '1970-01-04' or d >= '1970-01-09' and d < '1970-01-02'", days_claim(1, 3)),
        ("d", "d >= '9999-12-30' and d <= '9999-12-31'", closed_range_claim("d", "date", 2_932_895, 2_932_896)),
        ("id", "id >= 5 and id <= 9223372036854775807", closed_range_claim("id", "long", 5, 2**63 - 1)),
        ("s", "s >= 'a' and s <= 'b'", closed_range_claim("s", "string", "a", "b")),
        ("s", "s in ('x', 'a', 'm')", closed_range_claim("s", "string", "a", "x")),
        ("s", "s > 'a' and s < 'b'", Claim.between("s", "string", "a", "b", after_lower=True)),
        ("p", "p = -1.50", value_claim("p", "decimal(9, 2)", -150)),
        ("p", "p > -1.50 and p <= 2", range_claim("p", "decimal(9, 2)", -149, 201)),
        ("x", "x = '00ff'", value_claim("x", "fixed[2]", b"\x00\xff")),
    ],
)
def test_a_claim_is_the_smallest_range_that_the_filter_allows(column: str | None, where: str, wanted: Claim) -> None:
    assert claim_by(column, where) == wanted


@for_each(
    ("column", "where", "text"),
    [
        ("d", "d = '2026-11-16'", "d = 2026-11-16"),
        ("d", "d is null", "d = null"),
        ("d", "d > '2026-11-15' and d <= '2026-11-20'", "2026-11-16 <= d < 2026-11-21"),
        ("d", "d >= '9999-12-30' and d <= '9999-12-31'", "9999-12-30 <= d <= 9999-12-31"),
        ("t", "t >= '2026-03-29T02:00:00+02:00' and t < '2026-03-30T00:00:00.5Z'", TWO_DAYS),
        ("p", "p >= -1.5 and p < 20", "-1.50 <= p < 20.00"),
        ("s", "s > 'a' and s < 'b\n'", "'a' < s < 'b\\n'"),
        ("x", "x = '00ff'", "x = 0x00ff"),
        ("id", "id = -5", "id = -5"),
    ],
)
def test_the_text_of_a_claim_has_values_of_its_type(column: str, where: str, text: str) -> None:
    assert claim_by(column, where).text == text


@pytest.mark.parametrize(
    ("column", "where", "got"),
    [
        ("d", "d > ${day} and d < '1970-01-04'", "d >= 1970-01-04 and d < 1970-01-04"),
        ("id", "id > 5 and id < 6 and d = ${day}", "id >= 6 and id < 6"),
    ],
)
def test_a_claim_whose_range_is_empty_in_the_type_of_the_source_is_refused(column: str, where: str, got: str) -> None:
    with pytest.raises(InputError) as caught:
        claim_by(column, where, {"day": "1970-01-03"})
    assert (caught.value.reason, caught.value.got) == ("claim_empty", got)


def test_adjacent_claims_do_not_overlap() -> None:
    days = "d >= '1970-01-02' and d <= '1970-01-05'"
    for other in ("d > '1970-01-05' and d < '1970-01-09'", "d = '1970-01-06'", "d = '1970-01-01'"):
        assert not overlap(claim_by("d", days), claim_by("d", other))
    assert not overlap(claim_by("s", "s >= 'a' and s <= 'b'"), claim_by("s", "s > 'b' and s < 'c'"))


def test_a_claim_has_the_values_of_its_parameters() -> None:
    assert claim_by("d", "d = ${day}", {"day": "1970-01-03"}) == value_claim("d", "date", 2)


def test_a_claim_on_a_column_of_floats_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        claim_by("f", "f = 1.5")
    assert caught.value.reason == "claim_invalid"
