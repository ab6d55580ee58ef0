"""Computes digests of Parquet files for attestors and auditors."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from pvdm.cli.common.files import read_file
from pvdm.cli.common.options import path_option
from pvdm.cli.common.screen import progress_bars
from pvdm.cli.table.source_files import iceberg_schema
from pvdm.digest import Digester, Engine, Keys, Partial, Plan, schema_from_arrow
from pvdm.errors import Code, InputError
from pvdm.lake.format.schema.logical import schema_from_text
from pvdm.model.projection import ProjectionName
from pvdm.model.schema import Schema

SCHEMA_FILE_MAX_BYTES: Final = 16 * 1024 * 1024
_BATCH_ROWS: Final = 65_536
parquet_option = path_option(
    "--parquet", "files", multiple=True, required=True, help="A Parquet file of the rows; may be repeated."
)
schema_option = path_option(
    "--schema", "schema_file", help="Iceberg's JSON of the schema, or a table's metadata.  [default: the first file's]"
)


def read_schema(schema_file: Path | None, files: Sequence[Path]) -> Schema:
    """The table's schema: from a JSON file, or from the first Parquet file."""
    if schema_file is None:
        with _open(files[0]) as file:
            return schema_from_arrow(file.schema_arrow)
    try:
        value = json.loads(read_file(schema_file, size_max_bytes=SCHEMA_FILE_MAX_BYTES))
    except (ValueError, RecursionError):
        message = f"{schema_file} is not a schema"
        expected = "JSON: Iceberg's schema, a table's metadata, or the output of Schema.to_json"
        raise Code.INPUT_FILE_INVALID(message, reason="schema_file_invalid", expected=expected, got="text") from None
    with contextlib.suppress(InputError):  # not the form of `Schema.to_json`: read below as Iceberg's
        return Schema.from_json(value)
    schema, _schema_id = schema_from_text(json.dumps(iceberg_schema(value, str(schema_file))))
    return schema


def digest_files(files: Sequence[Path], plan: Plan, keys: Keys, engine: Engine) -> dict[ProjectionName, Partial]:
    """The digests of all rows of all files together."""
    digester = Digester(plan, keys, engine=engine)
    with progress_bars() as report:
        total_rows, done_rows = 0, 0
        for path in files:
            with _open(path) as file:
                total_rows += file.metadata.num_rows
        for path in files:
            with _open(path) as file:
                reader = pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches(batch_size=_BATCH_ROWS))
                try:
                    digester.update(reader)
                except (pa.ArrowException, OSError) as error:
                    raise _unreadable(path, error) from error
                done_rows += file.metadata.num_rows
            report("digest", done_rows, total_rows)
    return digester.partials()


def _open(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> InputError:
    got = str(error).split("\n")[0][:200]
    return InputError("parquet_unreadable", f"{path} cannot be read", expected="a Parquet file", got=got)
