"""What a worker process does: keys by handle, every file of a task fetched, held to its freeze and digested, a report.

It knows neither trust nor ledger: a decoder of staged files holds keys of one attempt, never roots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from pvdm.digest import Digester, Keys, combine_each, kernel_engine
from pvdm.errors import Code, PvdmError, VerificationError
from pvdm.lake.read.resolve import pc
from pvdm.lake.stores.s3_client import settings_of
from pvdm.lake.stores.stores import Stores
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.compare import Partials
from pvdm.verify.fetch import Files
from pvdm.verify.file_orders import Ground, SourceOrder, StagedOrder
from pvdm.verify.findings import Finding
from pvdm.verify.intent import Intent
from pvdm.verify.spark.keyring import Keyring, redeem
from pvdm.verify.spark.report import FileReport, Report
from pvdm.verify.spark.seal import JobSeal, bound_to
from pvdm.verify.spark.task import Common, Rows, Task
from pvdm.verify.threads import judged, not_frozen
from pvdm.verify.usable import source_readable

KEYRING: Final = Keyring(redeem)
FILE_COLUMN: Final = "_file"  # Iceberg's own name for where a row lies
_COLUMNS: Final[dict[str, pa.DataType]] = {"task": pa.int64(), "sealed": pa.binary(), "refused": pa.string()}
ANSWERS: Final = pa.schema(_COLUMNS)


class Orders:
    """The function that Spark maps over the numbers of the tasks: all orders of a job, and no key."""

    def __init__(self, common: bytes, tasks: Sequence[bytes]) -> None:
        self._common = common
        self._tasks = tasks

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One answer for each number: sealed, or the code of the reason why the worker has no keys."""
        for batch in batches:
            numbers: list[int] = batch.to_pydict()["id"]
            for number in numbers:
                sealed, refused = answered(self._common, self._tasks[number])
                yield pa.RecordBatch.from_pylist(
                    [{"task": number, "sealed": sealed, "refused": refused}], schema=ANSWERS
                )


class Extract:
    """The function that Spark maps over the rows that its own reader gives: all of a partition into one digest."""

    def __init__(self, common: bytes, rows: bytes) -> None:
        self._common = common
        self._rows = rows

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One answer for the partition."""

        def extracted(ground: Ground, keys: Keys) -> Report:
            return _extracted(ground, Rows.from_bytes(self._rows), keys, batches)

        sealed, refused = _sealed(self._common, self._rows, extracted)
        yield pa.RecordBatch.from_pylist([{"task": 0, "sealed": sealed, "refused": refused}], schema=ANSWERS)


def answered(common: bytes, task: bytes) -> tuple[bytes | None, str | None]:
    """The sealed report of a task."""

    def read(ground: Ground, keys: Keys) -> Report:
        shared = Common.from_bytes(common)
        store = None if shared.store is None else JobSeal(keys, shared.door.job_id).open_store(shared.store)
        files = Files(Stores(None if store is None else settings_of(store)))
        return reported(ground, Task.from_bytes(task), keys, files)

    return _sealed(common, task, read)


def _sealed(common: bytes, orders: bytes, work: Callable[[Ground, Keys], Report]) -> tuple[bytes | None, str | None]:
    """What became of the orders, under the job's seal; what cannot be sealed says no more than a code."""
    shared = Common.from_bytes(common)
    try:
        keys = KEYRING.keys(shared.door)
    except PvdmError as error:
        return None, error.got if error.code == Code.WORKER_REFUSED else error.reason
    try:
        ground = shared.ground()
        report = work(ground, keys).to_bytes(ground.metadata)
        return JobSeal(keys, shared.door.job_id).close(report, bound_to(common, orders)), None
    finally:
        KEYRING.rest()


def _extracted(ground: Ground, rows: Rows, keys: Keys, batches: Iterable[pa.RecordBatch]) -> Report:
    """Rows that Spark read, digested; there is nothing to say of their files."""
    digester = Digester(ground.plan, keys, engine=kernel_engine())
    try:
        if rows.staged:
            for batch in batches:
                digester.update(batch)
            return Report((), digester.partials(), None)
        with source_readable():
            intent = Intent(ground.bound, ground.source, ground.chunk, ground.plan)
            for batch in batches:
                digester.update(intent.of_batch(_of_files(batch, rows.files)))
        return Report((), None, digester.partials())
    except PvdmError as error:
        return Report((), None, None, error)


def _of_files(batch: pa.RecordBatch, files: tuple[str, ...] | None) -> pa.RecordBatch:
    if files is None:
        return batch
    chosen = pc.is_in(batch.column(FILE_COLUMN), pa.array(files, pa.string()))
    return batch.drop_columns([FILE_COLUMN]).filter(chosen)


def reported(ground: Ground, task: Task, keys: Keys, files: Files) -> Report:
    """Both sides of a task; an error that is nobody's verdict ends it, and is told as it is."""
    try:
        read, staged = _staged(ground, task.staged, keys, files)
        return Report(read, staged, _intent(ground, task.source, keys, files))
    except PvdmError as error:
        return Report((), None, None, error)


def _staged(
    ground: Ground, orders: Sequence[StagedOrder], keys: Keys, files: Files
) -> tuple[tuple[FileReport, ...], Partials | None]:
    read: list[FileReport] = []
    sums: list[Partials] = []
    for order in orders:
        try:
            fetched = files.fetch_frozen(order.frozen)
        except VerificationError as error:
            read.append(
                FileReport(order.position, Finding.of(FailureClass.PHYSICAL, error, order.path), digested=False)
            )
            continue
        observed, partials = judged(ground, order, fetched, keys)
        read.append(FileReport(order.position, observed, partials is not None))
        sums += [] if partials is None else [partials]
    return tuple(read), summed(sums)


def _intent(ground: Ground, orders: Sequence[SourceOrder], keys: Keys, files: Files) -> Partials | None:
    if not orders:
        return None
    digester = Digester(ground.plan, keys, engine=kernel_engine())
    with source_readable():
        intent = Intent(ground.bound, ground.source, ground.chunk, ground.plan)
        for order in orders:
            for batch in intent.rows(order.file, _Frozen(order, files)):
                digester.update(batch)
    return digester.partials()


class _Frozen:
    """Fetches what belongs to one file of the source, as it was frozen."""

    def __init__(self, order: SourceOrder, files: Files) -> None:
        self._frozen = {each.location: each for each in order.frozen}
        self._files = files

    def __call__(self, location: str) -> bytes:
        found = self._frozen.get(location)
        if found is None:
            raise not_frozen(location)
        return self._files.fetch_frozen(found).data


def summed(sums: Sequence[Partials]) -> Partials | None:
    """The digest of all rows that these saw; there may be none."""
    return combine_each(sums) if sums else None
