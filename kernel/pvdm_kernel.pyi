"""The native kernel: canonical rows and keyed multiset digests over Arrow data.

Batches must have passed `pvdm.digest.exported.judge`: the C data interface trusts the sizes it is told.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

__version__: str

class KernelError(Exception):
    """A batch, file or plan was refused.

    `args` are code, column, row, expected, got; and of a file the row group, the claim that does not hold, and its page.
    """

    args: tuple[str, str, int | None, str, str, int | None, str | None, int | None]

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

def splice(recipe: bytes, staged: bytes) -> bytes:
    """The file to publish: page bodies of the staged file under metadata that the recipe holds."""

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

    def read_and_rewrite(self, digester: Digester) -> tuple[str, bytes]:
        """Reads the same; gives the facts, with those of the file to publish, and the recipe by which `splice` makes it.

        `names` of the request are pairs of a struct field's id and its name in published files.
        """

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as batches of those of the schema's columns that the file has; others are not decoded."""

class Sieve:
    """The first pass of locating: which buckets of keys differ between two sides. `plan` has identity, then content."""

    def __init__(self, plan: str, key: bytes, bits: int) -> None: ...
    def add(self, batch: pa.RecordBatch, staged: bool) -> None:
        """Every row of one side; the GIL is released. After an error the sieve is void."""

    def read(self, file: ParquetFile) -> None:
        """Every row of a staged file."""

    def merge(self, other: Sieve) -> None:
        """Take in what another one of the same locating saw."""

    def differing(self) -> tuple[int, int]:
        """Buckets that differ, and the rows of both sides in them."""

    def suspects(self, fields: bool, memory_bytes: int, spool: str, limit_bytes: int) -> Suspects:
        """What collects these rows; `spool` is a path that is not there, for what memory does not hold."""

class Suspects:
    """The second pass: the rows of those buckets. Once absorbed or tallied it is used up."""

    def add(self, batch: pa.RecordBatch, file: int, first_row: int) -> None:
        """Intended rows."""

    def read(self, file: ParquetFile, number: int) -> None:
        """Every row of a staged file."""

    def absorb(self, other: Suspects) -> None:
        """Take over what another one of the same locating collected."""

    @property
    def is_spooled(self) -> bool:
        """Whether memory did not hold them."""

    def tally(self, samples: int) -> str:
        """What is wrong, as JSON: for each class its rows, by file, and the first places; the fields that differ."""
