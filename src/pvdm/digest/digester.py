"""Digests of Arrow data under a plan: the door that verification, audits and evaluation go through."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Final, TypeAlias

import pyarrow as pa

from pvdm.digest.engine import Engine, ParquetAccumulator
from pvdm.digest.parquet import FileRequest, ParquetFacts, facts
from pvdm.digest.partial import Partial, combine_each
from pvdm.digest.plan import Plan, element_key, key_check
from pvdm.digest.sharing import share
from pvdm.errors import Code, InputError, UnavailableError
from pvdm.model.projection import ProjectionName
from pvdm.model.secret import DigestKey

ArrowData: TypeAlias = pa.RecordBatch | pa.Table | pa.RecordBatchReader
Keys: TypeAlias = Mapping[ProjectionName, DigestKey]

THREADS_MAX: Final = 256


class KernelMissingWarning(UserWarning):
    """The native kernel is not installed and the slow reference is used instead."""


class Digester:
    """Adds Arrow data to one digest a projection. For one thread; several take one each and combine."""

    def __init__(self, plan: Plan, keys: Keys, *, engine: Engine | None = None) -> None:
        self._plan = plan
        self._keys = _judge_keys(plan, keys)
        self._accumulator = (engine or default_engine()).start(
            plan, {name: element_key(key, plan, name) for name, key in self._keys.items()}
        )
        self._rows = 0
        self._failed = False
        self._free = threading.Lock()

    def update(self, data: ArrowData) -> None:
        """Add every row; after an error this digester gives no digest any more."""
        for batch in batches(data):
            self.add(batch, first_row=self._rows)

    def add(self, batch: pa.RecordBatch, *, first_row: int) -> None:
        """Add one batch, whose first row is row `first_row` of the whole input; errors name rows by that count."""
        try:
            with self._adding():
                self._accumulator.update(batch)
                self._rows += batch.num_rows
        except InputError as refusal:
            raise _explained(refusal, first_row) from None

    def read_parquet(self, data: bytes, request: FileRequest, *, rewrite: bool = False) -> ParquetFacts:
        """Add every row of a Parquet file in memory, its columns found by field id; gives the file's exact facts.

        `rewrite` adds how to make the file to publish: the same page bodies under metadata of the Steward's own.
        """
        accumulator = self._accumulator
        if not isinstance(accumulator, ParquetAccumulator):
            raise kernel_missing("the reference reads no files")
        with self._adding():
            if rewrite:
                found = facts(*accumulator.rewrite_parquet(data, request.to_text()))
            else:
                found = facts(accumulator.read_parquet(data, request.to_text()))
            self._rows += found.rows
        return found

    @contextlib.contextmanager
    def _adding(self) -> Iterator[None]:
        """One thread at a time; void unless it comes to its end, whatever stops it."""
        if not self._free.acquire(blocking=False):
            raise Code.DIGESTER_IN_USE(got="two threads")
        try:
            if self._failed:
                raise _void()
            self._failed = True
            yield
            self._failed = False
        finally:
            self._free.release()

    def partials(self) -> dict[ProjectionName, Partial]:
        """What was seen so far, by projection."""
        if self._failed:
            raise _void()
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


_HINTS: Final[dict[str, str]] = {
    Code.ARROW_INVALID: "read the data again; a reader that makes such arrays is broken",
    Code.ARROW_TYPE_UNSUPPORTED: "cast the column to a type of the target before digesting, or drop it from the source",
    Code.CAST_REFUSED: "only the lossless casts of spec/canonical.md section 7 are made",
    Code.COLUMN_DUPLICATE: "source and target are matched by name",
    Code.COLUMN_MISSING: "source and target are matched by name, upper and lower case included",
    Code.COLUMN_UNEXPECTED: "source and target are matched by name, upper and lower case included",
    Code.DECIMAL_NOT_EXACT: "nothing is rounded here: round in the job, or declare a larger scale",
    Code.DECIMAL_TOO_WIDE: "widen the target's precision",
    Code.MAP_KEY_DUPLICATE: "make the keys of each map distinct; engines disagree on which entry counts",
    Code.MAP_KEY_NULL: "map keys are never null",
    Code.NESTING_TOO_DEEP: "flatten the value, or exclude the column with a reason",
    Code.NULL_IN_REQUIRED: "fill the value, or make the target's column optional",
    Code.ROW_TOO_LARGE: "split the value, or exclude the column with a reason",
    Code.STRING_NOT_UTF8: "store other bytes as binary",
    Code.STRING_UNASSIGNED_CODE_POINT: "portable mode knows Unicode 14.0.0; remove the character",
    Code.VALUE_OUT_OF_RANGE: "correct the value in the source",
    Code.VARIANT_MALFORMED: "write the variant again with a conforming writer",
}


def _explained(refusal: InputError, first_row: int) -> InputError:
    """The refusal with its row counted from the first of the whole input, and a next step."""
    details = dict(refusal.details)
    message = refusal.message
    row = details.get("row")
    if isinstance(row, int) and first_row:
        message = f"{message} (row {first_row + row} of the input)"
        details["row"] = first_row + row
    hint = refusal.hint or _HINTS.get(refusal.reason)
    return InputError(refusal.reason, message, expected=refusal.expected, got=refusal.got, hint=hint, **details)


def digest(
    data: ArrowData, plan: Plan, keys: Keys, *, threads: int = 1, engine: Engine | None = None
) -> dict[ProjectionName, Partial]:
    """The digests of all rows of `data`; with several threads each takes the next batch as it is free."""
    asked: object = threads  # what a caller without type checks may bring
    if not isinstance(asked, int) or not 1 <= asked <= THREADS_MAX:
        raise Code.THREADS_INVALID(expected=f"1 to {THREADS_MAX}", got=str(asked))
    workers = [Digester(plan, keys, engine=engine) for _ in range(threads)]

    def adding(worker: Digester) -> Callable[[tuple[int, pa.RecordBatch]], None]:
        return lambda numbered: worker.add(numbered[1], first_row=numbered[0])

    share(_numbered(batches(data)), [adding(worker) for worker in workers])
    return combine_each([worker.partials() for worker in workers])


def batches(data: ArrowData) -> Iterator[pa.RecordBatch]:
    """The record batches of a batch, table, reader or any object that exports an Arrow stream; at least one.

    Where there is none, an empty batch stands for the schema, which is judged like any other.
    """
    if isinstance(data, pa.RecordBatch):
        yield data
        return
    if isinstance(data, pa.Table):
        data = data.to_reader()
    elif not isinstance(data, pa.RecordBatchReader):
        if not hasattr(data, "__arrow_c_stream__") or isinstance(data, pa.ChunkedArray):
            raise Code.INPUT_NOT_ARROW(got=type(data).__name__)
        data = pa.RecordBatchReader.from_stream(data)
    empty = True
    for batch in data:
        empty = False
        yield batch
    if empty:
        yield pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in data.schema], schema=data.schema)


def kernel_engine() -> Engine:
    """The native kernel, or an error that says how to get it. Publishing asks for this one."""
    try:
        from pvdm.digest.kernel import KernelEngine
    except ImportError as error:
        raise kernel_missing(str(error)) from None
    return KernelEngine()


def kernel_missing(got: str) -> UnavailableError:
    """For what only the kernel does."""
    return UnavailableError(
        Code.KERNEL_MISSING,
        "the native kernel is not installed",
        expected="the package pvdm-kernel",
        got=got,
        hint="pip install pvdm-kernel, or `make setup` in a checkout with a Rust toolchain",
    )


def reference_engine() -> Engine:
    """The readable Python reference."""
    from pvdm.digest.reference import ReferenceEngine

    return ReferenceEngine()


@cache
def default_engine() -> Engine:
    """The kernel where it is installed, else the reference with a visible notice."""
    try:
        return kernel_engine()
    except UnavailableError as error:
        warnings.warn(
            f"{error.message}; digests are computed by the Python reference, some hundred times slower ({error.hint})",
            KernelMissingWarning,
            stacklevel=3,
        )
        return reference_engine()


def _numbered(found: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Each batch with the row of the whole input at which it begins."""
    rows = 0
    for batch in found:
        yield rows, batch
        rows += batch.num_rows


def _judge_keys(plan: Plan, keys: Keys) -> dict[ProjectionName, DigestKey]:
    wanted = {projection.name for projection in plan.projections}
    given: object = keys  # what a caller without type checks may bring
    if not isinstance(given, Mapping) or not all(isinstance(key, DigestKey) for key in given.values()):
        raise Code.KEYS_INVALID(
            "the keys cannot be accepted",
            expected="a mapping from ProjectionName to DigestKey",
            got="something else",
            hint="DigestKey(32 secret bytes, epoch=…)",
        )
    if keys.keys() != wanted:
        raise Code.KEYS_INVALID(
            "the keys do not fit the plan",
            expected=", ".join(sorted(name.value for name in wanted)),
            got=", ".join(sorted(str(getattr(name, "value", name)) for name in keys)) or "none",
        )
    epochs = {key.epoch for key in keys.values()}
    if len(epochs) > 1:
        raise Code.PARTIAL_MISMATCH(reason="partial_epoch_mismatch", got=", ".join(map(str, sorted(epochs))))
    return dict(keys)


def _void() -> InputError:
    return InputError(
        Code.DIGESTER_VOID,
        "this digester met an error and has no digest",
        expected="a new digester",
        got="one that failed",
        hint="digest the whole input again",
    )
