"""Honest files of Spark with odd options, by Iceberg's writer and by its own: every one of them passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.support.parquet.honest_files import SAMPLES, with_ids
from tests.support.verify.staged import observe_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("kernel")

CATALOG = "honest"
ICEBERG: tuple[Mapping[str, str], ...] = (
    {},
    {"write.parquet.compression-codec": "gzip"},
    {"write.parquet.compression-codec": "uncompressed"},
    {"write.parquet.compression-codec": "snappy"},
    {"write.parquet.page-size-bytes": "128"},
    {"write.parquet.page-row-limit": "20"},
    {"write.parquet.dict-size-bytes": "100"},
    {"write.parquet.row-group-size-bytes": "1024", "write.parquet.row-group-check-min-record-count": "10"},
    {"write.parquet.bloom-filter-enabled.column.id": "true", "write.parquet.bloom-filter-enabled.column.town": "true"},
)
SPARK: tuple[Mapping[str, str], ...] = (
    {},
    {"compression": "uncompressed"},
    {"compression": "gzip"},
    {"compression": "zstd"},
    {"compression": "lz4_raw"},
    {"parquet.writer.version": "v2"},
    {"parquet.enable.dictionary": "false"},
    {"parquet.enable.dictionary": "false", "parquet.writer.version": "v2"},
    {"parquet.page.size": "64", "parquet.page.row.count.limit": "17"},
    {"parquet.bloom.filter.enabled#town": "true", "parquet.bloom.filter.enabled#id": "true"},
    {"parquet.page.write-checksum.enabled": "false"},
)
# Options that `make test` leaves to `make test-long`: each repeats another one with another codec, size or page form.
LONG: tuple[Mapping[str, str], ...] = (*ICEBERG[2:4], *ICEBERG[5:7], *SPARK[1:5], SPARK[6], SPARK[10])
ICEBERG_SAMPLES = ("flat", "nested", "nulls")
FILES_MIN = 60


def sampled(options: Sequence[Mapping[str, str]]) -> list[Any]:
    """The options as cases of a test, those of `LONG` with the mark `long`."""
    return [pytest.param(each, marks=pytest.mark.long) if each in LONG else each for each in options]


@pytest.fixture(scope="module")
def frames(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, DataFrame]:
    """The rows of every kind, in Spark."""
    folder = tmp_path_factory.mktemp("rows")
    prefix = f"spark.sql.catalog.{CATALOG}"
    spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"{prefix}.type", "hadoop")
    spark.conf.set(f"{prefix}.warehouse", str(tmp_path_factory.mktemp("warehouse")))
    found = {}
    for at, (name, kind) in enumerate(SAMPLES.items()):
        path = folder / f"{at}.parquet"
        pq.write_table(kind.rows, path)
        found[name] = spark.read.parquet(str(path)).coalesce(1)
    return found


def findings(path: Path, name: str) -> list[tuple[str, str, str | None, str | None]]:
    """The findings in a file of a sample: code, message, expected, got."""
    data = with_ids(path.read_bytes(), SAMPLES[name])
    found = observe_file(data, SAMPLES[name].table, footer_published=True)
    assert found.findings or (found.data_file is not None and found.data_file.record_count == len(SAMPLES[name].rows))
    return [(each.code, each.message, each.expected, each.got) for each in found.findings]


@pytest.mark.parametrize("options", sampled(ICEBERG), ids=str)
def test_a_file_of_icebergs_writer_passes(
    spark: SparkSession, frames: Mapping[str, DataFrame], options: Mapping[str, str]
) -> None:
    for name in ICEBERG_SAMPLES:
        writer = frames[name].writeTo(f"{CATALOG}.db.t").using("iceberg")
        for key, value in options.items():
            if not key.endswith("town") or name == "flat":
                writer = writer.tableProperty(key, value)
        writer.createOrReplace()
        (row,) = spark.table(f"{CATALOG}.db.t.files").select("file_path").collect()
        assert findings(Path(row[0].removeprefix("file:")), name) == []


@pytest.mark.parametrize("options", sampled(SPARK), ids=str)
def test_a_file_of_sparks_own_writer_passes(
    spark: SparkSession, frames: Mapping[str, DataFrame], options: Mapping[str, str], tmp_path: Path
) -> None:
    before = str(spark.conf.get("spark.sql.parquet.outputTimestampType"))
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    try:
        for at, (name, frame) in enumerate(frames.items()):
            frame.write.options(**options).parquet(str(tmp_path / str(at)))
            (path,) = (tmp_path / str(at)).glob("part-*.parquet")
            assert findings(path, name) == []
    finally:
        spark.conf.set("spark.sql.parquet.outputTimestampType", before)


def test_there_are_at_least_60_files() -> None:
    assert len(ICEBERG) * len(ICEBERG_SAMPLES) + len(SPARK) * len(SAMPLES) >= FILES_MIN
