"""The reader of large chunks: groups files into tasks, runs them on Spark, and adds up their sealed reports."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pvdm.digest import Keys, combine_each
from pvdm.digest.sharing import mapped
from pvdm.errors import Code, VerificationError
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.fetch import Files
from pvdm.verify.findings import Finding
from pvdm.verify.readers import (
    JobInputs,
    JobKeys,
    Outcome,
    ReadFile,
    SourceOrder,
    StagedOrder,
    Work,
    added_file,
    combine_all,
    observe_staged,
)
from pvdm.verify.spark.access import StoreAccess
from pvdm.verify.spark.application import Application
from pvdm.verify.spark.report import FileReport, JobSeal, Report, bound_to
from pvdm.verify.spark.settings import TASK_TRIES_MAX, TASKS_A_CORE_MAX, SparkSettings
from pvdm.verify.spark.task import Common, KeyDoor, Task

DoorOf = Callable[[str, str], KeyDoor]
_Each = TypeVar("_Each")


@dataclass(frozen=True, slots=True)
class SparkReader:
    """Reads with the Steward's Spark application.

    `door_of` gives, by job id and handle, the door at which workers get keys. `threads` copy files in. `access` is how
    workers read objects of a store.
    """

    settings: SparkSettings
    application: Application
    files: Files
    door_of: DoorOf
    access: StoreAccess
    threads: int = 2

    def takes(self, work: Work) -> bool:
        """Whether the chunk has enough bytes or files for Spark, and workers can read all of it."""
        size = sum(each.size for each in work.orders)
        large = size >= self.settings.bytes_least or len(work.orders) >= self.settings.files_least
        return large and self.access.reaches(*_locations(work))

    def redemptions(self, work: Work) -> int:
        """One for every try of every task, since a worker process takes at least one task."""
        return TASK_TRIES_MAX * len(_tasks(work, self.application.cores()))

    def read(self, work: Work, held: JobKeys) -> Outcome:
        """Read by workers, which write nothing: the Steward makes the files that it publishes by their recipes."""
        store = self.access.vended(held.job_id, *_locations(work))
        tasks = _tasks(work, self.application.cores())
        reports = self._reports(work.inputs, tasks, held, store)
        found = {each.position: each for report in reports for each in report.files}
        if found.keys() != {order.position for order in work.staged}:
            raise Code.WORKER_REPORT_MALFORMED(expected="one report for every file of the task", got="others")
        keys = held.keys
        read = tuple(
            mapped(self.threads, lambda order: self._read(work, order, found[order.position], keys), work.staged)
        )
        whole = all(isinstance(each, ReadFile) for each in read) and all(each.digested for each in found.values())
        intent = [report.intent for report in reports if report.intent is not None]
        return Outcome(
            read,
            combine_all(work.inputs.plan, keys, (report.staged for report in reports)) if whole else None,
            # The schema is checked even where a chunk has no files.
            combine_each([work.inputs.intent_digest(keys).partials(), *intent]),
        )

    def _read(self, work: Work, order: StagedOrder, report: FileReport, keys: Keys) -> ReadFile | Finding:
        """What a worker found in a file, and the file to publish, made of the bytes that the worker read."""
        seen = report.seen
        if isinstance(seen, Finding):
            return seen
        try:
            staged = None if work.keep is None or seen.data_file is None else self.files.fetch_frozen(order.frozen)
        except VerificationError as error:
            return Finding.of(FailureClass.PHYSICAL, error, order.path)
        if staged is None:
            return ReadFile(added_file(work, order, seen, bytes), seen)
        if seen.recipe is None:
            # The recipe was too long for the report.
            seen = replace(seen, recipe=observe_staged(work.inputs, order, staged, keys)[0].recipe)
        try:
            added = added_file(work, order, seen, lambda: staged.data)
        except VerificationError as error:
            if error.code != Code.RECIPE_INVALID:
                raise
            raise Code.WORKER_REPORT_MALFORMED(
                expected="a recipe that makes the file of its entry", got=error.got or "another"
            ) from None
        return ReadFile(added, seen)

    def _reports(
        self, inputs: JobInputs, tasks: Sequence[Task], held: JobKeys, store: Mapping[str, str] | None
    ) -> list[Report]:
        if not tasks:
            return []
        sealed_store = None if store is None else JobSeal(held.keys, held.job_id).close_store(store)
        common = Common.of(inputs, self.door_of(held.job_id, held.handle), sealed_store).to_bytes()
        orders = [task.to_bytes() for task in tasks]
        refused, sealed = self.application.run(held.job_id, common, orders)
        if not len(refused) == len(sealed) == len(orders):
            raise Code.WORKER_REPORT_MALFORMED(expected="one report for every task", got="others")
        return opened(refused, sealed, [bound_to(common, order) for order in orders], held)


def opened(
    refused: Sequence[str | None], sealed: Sequence[bytes], about: Sequence[bytes], held: JobKeys
) -> list[Report]:
    """Open the reports; each must be about its orders, and the first that has an error raises it."""
    seal = JobSeal(held.keys, held.job_id)
    reports = []
    for why, data, bound in zip(refused, sealed, about, strict=True):
        if why is not None:
            raise Code.SPARK_EXTRACTION_FAILED(reason="spark_worker_refused", got=why[:120])
        report = Report.from_bytes(seal.open(data, bound))
        if report.error is not None:
            raise report.error
        reports.append(report)
    return reports


def _locations(work: Work) -> tuple[list[str], list[str]]:
    """The locations of all files that are fetched, by side."""
    source = [seen.location for each in work.source for seen in each.frozen]
    return [each.frozen.location for each in work.staged], source


def _tasks(work: Work, cores: int) -> list[Task]:
    """The files of both sides in at most four tasks a core."""
    return [
        Task(
            tuple(each for each in group if isinstance(each, StagedOrder)),
            tuple(each for each in group if isinstance(each, SourceOrder)),
        )
        for group in grouped([(each.size, each) for each in work.orders], cores)
    ]


def grouped(given: Sequence[tuple[int, _Each]], cores: int) -> list[list[_Each]]:
    """Things with their sizes in at most four groups a core: the largest first, each to the smallest group.

    There are few groups, since a Python task costs as much as a file of some megabytes. An empty file still costs its
    opening. The result depends on the input only, and no group is empty.
    """
    count = min(len(given), TASKS_A_CORE_MAX * max(1, cores))
    groups: list[list[_Each]] = [[] for _ in range(count)]
    loads = [(0, at) for at in range(count)]
    for size, each in sorted(given, key=lambda pair: -pair[0]):
        load, at = heapq.heappop(loads)
        groups[at].append(each)
        heapq.heappush(loads, (load + size + 1, at))
    return groups
