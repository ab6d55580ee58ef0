"""The native kernel (package pvdm-kernel): engine, Parquet reader, and the two passes that locate wrong rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pvdm_kernel
import pyarrow as pa

from pvdm.digest.arrow import CheckedSchema, check_batch
from pvdm.digest.file_facts import FileRequest, ParquetFacts, parse_facts
from pvdm.digest.plan import Plan
from pvdm.errors import Code, InputError, UnavailableError, VerificationError
from pvdm.model.projection import ProjectionName


class KernelEngine:
    """The engine in Rust. `hash_path` is one of the kernel's `hash_paths()`, or `auto` for the fastest."""

    name: Final = "kernel"

    def __init__(self, hash_path: str = "auto") -> None:
        self._hash_path = hash_path

    def encode(self, plan: Plan, projection: ProjectionName, batch: pa.RecordBatch) -> list[bytes]:
        """The canonical rows of one projection."""
        check_batch(batch)
        position = plan.projections.index(plan.projection(projection))
        with translate_batch_errors(batch):
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
        self._checked: CheckedSchema | None = None

    def update(self, batch: pa.RecordBatch) -> None:
        """Add every row of the batch."""
        self._checked = check_batch(batch, self._checked)
        with translate_batch_errors(batch):
            self._digester.update(batch)

    def read_parquet(self, data: bytes, request: FileRequest, *, rewrite: bool) -> ParquetFacts:
        """Add every row of a Parquet file in memory. With `rewrite` the facts also have the recipe (`published`)."""
        with translate_file_errors():
            file = pvdm_kernel.ParquetFile(data, request.to_text())
            if not rewrite:
                return parse_facts(file.read(self._digester))
            return parse_facts(*file.read_and_rewrite(self._digester))

    def totals(self) -> dict[ProjectionName, tuple[int, int]]:
        """By projection: the number of rows so far, and the sum of their element hashes."""
        return {
            projection.name: (rows, int.from_bytes(total, "big"))
            for projection, (rows, total) in zip(self._plan.projections, self._digester.totals(), strict=True)
        }


def plan_json(plan: Plan) -> str:
    """The plan as JSON for the kernel."""
    return json.dumps(
        {
            "schema": plan.schema.to_json(),
            "mode": plan.mode.value,
            "construction": plan.construction.value,
            "projections": [list(projection.columns) for projection in plan.projections],
        }
    )


@contextmanager
def translate_batch_errors(batch: pa.RecordBatch) -> Iterator[None]:
    """Translate errors of the kernel about a batch."""
    try:
        yield
    except pvdm_kernel.KernelError as error:
        _raise_locating_error(error)
        raise _batch_error(error, batch) from None
    except pa.ArrowException as error:
        raise Code.ARROW_INVALID(got=str(error)[:400]) from None
    except pvdm_kernel.PanicException as error:
        raise Code.BUG(reason="kernel_panic", got=str(error)[:400]) from None


@contextmanager
def translate_file_errors() -> Iterator[None]:
    """Translate errors of the kernel about a file to `VerificationError`, which leads to a FAIL."""
    try:
        yield
    except pvdm_kernel.KernelError as error:
        _raise_locating_error(error)
        raise _file_error(error) from None
    except pvdm_kernel.PanicException as error:
        message, got = "the file cannot be read", str(error)[:400]
        raise VerificationError("parquet_unreadable", message, expected="a Parquet file", got=got) from None


def _raise_locating_error(error: pvdm_kernel.KernelError) -> None:
    """Raise `UnavailableError` if this is an error of a search for wrong rows, which changes no verdict."""
    code, _, _, expected, got, *_ = error.args
    if code.startswith("locate_"):
        raise UnavailableError(code, "the search for wrong rows failed", expected=expected, got=got) from None


def _file_error(error: pvdm_kernel.KernelError) -> VerificationError:
    code, column, row, expected, got, group, claim, page = error.args
    where, details = _describe_position("the file", column, row_group=group, page=page, row=row)
    details.setdefault("column", column)
    message = f"{where} is refused"
    if claim is not None:  # a statistic, index or filter of the file
        message, details["claim"] = f"{where}: {claim} does not hold", claim
    return VerificationError(code, message, expected=expected, got=got, hint=None, **details)


def _batch_error(error: pvdm_kernel.KernelError, batch: pa.RecordBatch) -> InputError:
    code, column, row, expected, got, *_ = error.args
    if code in {"cast_refused", "arrow_type_unsupported"} and batch.schema.names.count(column) == 1:
        got = str(batch.schema.field(column).type)  # the name that pyarrow has for the type
    where, details = _describe_position("the batch", column, row=row)
    return InputError(code, f"{where} is refused", expected=expected, got=got, hint=None, **details)


def _describe_position(whole: str, column: str, **numbers: int | None) -> tuple[str, dict[str, str | int]]:
    """Column, row group, page and row of an error, in words and as details."""
    where = f"column {column!r}" if column else whole
    details: dict[str, str | int] = {"column": column} if column else {}
    for name, number in numbers.items():
        if number is not None:
            where += f", {name.replace('_', ' ')} {number}"
            details[name] = number
    return where, details


class BucketDifferences:
    """The first pass of a search for wrong rows. Rows go to buckets by the hash of their identity.

    A bucket is the difference of intended and staged rows, as a sum of hashes. Each thread has its own buckets; `merge`
    adds them up. The key is random and for one search only. The hashes are not those of the digests.
    """

    def __init__(self, plan: Plan, key: bytes, bits: int) -> None:
        names = (ProjectionName.IDENTITY, ProjectionName.CONTENT)
        ordered = Plan(plan.schema, tuple(plan.projection(name) for name in names), plan.mode, plan.construction)
        self._kernel = pvdm_kernel.Sieve(plan_json(ordered), key, bits)

    def add(self, batch: pa.RecordBatch, file: int, first_row: int) -> None:
        """Add intended rows. Only the second pass uses their file and row numbers."""
        del file, first_row
        check_batch(batch)
        with translate_batch_errors(batch):
            self._kernel.add(batch, staged=False)

    def read(self, data: bytes, request: FileRequest, file: int) -> None:
        """Add every row of a staged Parquet file in memory."""
        del file
        with translate_file_errors():
            self._kernel.read(pvdm_kernel.ParquetFile(data, request.to_text()))

    def merge(self, other: BucketDifferences) -> None:
        """Merge the buckets of another thread."""
        with translate_file_errors():
            self._kernel.merge(other._kernel)

    def count_differing(self) -> tuple[int, int]:
        """The number of buckets that differ, and the number of intended and staged rows in them together."""
        return self._kernel.count_differing()

    def differing_rows(self, *, hash_fields: bool, memory_bytes: int, spool: Path, spool_bytes: int) -> DifferingRows:
        """The second pass; with `hash_fields` it hashes each field too. Rows beyond `memory_bytes` go to `spool`."""
        return DifferingRows(self._kernel.suspects(hash_fields, memory_bytes, str(spool), spool_bytes))


class DifferingRows:
    """The second pass: the rows of the buckets that differ, with file and row number. For one thread."""

    def __init__(self, kernel: pvdm_kernel.Suspects) -> None:
        self._kernel = kernel

    def add(self, batch: pa.RecordBatch, file: int, first_row: int) -> None:
        """Add intended rows of this file; `first_row` is the number of the batch's first row in it."""
        check_batch(batch)
        with translate_batch_errors(batch):
            self._kernel.add(batch, file, first_row)

    def read(self, data: bytes, request: FileRequest, file: int) -> None:
        """Add every row of a staged Parquet file in memory, with the file's number."""
        with translate_file_errors():
            self._kernel.read(pvdm_kernel.ParquetFile(data, request.to_text()), file)

    def merge(self, other: DifferingRows) -> None:
        """Take over the rows that another thread collected in `other`, which cannot be used afterwards."""
        with translate_file_errors():
            self._kernel.absorb(other._kernel)

    @property
    def is_spooled(self) -> bool:
        """Whether rows went to the spool file."""
        return self._kernel.is_spooled

    def tally(self, samples: int) -> dict[str, Any]:
        """The wrong rows, by the classes `missing`, `added`, `duplicated` and `modified`. To be called once.

        - `fields`: pairs of a field and the number of modified rows where it differs, of `compared` modified rows.
        - Each class: `rows` (a number), `files` (pairs of file number and rows), at most `samples` keys (`samples`).
        - Each sample, a key: `at` (first file and row) and its `rows`; if modified `intent` (as `at`) and `fields`.
        """
        with translate_file_errors():
            found: dict[str, Any] = json.loads(self._kernel.tally(samples))
        return found
