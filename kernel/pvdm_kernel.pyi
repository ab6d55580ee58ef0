"""The native kernel: canonical rows and keyed multiset digests over Arrow data.

Batches must have passed `pvdm.digest.exported.judge`: the C data interface trusts the sizes it is told.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

__version__: str

class KernelError(Exception):
    """A batch or plan was refused; `args` are code, column, row, expected, got."""

    args: tuple[str, str, int | None, str, str]

class PanicException(BaseException):
    """A bug in the kernel."""

class Digester:
    """Sums element hashes, one sum a projection of the plan."""

    def __init__(self, plan: str, keys: Sequence[bytes], hash_path: str = "auto") -> None: ...
    def update(self, batch: pa.RecordBatch) -> None:
        """Add every row; the GIL is released. After an error the sums are void."""

    def totals(self) -> list[tuple[int, bytes]]:
        """Rows and sum, by projection in the plan's order."""

    @property
    def hash_seconds(self) -> float:
        """The part of all updates that went into hashing."""

def encode(plan: str, projection: int, batch: pa.RecordBatch) -> list[bytes]:
    """The canonical rows of one projection, on the same way as a digester makes them."""

def hash_paths() -> list[str]:
    """The SHA-256 implementations that this processor can run, fastest first."""

class ParquetFile:
    """A Parquet file in memory, held to a schema by field ids.

    `request` is JSON: `schema`, and where wanted the ids of `dropped` and `needed` columns, and `buckets` as pairs of a
    column's id and a number; `named` is a schema with the names by which a file without any field id is read.
    """

    def __init__(self, data: bytes, request: str) -> None: ...
    def read(self, digester: Digester) -> str:
        """Every row, every column decoded, into the digester, without the GIL; gives the file's exact facts as JSON."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as batches of those of the schema's columns that the file has; others are not decoded."""
