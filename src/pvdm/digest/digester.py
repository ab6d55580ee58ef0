"""Digests of Arrow data under a digest plan (which columns are hashed, and how), and the interface of both engines."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Final, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from pvdm.digest.file_facts import FileRequest, ParquetFacts
from pvdm.digest.partial import Partial, combine_each
from pvdm.digest.plan import Plan, element_key, key_check
from pvdm.digest.sharing import share
from pvdm.errors import Code, InputError, UnavailableError
from pvdm.errors.registry import entries_by_reason
from pvdm.model.projection import ProjectionName
from pvdm.model.secret import DigestKey


class Accumulator(Protocol):
    """Adds rows to the digests of every projection of a plan."""

    def update(self, batch: pa.RecordBatch) -> None:
        """Add every row of the batch. After an error the accumulator cannot be used any more."""

    def totals(self) -> Mapping[ProjectionName, tuple[int, int]]:
        """By projection: the number of rows so far, and the sum of their element hashes."""


@runtime_checkable
class ParquetAccumulator(Accumulator, Protocol):
    """An accumulator that reads files itself."""

    def read_parquet(self, data: bytes, request: FileRequest, *, rewrite: bool) -> ParquetFacts:
        """Add every row of a Parquet file in memory. With `rewrite` the facts also have the recipe (`published`)."""


class Engine(Protocol):
    """An implementation of spec/canonical.md and spec/digest.md."""

    @property
    def name(self) -> str:
        """`reference` or `kernel`."""

    def encode(self, plan: Plan, projection: ProjectionName, batch: pa.RecordBatch) -> list[bytes]:
        """The canonical rows of one projection, for vectors and tests."""

    def start(self, plan: Plan, element_keys: Mapping[ProjectionName, bytes]) -> Accumulator:
        """An accumulator at zero. The element keys, derived from digest keys, hash its rows."""


ArrowData: TypeAlias = pa.RecordBatch | pa.Table | pa.RecordBatchReader
Keys: TypeAlias = Mapping[ProjectionName, DigestKey]

THREADS_MAX: Final = 256


class KernelMissingWarning(UserWarning):
    """The native kernel is not installed, and the slow reference is used instead."""


class Digester:
    """Adds Arrow data to one digest for each projection. Each thread needs a Digester; `combine_each` adds them up."""

    def __init__(self, plan: Plan, keys: Keys, *, engine: Engine | None = None) -> None:
        self._plan = plan
        self._keys = _check_keys(plan, keys)
        self._accumulator = (engine or default_engine()).start(
            plan, {name: element_key(key, plan, name) for name, key in self._keys.items()}
        )
        self._rows = 0
        self._failed = False
        self._free = threading.Lock()

    def update(self, data: ArrowData) -> None:
        """Add every row. After any error, also one while `data` is read, this digester cannot be used any more."""
        try:
            for batch in batches(data):
                self.add(batch, first_row=self._rows)
        except BaseException:
            self._failed = True
            raise

    def add(self, batch: pa.RecordBatch, *, first_row: int) -> None:
        """Add one batch. Errors count rows from `first_row`, the number of the batch's first row in the whole input."""
        try:
            with self._adding():
                self._accumulator.update(batch)
                self._rows += batch.num_rows
        except InputError as error:
            raise _explain(error, first_row) from None

    def read_parquet(self, data: bytes, request: FileRequest, *, rewrite: bool = False) -> ParquetFacts:
        """Add every row of a Parquet file in memory, its columns found by field id; returns the facts of the file.

        With `rewrite` the facts also have the recipe of the file to publish: new bytes, and ranges of `data` to copy.
        """
        accumulator = self._accumulator
        if not isinstance(accumulator, ParquetAccumulator):
            raise Code.DEPENDENCY_MISSING(reason="kernel_missing", got="the reference reads no files")
        with self._adding():
            found = accumulator.read_parquet(data, request, rewrite=rewrite)
            self._rows += found.rows
        return found

    @contextlib.contextmanager
    def _adding(self) -> Iterator[None]:
        """Allow one thread at a time. After an error the digester cannot be used any more."""
        if not self._free.acquire(blocking=False):
            raise Code.DIGESTER_MISUSED(reason="digester_in_use", got="two threads")
        try:
            if self._failed:
                raise Code.DIGESTER_MISUSED(reason="digester_void", got="one that failed")
            yield
        except BaseException:
            self._failed = True  # never reset: another thread may have failed meanwhile
            raise
        finally:
            self._free.release()

    def partials(self) -> dict[ProjectionName, Partial]:
        """The digests so far, by projection."""
        if self._free.locked():
            raise Code.DIGESTER_MISUSED(reason="digester_in_use", got="two threads")
        if self._failed:
            raise Code.DIGESTER_MISUSED(reason="digester_void", got="one that failed")
        return {
            name: Partial(
                epoch=self._keys[name].epoch,
                construction=self._plan.construction,
                mode=self._plan.mode,
                projection=name,
                fingerprint=self._plan.fingerprint(name),
                key_check=key_check(self._keys[name], self._plan, name),
                rows=rows,
                total=total,
            )
            for name, (rows, total) in self._accumulator.totals().items()
        }


def _explain(error: InputError, first_row: int) -> InputError:
    """The error with its row number in the whole input, and the hint of its reason."""
    entry = entries_by_reason().get(error.reason)
    hint = None if entry is None else entry.hint
    row = error.details.get("row")
    if not isinstance(row, int) or not first_row:
        return error.with_context(error.message, hint=hint)
    row += first_row
    return error.with_context(f"{error.message} (row {row} of the input)", hint=hint, row=row)


def digest(
    data: ArrowData, plan: Plan, keys: Keys, *, threads: int = 1, engine: Engine | None = None
) -> dict[ProjectionName, Partial]:
    """The digests of all rows of `data`, computed by this number of threads."""
    unchecked: object = threads  # callers may pass anything
    if not isinstance(unchecked, int) or not 1 <= unchecked <= THREADS_MAX:
        raise Code.DIGESTER_MISUSED(reason="threads_invalid", expected=f"1 to {THREADS_MAX}", got=str(unchecked))
    digesters = [Digester(plan, keys, engine=engine) for _ in range(threads)]
    share(_number_rows(batches(data)), [partial(_add_numbered, digester) for digester in digesters])
    return combine_each([digester.partials() for digester in digesters])


def batches(data: ArrowData) -> Iterator[pa.RecordBatch]:
    """The record batches of any object that exports an Arrow stream. Data without batches gives one empty batch."""
    if isinstance(data, pa.RecordBatch):
        yield data
        return
    if isinstance(data, pa.Table):
        data = data.to_reader()
    elif not isinstance(data, pa.RecordBatchReader):
        if not hasattr(data, "__arrow_c_stream__") or isinstance(data, pa.ChunkedArray):
            raise Code.ARROW_INVALID(reason="input_not_arrow", got=type(data).__name__)
        data = pa.RecordBatchReader.from_stream(data)
    empty = True
    for batch in data:
        empty = False
        yield batch
    if empty:
        yield pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in data.schema], schema=data.schema)


def kernel_engine() -> Engine:
    """The native kernel, which publishing needs; raises `kernel_missing`."""
    try:
        from pvdm.digest.kernel import KernelEngine
    except ImportError as error:
        raise Code.DEPENDENCY_MISSING(reason="kernel_missing", got=str(error)) from None
    return KernelEngine()


def reference_engine() -> Engine:
    """The readable Python reference."""
    from pvdm.digest.reference import ReferenceEngine

    return ReferenceEngine()


@cache
def default_engine() -> Engine:
    """The kernel if it is installed, else the reference with a warning."""
    try:
        return kernel_engine()
    except UnavailableError as error:
        warnings.warn(
            f"{error.message}; digests are computed by the Python reference, some hundred times slower ({error.hint})",
            KernelMissingWarning,
            stacklevel=3,
        )
        return reference_engine()


def _number_rows(stream: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Each batch with the number of its first row in the whole input."""
    rows = 0
    for batch in stream:
        yield rows, batch
        rows += batch.num_rows


def _add_numbered(digester: Digester, numbered: tuple[int, pa.RecordBatch]) -> None:
    first_row, batch = numbered
    digester.add(batch, first_row=first_row)


def _check_keys(plan: Plan, keys: Keys) -> dict[ProjectionName, DigestKey]:
    wanted = {projection.name for projection in plan.projections}
    unchecked: object = keys  # callers may pass anything
    if not isinstance(unchecked, Mapping) or not all(isinstance(key, DigestKey) for key in unchecked.values()):
        expected, hint = "a mapping from ProjectionName to DigestKey", "DigestKey(32 secret bytes, epoch=…)"
        raise Code.DIGESTER_MISUSED(reason="keys_invalid", expected=expected, got="something else", hint=hint)
    if keys.keys() != wanted:
        raise Code.DIGESTER_MISUSED(
            "the keys do not fit the plan",
            reason="keys_invalid",
            expected=", ".join(sorted(name.value for name in wanted)),
            got=", ".join(sorted(str(getattr(name, "value", name)) for name in keys)) or "none",
        )
    epochs = {key.epoch for key in keys.values()}
    if len(epochs) > 1:
        raise Code.PARTIAL_MISMATCH(reason="partial_epoch_mismatch", got=", ".join(map(str, sorted(epochs))))
    return dict(keys)
