"""Small Parquet files, and checks of what verification finds in them.

With storage `copied` the Steward writes a new footer. Otherwise the producer's footer is published
(`footer_published`), and verification refuses more.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pvdm.lake.format.table.metadata import TableMetadata
from tests.support.lake.metadata import column
from tests.support.verify.staged import NAME, metadata, observe_file, parquet

ROWS = 6


def field(field_id: int, name: str, kind: pa.DataType, **metadata: str) -> Any:
    """An Arrow field with an Iceberg field id."""
    return pa.field(name, kind, metadata={NAME: str(field_id), **metadata})


def codes(data: bytes, table: TableMetadata, *, footer_published: bool) -> list[str]:
    """The codes of the findings in a file with `ROWS` rows."""
    observation = observe_file(data, table, footer_published=footer_published, record_count=ROWS)
    return [each.code for each in observation.findings]


def require_refused(code: str, data: bytes, table: TableMetadata) -> None:
    """Require that the file is refused with this code only if its own footer is published."""
    assert codes(data, table, footer_published=False) == []
    assert codes(data, table, footer_published=True) == [code]


def require_accepted(data: bytes, table: TableMetadata) -> None:
    """Require that the file has no findings, whichever footer is published."""
    assert codes(data, table, footer_published=False) == codes(data, table, footer_published=True) == []


LONGS = metadata(column(1, "id"), column(2, "b"))
SCHEMA = pa.schema([field(1, "id", pa.int64()), field(2, "b", pa.int64())])
TWO_COLUMNS = pa.table({"id": range(ROWS), "b": range(ROWS)}, schema=SCHEMA)
HONEST = parquet(TWO_COLUMNS, row_group_size=3)
PLAIN = parquet(TWO_COLUMNS, store_schema=False)
