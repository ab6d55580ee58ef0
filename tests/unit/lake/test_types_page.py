"""docs/types.md says correctly whether PyIceberg, DuckDB and pvdm read a column of each type."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from pvdm.digest.parquet import read_batches
from pvdm.lake.format.manifest.entry import FileContent
from pvdm.lake.format.schema.logical import to_iceberg
from pvdm.lake.read.scan import scan_batches
from pvdm.model.schema import (
    DecimalType,
    Field,
    FixedType,
    GeoType,
    Inner,
    Kind,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
    StructType,
    Type,
)
from tests.support.lake.scans import Lake, fetch, table_of
from tests.support.oracles.engines import duckdb_connection

pytestmark = [pytest.mark.usefixtures("kernel"), pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg")]

PAGE = (Path(__file__).parents[3] / "docs" / "types.md").read_text()
ROW = re.compile(r"^\| (?P<types>`[^|]+`) \| \d \| (?P<cells>[^|]+(?: \| [^|]+){3}) \|$", re.MULTILINE)
INT = PrimitiveType(Kind.INT)
CRS = "OGC:CRS84"
POINT = "'POINT(1 2)'::GEOMETRY"

SAMPLES: dict[str, tuple[Type, Sequence[Any]]] = {
    "boolean": (PrimitiveType(Kind.BOOLEAN), [True, None]),
    "int": (INT, [1, None]),
    "long": (PrimitiveType(Kind.LONG), [-(2**63), None]),
    "float": (PrimitiveType(Kind.FLOAT), [1.5, None]),
    "double": (PrimitiveType(Kind.DOUBLE), [1.5, None]),
    "decimal": (DecimalType(9, 2), [None, None]),
    "date": (PrimitiveType(Kind.DATE), [3, None]),
    "string": (PrimitiveType(Kind.STRING), ["é", None]),
    "binary": (PrimitiveType(Kind.BINARY), [b"\0", None]),
    "timestamp": (PrimitiveType(Kind.TIMESTAMP), [-1, None]),
    "timestamptz": (PrimitiveType(Kind.TIMESTAMPTZ), [-1, None]),
    "struct": (StructType((Field("a", INT, field_id=3),)), [{"a": 1}, None]),
    "list": (ListType(Inner(INT, False, 3)), [[1, None], None]),
    "map": (MapType(Inner(INT, True, 3), Inner(INT, False, 4)), [[(1, 2)], None]),
    "time": (PrimitiveType(Kind.TIME), [1, None]),
    "uuid": (PrimitiveType(Kind.UUID), [b"\1" * 16, None]),
    "fixed": (FixedType(3), [b"abc", None]),
    "timestamp_ns": (PrimitiveType(Kind.TIMESTAMP_NS), [-1, None]),
    "timestamptz_ns": (PrimitiveType(Kind.TIMESTAMPTZ_NS), [-1, None]),
    "variant": (PrimitiveType(Kind.VARIANT), [{"metadata": b"\1\0\0", "value": b"\x0c\5"}, None]),
    "unknown": (PrimitiveType(Kind.UNKNOWN), []),
    "geometry": (GeoType(CRS), []),
    "geography": (GeoType(CRS, "spherical"), []),
}


def cells_of_page() -> dict[str, tuple[str, ...]]:
    """For each type the cells of the page: what Spark, PyIceberg, DuckDB and pvdm do."""
    return {
        name: tuple(row["cells"].split(" | "))
        for row in ROW.finditer(PAGE)
        for name in re.findall(r"`(\w+)`", row["types"])
    }


def test_the_page_has_every_type() -> None:
    assert cells_of_page().keys() == SAMPLES.keys()


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_says_which_readers_read_a_type(tmp_path: Path, name: str) -> None:
    lake = table_with(tmp_path, *SAMPLES[name])
    path = tmp_path / "v1.metadata.json"
    path.write_bytes(lake.metadata().to_bytes())
    duck = duckdb_connection()
    found = {
        "PyIceberg": outcome_of(lambda: StaticTable.from_metadata(str(path)).scan().to_arrow()),
        "DuckDB": outcome_of(
            lambda: duck.execute(f"select id, c::varchar as c from iceberg_scan('{path}')").to_arrow_table()
        ),
        "pvdm": outcome_of(lambda: read_with_pvdm(lake)),
    }
    duck.close()
    assert tuple(found.values()) == cells_of_page()[name][1:], name


INNER = Inner(StructType((Field("a", INT, field_id=9),)), False, 4)


@pytest.mark.parametrize("kind", [ListType(INNER), MapType(Inner(INT, True, 3), INNER)], ids=["list", "map"])
def test_pyiceberg_reads_null_collections_of_structs_as_empty_and_pvdm_as_null(tmp_path: Path, kind: Type) -> None:
    """The page says so. If this test fails, the sentence of the page is out of date."""
    lake = table_with(tmp_path, kind, [[], None])
    path = tmp_path / "v1.metadata.json"
    path.write_bytes(lake.metadata().to_bytes())
    assert read_with_pvdm(lake).column("c").to_pylist() == [[], None]
    assert StaticTable.from_metadata(str(path)).scan().to_arrow().column("c").to_pylist() == [[], []]


def outcome_of(read: Any) -> str:
    """`reads` if the engine returns both rows, `refuses` if it raises any error."""
    try:
        found = read()
    except Exception:
        return "refuses"
    assert (found.num_rows, found.column("c").null_count > 0) == (2, True)
    return "reads"


def read_with_pvdm(lake: Lake) -> pa.Table:
    scan = lake.scan()
    return pa.Table.from_batches(
        [batch for file in scan.files for batch in scan_batches(scan, file, fetch, read_batches)]
    )


def table_with(folder: Path, kind: Type, values: Sequence[Any]) -> Lake:
    """A table of two rows with a column of this type. DuckDB writes geometries, with Parquet's own annotation."""
    columns = Schema((Field("id", PrimitiveType(Kind.LONG), field_id=1), Field("c", kind, field_id=2)))
    lake = Lake(folder, (dict(to_iceberg(columns)),), version=3)
    if isinstance(kind, GeoType):
        path = folder / "geo.parquet"
        duck = duckdb_connection()
        rows = f"select i::bigint as id, case when i = 0 then {POINT} end as c from range(2) t(i)"
        duck.execute(f"copy ({rows}) to '{path}' (format parquet, field_ids {{id: 1, c: 2}})")
        duck.close()
        lake.entry(f"file://{path}", path.stat().st_size, 2, FileContent.DATA, 1, 0, None)
        return lake
    only = columns if values else Schema(columns.fields[:1])
    lake.data(table_of(only, [{"id": at, **({"c": values[at]} if values else {})} for at in range(2)]))
    return lake
