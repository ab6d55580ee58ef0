"""Files under the producer's own footer: refused where consumers read it, accepted where the Steward writes one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pvdm.lake.format.table.metadata import TableMetadata
from tests.support.lake.metadata import column
from tests.support.verify.staged import NAME, metadata, observe_file, parquet

ROWS = 6


def field(field_id: int, name: str, kind: pa.DataType, **metadata: str) -> Any:
    return pa.field(name, kind, metadata={NAME: str(field_id), **metadata})


def codes(data: bytes, table: TableMetadata, *, footer_published: bool) -> list[str]:
    observation = observe_file(data, table, footer_published=footer_published, record_count=ROWS)
    return [each.code for each in observation.findings]


def require_refused(code: str, data: bytes, table: TableMetadata) -> None:
    assert codes(data, table, footer_published=False) == []
    assert codes(data, table, footer_published=True) == [code]


def require_accepted(data: bytes, table: TableMetadata) -> None:
    assert codes(data, table, footer_published=False) == codes(data, table, footer_published=True) == []


LONGS = metadata(column(1, "id"), column(2, "b"))
SCHEMA = pa.schema([field(1, "id", pa.int64()), field(2, "b", pa.int64())])
TWO_COLUMNS = pa.table({"id": range(ROWS), "b": range(ROWS)}, schema=SCHEMA)
HONEST = parquet(TWO_COLUMNS, row_group_size=3)
PLAIN = parquet(TWO_COLUMNS, store_schema=False)
