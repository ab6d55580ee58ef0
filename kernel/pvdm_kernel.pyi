"""The native kernel: canonical rows and keyed multiset digests over Arrow data.

Batches must have passed `pvdm.digest.exported.judge`, because the C data interface trusts the sizes that it is given.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

__version__: str

class KernelError(Exception):
    """A batch, file or plan was refused.

    `args` are code, column, row, expected and got. For a file they are followed by the row group, the claim that does
    not hold, and its page.
    """

    args: tuple[str, str, int | None, str, str, int | None, str | None, int | None]

class PanicException(BaseException):
    """A bug in the kernel."""

class Digester:
    """Sums element hashes, one sum per projection of the plan."""

    def __init__(self, plan: str, keys: Sequence[bytes], hash_path: str = "auto") -> None: ...
    def update(self, batch: pa.RecordBatch) -> None:
        """Add every row, with the GIL released. After an error the sums are void."""

    def totals(self) -> list[tuple[int, bytes]]:
        """Rows and sum per projection, in the plan's order."""

    @property
    def hash_seconds(self) -> float:
        """The time that all updates spent hashing."""

def encode(plan: str, projection: int, batch: pa.RecordBatch) -> list[bytes]:
    """The canonical rows of one projection, encoded as a digester does."""

def splice(recipe: bytes, staged: bytes) -> bytes:
    """Build the file to publish: page bodies of the staged file under the metadata that the recipe holds."""

def hash_paths() -> list[str]:
    """The SHA-256 implementations that this processor can run, fastest first."""

class ParquetFile:
    """A Parquet file in memory, resolved to a schema by field ids.

    `request` is the JSON of `pvdm.digest.parquet.FileRequest`. Unknown fields are refused.
    """

    def __init__(self, data: bytes, request: str) -> None: ...
    def read(self, digester: Digester) -> str:
        """Decode every row and column into the digester, without the GIL. Return the file's exact facts as JSON."""

    def read_and_rewrite(self, digester: Digester) -> tuple[str, bytes]:
        """Read the same. Return the facts, with those of the file to publish, and the recipe for `splice`."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as batches of the schema's columns that the file has. Other columns are not decoded."""

class Sieve:
    """The first pass of locating: finds the buckets of keys that differ. `plan` has identity, then content."""

    def __init__(self, plan: str, key: bytes, bits: int) -> None: ...
    def add(self, batch: pa.RecordBatch, staged: bool) -> None:
        """Add every row of one side, with the GIL released. After an error the sieve is void."""

    def read(self, file: ParquetFile) -> None:
        """Add every row of a staged file."""

    def merge(self, other: Sieve) -> None:
        """Add what another sieve of the same locating job has seen."""

    def differing(self) -> tuple[int, int]:
        """The number of buckets that differ, and of the rows of both sides in them."""

    def suspects(self, fields: bool, memory_bytes: int, spool: str, limit_bytes: int) -> Suspects:
        """Create a collector for these rows. `spool` is a path that must not exist, for rows that exceed the memory."""

class Suspects:
    """The second pass: collects the rows of those buckets. It cannot be used after `absorb` or `tally`."""

    def add(self, batch: pa.RecordBatch, file: int, first_row: int) -> None:
        """Add intended rows."""

    def read(self, file: ParquetFile, number: int) -> None:
        """Add every row of a staged file."""

    def absorb(self, other: Suspects) -> None:
        """Take over what another collector of the same locating job has."""

    @property
    def is_spooled(self) -> bool:
        """Whether the rows exceeded the memory."""

    def tally(self, samples: int) -> str:
        """Report the differences as JSON: rows by class and file, the first places, and the fields that differ."""
