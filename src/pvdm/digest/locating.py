"""The kernel's two passes that find which rows of two sides differ; importing this needs the package pvdm-kernel."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pvdm_kernel
import pyarrow as pa

from pvdm.digest import exported
from pvdm.digest.kernel import guarded, guarded_file, plan_json
from pvdm.digest.parquet import FileRequest
from pvdm.digest.plan import Plan
from pvdm.errors import UnavailableError
from pvdm.model.projection import ProjectionName


class Sieve:
    """The first pass: rows by the hash of their identity into buckets, and in each the difference of both sides.

    For one thread; several take one each and merge. The key is drawn for one locating, and is no key of a digest: what
    is hashed here is never compared with, or told beside, anything that a proof rests on.
    """

    def __init__(self, plan: Plan, key: bytes, bits: int) -> None:
        names = (ProjectionName.IDENTITY, ProjectionName.CONTENT)
        ordered = Plan(plan.schema, tuple(plan.projection(name) for name in names), plan.mode, plan.construction)
        self._kernel = pvdm_kernel.Sieve(plan_json(ordered), key, bits)

    def add(self, batch: pa.RecordBatch) -> None:
        """Intended rows."""
        exported.judge(batch)
        with guarded(batch), _in_bounds():
            self._kernel.add(batch, False)

    def read(self, data: bytes, request: FileRequest) -> None:
        """Every row of a staged Parquet file in memory."""
        with guarded_file():
            self._kernel.read(pvdm_kernel.ParquetFile(data, request.to_text()))

    def merge(self, other: Sieve) -> None:
        """Take in what another thread saw."""
        with _in_bounds():
            self._kernel.merge(other._kernel)

    def differing(self) -> tuple[int, int]:
        """How many buckets differ, and how many rows of both sides lie in them."""
        return self._kernel.differing()

    def suspects(self, *, fields: bool, memory_bytes: int, spool: Path, spool_bytes: int) -> Suspects:
        """What collects these rows; with `fields`, a hash of each field too. Beyond its memory they go to the spool."""
        return Suspects(self._kernel.suspects(fields, memory_bytes, str(spool), spool_bytes))


class Suspects:
    """The second pass: the rows of the buckets that differ, with their places. For one thread."""

    def __init__(self, kernel: pvdm_kernel.Suspects) -> None:
        self._kernel = kernel

    def add(self, batch: pa.RecordBatch, file: int, first_row: int) -> None:
        """Intended rows, by the number of their file and that of the batch's first row in it."""
        exported.judge(batch)
        with guarded(batch), _in_bounds():
            self._kernel.add(batch, file, first_row)

    def read(self, data: bytes, request: FileRequest, file: int) -> None:
        """Every row of a staged Parquet file in memory, by the number of the file."""
        with guarded_file(), _in_bounds():
            self._kernel.read(pvdm_kernel.ParquetFile(data, request.to_text()), file)

    def absorb(self, other: Suspects) -> None:
        """Take over what another thread collected, which is used up by it."""
        with _in_bounds():
            self._kernel.absorb(other._kernel)

    @property
    def is_spooled(self) -> bool:
        """Whether memory did not hold them."""
        return self._kernel.is_spooled

    def tally(self, samples: int) -> dict[str, Any]:
        """What is wrong, by class, with the places of the first `samples` keys of each; used up by it."""
        with guarded_file(), _in_bounds():
            found: dict[str, Any] = json.loads(self._kernel.tally(samples))
        return found


@contextlib.contextmanager
def _in_bounds() -> Iterator[None]:
    """What ends a locating, and says nothing of the rows that it met."""
    try:
        yield
    except pvdm_kernel.KernelError as error:
        code, _, _, expected, got, *_ = error.args
        if not code.startswith("locate_"):
            raise
        raise UnavailableError(code, "locating the rows met its limits", expected=expected, got=got) from None
