"""The native kernel: canonical rows and keyed multiset digests over Arrow data.

Batches must have passed `pvdm.digest.exported.judge`: the C data interface trusts the sizes it is told.
"""

from collections.abc import Sequence

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
