"""Rows of small jobs are split into partitions; floats are compared as Iceberg compares partition values."""

from __future__ import annotations

import math

import pyarrow as pa

from pvdm.lake.format.manifest.entry import ManifestContent
from pvdm.lake.format.manifest.manifest import ManifestHeader
from pvdm.lake.format.partition_spec import PartitionField, PartitionSpec, Transform
from pvdm.lake.format.partition_value import value_key
from pvdm.model.schema import Field, Kind, PrimitiveType, Schema
from pvdm.physical.arrow_rows import split_by_partition

SCHEMA = Schema((Field("x", PrimitiveType(Kind.DOUBLE), field_id=1),))
SPEC = PartitionSpec(0, (PartitionField("x", Transform.parse("identity"), (1,), 1000),))
HEADER = ManifestHeader(format_version=2, content=ManifestContent.DATA, schema_text="", spec=SPEC)


def test_zeros_of_either_sign_are_two_partitions_and_all_nans_are_one() -> None:
    values = [0.0, -0.0, math.nan, 1.5, -0.0, math.copysign(math.nan, -1.0), None, 0.0]
    found = {
        value_key(part.values[1000]): [repr(each) for each in part.rows.column("x").to_pylist()]
        for part in split_by_partition(pa.table({"x": pa.array(values, pa.float64())}), HEADER, SCHEMA)
    }
    assert found == {
        value_key(0.0): ["0.0", "0.0"],
        value_key(-0.0): ["-0.0", "-0.0"],
        value_key(math.nan): ["nan", "nan"],
        value_key(1.5): ["1.5"],
        value_key(None): ["None"],
    }
