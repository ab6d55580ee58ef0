"""Names of files and folders that are published where they were staged: names that engines misread are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pvdm.lake.format.manifest.entry import IdMap
from tests.support.lake.metadata import column
from tests.support.verify.staged import BY_TOWN, NAME, Yard

pytestmark = pytest.mark.usefixtures("kernel")

BY_DAY = {"name": "day", "transform": "identity", "source-id": 2, "field-id": 1000}


def write_file(path: Path, number: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    fields: list[Any] = [pa.field("id", pa.int64(), metadata={NAME: "1"})]
    pq.write_table(pa.table({"id": [number]}, schema=pa.schema(fields)), path)
    return path


def codes_of_file(yard: Yard, name: str, *, in_place: bool = True, **changes: Any) -> list[str]:
    yard.add(yard.file([{"id": 1}]))
    path = write_file(yard.place(name, "data"), 1)
    return yard.codes(
        yard.add(yard.file([{"id": 2}], file_path=f"file://{path}", **changes)), published_in_place=in_place
    )


@pytest.mark.parametrize(
    "name", ["a:b.parquet", "a*.parquet", "a[1].parquet", "{a}.parquet", "a%20b.parquet", " a", "a ", "a:b/c", "'"]
)
def test_a_file_name_that_an_engine_cannot_open_is_refused_if_the_file_is_published(tmp_path: Path, name: str) -> None:
    """Spark cannot open a name with a colon; others read stars and brackets as patterns, percent signs as escapes."""
    assert codes_of_file(Yard(tmp_path), name) == ["file_name_unsafe"]
    assert codes_of_file(Yard(tmp_path / "copied"), name, in_place=False) == []


@pytest.mark.parametrize("name", ["a b.parquet", "x=São Paulo/00000-0-a.parquet", "größe.parquet", "_a.parquet"])
def test_a_file_name_that_every_engine_opens_is_accepted(tmp_path: Path, name: str) -> None:
    assert codes_of_file(Yard(tmp_path), name) == []


def test_engines_that_read_a_location_as_a_url_open_another_file(tmp_path: Path) -> None:
    listed, other = write_file(tmp_path / "a%20b" / "f.parquet", 1), write_file(tmp_path / "a b" / "f.parquet", 2)
    assert other.is_file()
    context = datafusion.SessionContext()
    context.register_parquet("t", f"file://{listed}")
    assert context.sql("select id from t").to_arrow_table()["id"].to_pylist() == [2]
    assert pl.scan_parquet(f"file://{listed}").collect()["id"].to_list() == [2]


@pytest.mark.parametrize("name", ["a%20b/f.parquet", "x=S%C3%A3o+Paulo/f.parquet", "100%/f.parquet"])
def test_a_percent_sign_in_a_folder_is_refused_if_the_file_is_published(tmp_path: Path, name: str) -> None:
    assert codes_of_file(Yard(tmp_path), name) == ["file_name_unsafe"]
    assert codes_of_file(Yard(tmp_path / "copied"), name, in_place=False) == []


def test_a_percent_sign_in_the_location_of_the_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a%20b").mkdir()
    assert codes_of_file(Yard(tmp_path / "a%20b"), "f.parquet") == ["file_name_unsafe"]
    (tmp_path / "plain").mkdir()
    assert codes_of_file(Yard(tmp_path / "plain"), "f.parquet") == []


def test_duckdb_reads_the_name_of_a_folder_in_place_of_the_column(tmp_path: Path) -> None:
    path = write_file(tmp_path / "id=7" / "f.parquet", 1)
    with duckdb.connect() as connection:
        assert connection.execute(f"select id from read_parquet('{path}')").fetchall() == [(7,)]


@pytest.mark.parametrize("name", ["id=7/f.parquet", "ID=7/f.parquet", "a/town=Ulm/f.parquet", "town=null/f.parquet"])
def test_a_folder_named_after_a_column_is_refused(tmp_path: Path, name: str) -> None:
    assert codes_of_file(Yard(tmp_path), name) == ["file_folder_lies"]
    assert codes_of_file(Yard(tmp_path / "copied"), name, in_place=False) == []


def test_a_table_in_a_folder_named_after_a_column_is_refused(tmp_path: Path) -> None:
    (tmp_path / "id=7").mkdir()
    assert codes_of_file(Yard(tmp_path / "id=7"), "f.parquet") == ["file_folder_lies"]


@pytest.mark.parametrize(
    ("folder", "value", "accepted"),
    [
        ("town=Ulm", "Ulm", True),
        ("town=New+York", "New York", True),
        ("town=a+b", "a+b", True),
        ("town=null", None, True),
        ("town=null", "null", True),
        ("town=Bonn", "Ulm", False),
        ("town=Ulm", None, False),
        ("town=", "Ulm", False),
        ("Town=Ulm", "Ulm", False),
        ("id=1", "Ulm", False),
        ("other=Bonn", "Ulm", True),
        ("town", "Ulm", True),
    ],
)
def test_a_folder_with_another_value_than_the_files_partition_is_refused(
    tmp_path: Path, folder: str, value: str | None, accepted: bool
) -> None:
    yard = Yard(tmp_path, spec=[BY_TOWN])
    found = codes_of_file(yard, f"{folder}/f.parquet", partition=IdMap([(1000, value)]))
    assert found == ([] if accepted else ["file_folder_lies"])


@pytest.mark.parametrize(
    ("kind", "value", "text", "other"),
    [
        ("date", 20_000, "2024-10-04", "2024-10-05"),
        ("long", -5, "-5", "5"),
        ("boolean", True, "true", "false"),
        ("double", 1.5, "1.5", "2.5"),
    ],
)
def test_the_value_of_a_folder_is_compared_as_the_type_of_the_column(
    tmp_path: Path, kind: str, value: Any, text: str, other: str
) -> None:
    for at, (text_of_folder, accepted) in enumerate(((text, True), (other, False))):
        yard = Yard(tmp_path / str(at), spec=[BY_DAY], fields=(column(1, "id"), column(2, "day", kind)))
        found = codes_of_file(yard, f"day={text_of_folder}/f.parquet", partition=IdMap([(1000, value)]))
        assert found == ([] if accepted else ["file_folder_lies"])
