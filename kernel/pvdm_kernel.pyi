"""The native kernel: canonical rows and keyed multiset digests over Arrow data, and Parquet files.

Every batch must have passed `pvdm.digest.arrow.check_batch`, because the C data interface trusts the sizes it is
given. A plan is the JSON of `pvdm.digest.kernel.plan_json`.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

__version__: str

class KernelError(Exception):
    """A batch, file or plan was refused.

    `args` are code, column, row, expected, got, row group, claim and page. The last three are for files. `claim` names
    a statement of the file about its own values that does not hold, for example a statistic.
    """

    args: tuple[str, str, int | None, str, str, int | None, str | None, int | None]

class PanicException(BaseException):
    """A bug in the kernel."""

class Digester:
    """Sums element hashes (keyed hashes of canonical rows), one sum per projection of the plan.

    `keys` has one element key of 32 bytes per projection. `hash_path` is one of `hash_paths()`, or `auto` for the
    fastest.
    """

    def __init__(self, plan: str, keys: Sequence[bytes], hash_path: str = "auto") -> None: ...
    def update(self, batch: pa.RecordBatch) -> None:
        """Add every row, with the GIL released. After an error the sums are void."""

    def totals(self) -> list[tuple[int, bytes]]:
        """Return (row count, sum) for each projection, in the plan's order."""

    @property
    def hash_seconds(self) -> float:
        """The time that all updates spent hashing."""

def encode(plan: str, projection: int, batch: pa.RecordBatch) -> list[bytes]:
    """The canonical rows of one projection, encoded as a digester does. `projection` is a position in the plan."""

def splice(recipe: bytes, staged: bytes) -> bytes:
    """Build the file to publish: the page bodies of the staged file, with the metadata that the recipe holds."""

def hash_paths() -> list[str]:
    """The SHA-256 implementations that this processor can run, fastest first."""

class ParquetFile:
    """A Parquet file in memory, resolved to a schema by field ids.

    `request` is the JSON of `pvdm.digest.file_facts.FileRequest`. Unknown fields are refused.
    """

    def __init__(self, data: bytes, request: str) -> None: ...
    def read(self, digester: Digester) -> str:
        """Decode every row and column into the digester, without the GIL. Return the facts as JSON.

        The facts are what a manifest entry says about the file, for example counts and bounds.
        """

    def read_and_rewrite(self, digester: Digester) -> tuple[str, bytes]:
        """Read as `read` does. Return (facts, recipe): the facts also describe the file that `splice` will build."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as batches of the schema's columns that the file has. Other columns are not decoded."""

class Sieve:
    """The first pass of locating wrong rows: puts rows into buckets by their identity, and finds buckets that differ.

    There are 2^`bits` buckets. `key` has 32 bytes. The plan has the projections identity and content, in this order.
    """

    def __init__(self, plan: str, key: bytes, bits: int) -> None: ...
    def add(self, batch: pa.RecordBatch, staged: bool) -> None:
        """Add every row of one side, staged or intended, with the GIL released. After an error the sieve is void."""

    def read(self, file: ParquetFile) -> None:
        """Add every row of a staged file."""

    def merge(self, other: Sieve) -> None:
        """Add the rows of another sieve of the same locating job, which another thread filled."""

    def count_differing(self) -> tuple[int, int]:
        """Return (number of buckets that differ, number of rows that both sides have in these buckets)."""

    def suspects(self, hash_fields: bool, memory_bytes: int, spool: str, limit_bytes: int) -> Suspects:
        """Create a collector for the rows of the buckets that differ. With `hash_fields` it hashes each field too.

        Rows that exceed `memory_bytes` go to a file at the path `spool`, which must not exist, up to `limit_bytes`.
        """

class Suspects:
    """The second pass: collects the rows of the buckets that differ.

    A collector cannot be used after it was tallied, or absorbed by another collector.

    The caller numbers the files of both sides; the report names files by these numbers.
    """

    def add(self, batch: pa.RecordBatch, file: int, first_row: int) -> None:
        """Add intended rows of the file number `file`. The batch starts at row `first_row` of that file."""

    def read(self, file: ParquetFile, number: int) -> None:
        """Add every row of a staged file. The report names the file by `number`."""

    def absorb(self, other: Suspects) -> None:
        """Take over the rows of another collector of the same locating job."""

    @property
    def is_spooled(self) -> bool:
        """Whether rows went to the spool."""

    def tally(self, samples: int) -> str:
        """Report the differences as JSON: rows by class and file, `samples` places per class, and differing fields."""
