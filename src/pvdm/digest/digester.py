"""Digests of Arrow data under a plan: the door that verification, audits and evaluation go through."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final, TypeAlias

import pyarrow as pa

from pvdm.digest.engine import Engine
from pvdm.digest.partial import Partial, combine
from pvdm.digest.plan import Plan, element_key, key_check
from pvdm.errors import InputError, UnavailableError
from pvdm.model.projection import ProjectionName
from pvdm.model.secret import DigestKey

ArrowData: TypeAlias = pa.RecordBatch | pa.Table | pa.RecordBatchReader
Keys: TypeAlias = Mapping[ProjectionName, DigestKey]

THREADS_MAX: Final = 256


class KernelMissingWarning(UserWarning):
    """The native kernel is not installed and the slow reference is used instead."""


class Digester:
    """Adds Arrow data to one digest a projection."""

    def __init__(self, plan: Plan, keys: Keys, *, engine: Engine | None = None) -> None:
        self._plan = plan
        self._keys = _judge_keys(plan, keys)
        self._accumulator = (engine or default_engine()).start(
            plan, {name: element_key(key, plan, name) for name, key in self._keys.items()}
        )
        self._failed = False

    def update(self, data: ArrowData) -> None:
        """Add every row; after an error this digester gives no digest any more."""
        if self._failed:
            raise _void()
        try:
            for batch in batches(data):
                self._accumulator.update(batch)
        except BaseException:
            self._failed = True
            raise

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


def digest(
    data: ArrowData, plan: Plan, keys: Keys, *, threads: int = 1, engine: Engine | None = None
) -> dict[ProjectionName, Partial]:
    """The digests of all rows of `data`; with several threads each takes the next batch as it is free."""
    if not 1 <= threads <= THREADS_MAX:
        raise InputError(
            "threads_invalid",
            "the number of threads cannot be accepted",
            expected=f"1 to {THREADS_MAX}",
            got=str(threads),
        )
    source = _Shared(batches(data))
    workers = [Digester(plan, keys, engine=engine) for _ in range(threads)]
    if threads == 1:
        _drain(source, workers[0])
    else:
        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(_drain, source, worker) for worker in workers]:
                done.result()
    seen = [worker.partials() for worker in workers]
    return {name: combine(partials[name] for partials in seen) for name in seen[0]}


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
        if not hasattr(data, "__arrow_c_stream__"):
            raise InputError(
                "input_not_arrow",
                "only Arrow data can be digested",
                expected="a record batch, table or stream",
                got=type(data).__name__,
            )
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
        raise UnavailableError(
            "kernel_missing",
            "the native kernel is not installed",
            expected="the package pvdm-kernel",
            got=str(error),
            hint="pip install pvdm-kernel, or `make setup` in a checkout with a Rust toolchain",
        ) from None
    return KernelEngine()


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


class _Shared:
    """An iterator that several threads may take from."""

    def __init__(self, source: Iterable[pa.RecordBatch]) -> None:
        self._source = iter(source)
        self._lock = threading.Lock()
        self._stopped = False

    def take(self) -> pa.RecordBatch | None:
        with self._lock:
            return None if self._stopped else next(self._source, None)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True


def _drain(source: _Shared, worker: Digester) -> None:
    try:
        while (batch := source.take()) is not None:
            worker.update(batch)
    except BaseException:
        source.stop()
        raise


def _judge_keys(plan: Plan, keys: Keys) -> dict[ProjectionName, DigestKey]:
    wanted = {projection.name for projection in plan.projections}
    if keys.keys() != wanted:
        raise InputError(
            "keys_invalid",
            "the keys do not fit the plan",
            expected=", ".join(sorted(name.value for name in wanted)),
            got=", ".join(sorted(name.value for name in keys)) or "none",
        )
    epochs = {key.epoch for key in keys.values()}
    if len(epochs) > 1:
        raise InputError(
            "partial_epoch_mismatch",
            "the keys are of different epochs",
            expected="one epoch",
            got=", ".join(map(str, sorted(epochs))),
        )
    return dict(keys)


def _void() -> InputError:
    return InputError(
        "digester_void",
        "this digester met an error and has no digest",
        expected="a new digester",
        got="one that failed",
        hint="digest the whole input again",
    )
