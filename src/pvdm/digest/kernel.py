"""The native kernel behind the engine interface; importing this module needs the package pvdm-kernel."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pvdm_kernel
import pyarrow as pa

from pvdm.digest import exported
from pvdm.digest.plan import Plan
from pvdm.errors import Code, InputError, VerificationError
from pvdm.model.projection import ProjectionName


class KernelEngine:
    """The Rust implementation: columnar, without the GIL, several rows hashed at a time."""

    def __init__(self, hash_path: str = "auto") -> None:
        self._hash_path = hash_path

    @property
    def name(self) -> str:
        """`kernel`."""
        return "kernel"

    def encode(self, plan: Plan, projection: ProjectionName, batch: pa.RecordBatch) -> list[bytes]:
        """The canonical rows of one projection."""
        exported.judge(batch)
        position = plan.projections.index(plan.projection(projection))
        with guarded(batch):
            return pvdm_kernel.encode(plan_json(plan), position, batch)

    def start(self, plan: Plan, element_keys: Mapping[ProjectionName, bytes]) -> KernelAccumulator:
        """An accumulator at zero."""
        keys = [element_keys[projection.name] for projection in plan.projections]
        return KernelAccumulator(plan, pvdm_kernel.Digester(plan_json(plan), keys, self._hash_path))


class KernelAccumulator:
    """Sums element hashes in the kernel."""

    def __init__(self, plan: Plan, digester: pvdm_kernel.Digester) -> None:
        self._plan = plan
        self._digester = digester
        self._judged: exported.Judged | None = None

    def update(self, batch: pa.RecordBatch) -> None:
        """Add every row of the batch."""
        self._judged = exported.judge(batch, self._judged)
        with guarded(batch):
            self._digester.update(batch)

    def read_parquet(self, data: bytes, request: str) -> str:
        """Add every row of a Parquet file in memory; gives its facts as JSON."""
        with guarded_file():
            return pvdm_kernel.ParquetFile(data, request).read(self._digester)

    def rewrite_parquet(self, data: bytes, request: str) -> tuple[str, bytes]:
        """The same; gives the recipe of the file to publish as well."""
        with guarded_file():
            return pvdm_kernel.ParquetFile(data, request).read_and_rewrite(self._digester)

    def totals(self) -> dict[ProjectionName, tuple[int, int]]:
        """Rows and sum so far."""
        return {
            projection.name: (rows, int.from_bytes(total, "big"))
            for projection, (rows, total) in zip(self._plan.projections, self._digester.totals(), strict=True)
        }

    @property
    def hash_seconds(self) -> float:
        """The part of all updates that went into hashing; benchmarks read it."""
        return self._digester.hash_seconds


def parquet_batches(data: bytes, request: str) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file in memory, resolved by field id."""
    with guarded_file():
        yield from pvdm_kernel.ParquetFile(data, request).batches()


def splice_parquet(recipe: bytes, staged: bytes) -> bytes:
    """The file to publish, as the recipe says."""
    with guarded_file():
        return pvdm_kernel.splice(recipe, staged)


def plan_json(plan: Plan) -> str:
    """As the kernel reads it."""
    return json.dumps(
        {
            "schema": plan.schema.to_json(),
            "mode": plan.mode.value,
            "construction": plan.construction.value,
            "projections": [list(projection.columns) for projection in plan.projections],
        }
    )


@contextmanager
def guarded(batch: pa.RecordBatch) -> Iterator[None]:
    """What the kernel refuses of a batch, in our words."""
    try:
        yield
    except pvdm_kernel.KernelError as error:
        raise _refused(error, batch) from None
    except pa.ArrowException as error:
        raise Code.ARROW_INVALID(got=str(error)[:400]) from None
    except pvdm_kernel.PanicException as error:
        raise Code.KERNEL_PANIC(got=str(error)[:400]) from None


@contextmanager
def guarded_file() -> Iterator[None]:
    """Whatever is wrong with a file is a fact about the file: a FAIL, not a wrong call."""
    try:
        yield
    except pvdm_kernel.KernelError as error:
        raise _refused_file(error) from None
    except pvdm_kernel.PanicException as error:
        raise VerificationError(
            Code.PARQUET_UNREADABLE, "the file cannot be read", expected="a Parquet file", got=str(error)[:400]
        ) from None


def _refused_file(error: pvdm_kernel.KernelError) -> VerificationError:
    code, column, row, expected, got, group, claim, page = error.args
    where = f"column {column!r}" if column else "the file"
    details: dict[str, str | int] = {"column": column}
    for name, number in (("row_group", group), ("page", page), ("row", row)):
        if number is not None:
            where += f", {name.replace('_', ' ')} {number}"
            details[name] = number
    if claim is not None:
        details["claim"] = claim
    message = f"{where} is refused" if claim is None else f"{where}: {claim} does not hold"
    return VerificationError(code, message, expected=expected, got=got, hint=None, **details)


def _refused(error: pvdm_kernel.KernelError, batch: pa.RecordBatch) -> InputError:
    code, column, row, expected, got, *_ = error.args
    if code in {Code.CAST_REFUSED, Code.ARROW_TYPE_UNSUPPORTED} and batch.schema.names.count(column) == 1:
        # By the name the user knows: pyarrow's.
        got = str(batch.schema.field(column).type)
    where = f"column {column!r}" if column else "the batch"
    if row is not None:
        where += f", row {row}"
    details: dict[str, str | int] = {}
    if column:
        details["column"] = column
    if row is not None:
        details["row"] = row
    return InputError(code, f"{where} is refused", expected=expected, got=got, hint=None, **details)
