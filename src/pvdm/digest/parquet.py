"""The rows of Parquet files that the kernel reads, and the files that it splices together."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa

from pvdm.digest.file_facts import FileRequest
from pvdm.model.schema import Schema


def splice(recipe: bytes, staged: bytes) -> bytes:
    """The file to publish: the staged page bodies with the Steward's own page headers, indexes and footer."""
    import pvdm_kernel

    from pvdm.digest.kernel import translate_file_errors

    with translate_file_errors():
        return pvdm_kernel.splice(recipe, staged)


def read_batches(
    data: bytes,
    schema: Schema,
    dropped: Collection[int] = (),
    named: Schema | None = None,
    stored: Collection[int] = (),
    *,
    claims_checked: bool = False,
    parts_from: int = 0,
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, with the columns that both file and schema have; other columns are not decoded."""
    import pvdm_kernel

    from pvdm.digest.kernel import translate_file_errors

    request = FileRequest(
        schema, dropped, named=named, stored=stored, claims_checked=claims_checked, parts_from=parts_from
    )
    with translate_file_errors():
        yield from pvdm_kernel.ParquetFile(data, request.to_text()).batches()
