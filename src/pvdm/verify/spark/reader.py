"""The reader of large chunks: files grouped into few tasks, run by Spark, their sealed reports opened and added up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pvdm.digest import Digester, Keys, kernel_engine
from pvdm.digest.sharing import mapped
from pvdm.errors import Code, InputError, UnavailableError, VerificationError
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.compare import Partials
from pvdm.verify.fetch import Files
from pvdm.verify.file_orders import (
    Ground,
    Held,
    Outcome,
    ReadFile,
    SourceOrder,
    StagedOrder,
    Work,
    added_file,
    together,
)
from pvdm.verify.findings import Finding
from pvdm.verify.intent import Intent
from pvdm.verify.spark.access import StoreAccess
from pvdm.verify.spark.application import Application
from pvdm.verify.spark.groups import grouped
from pvdm.verify.spark.report import FileReport, Report
from pvdm.verify.spark.seal import JobSeal, bound_to
from pvdm.verify.spark.settings import TASK_TRIES_MAX, SparkSettings
from pvdm.verify.spark.task import Common, KeyDoor, Task
from pvdm.verify.threads import judged
from pvdm.verify.usable import source_readable

DoorOf = Callable[[str, str], KeyDoor]


@dataclass(frozen=True, slots=True)
class SparkReader:
    """`door_of` tells workers of a job where its keys are, by job id and handle; `threads` copy files in.

    `access` is how workers read objects of a store.
    """

    settings: SparkSettings
    application: Application
    files: Files
    door_of: DoorOf
    access: StoreAccess
    threads: int = 2

    def takes(self, work: Work) -> bool:
        """Whether the chunk has as many bytes or files as the Steward was told to leave to Spark, and all can be read
        there; what workers cannot reach, threads read."""
        large = work.size >= self.settings.bytes_least or work.files >= self.settings.files_least
        return large and self.access.reaches(*_sides(work.staged, work.source))

    def redemptions(self, work: Work) -> int:
        """Once for every try of every task: a worker process takes at least one."""
        return TASK_TRIES_MAX * len(_tasks(work.staged, work.source, self.application.cores()))

    def read(self, work: Work, held: Held) -> Outcome:
        """Workers read and write nothing; where the Steward publishes its own files, it makes them by their recipes."""
        store = self.access.vended(held.job_id, *_sides(work.staged, work.source))
        tasks = _tasks(work.staged, work.source, self.application.cores())
        reports = self._reports(work.ground, tasks, held, store)
        found = {each.position: each for report in reports for each in report.files}
        if found.keys() != {order.position for order in work.staged}:
            raise _incomplete()
        plan, keys = work.ground.plan, held.keys
        read = tuple(
            mapped(self.threads, lambda order: self._read(work, order, found[order.position], keys), work.staged)
        )
        whole = all(isinstance(each, ReadFile) and each.digested for each in read)
        sums = [report.staged for report in reports if report.staged is not None]
        intent = [report.intent for report in reports if report.intent is not None]
        return Outcome(
            read,
            together(plan, keys, sums) if whole else None,
            together(plan, keys, [_no_rows(work.ground, keys), *intent]),
        )

    def _read(self, work: Work, order: StagedOrder, report: FileReport, keys: Keys) -> ReadFile | Finding:
        """What a worker saw in a file, and the file to publish, made of exactly the bytes that the worker read."""
        seen = report.seen
        if isinstance(seen, Finding):
            return seen
        try:
            staged = None if work.keep is None or seen.file is None else self.files.fetch_frozen(order.frozen)
        except VerificationError as error:
            return Finding.of(FailureClass.PHYSICAL, error, order.path)
        if staged is None:
            return ReadFile(added_file(work, order, seen, bytes), seen, report.digested)
        if seen.recipe is None:
            # Too long for a report.
            seen = replace(seen, recipe=judged(work.ground, order, staged, keys)[0].recipe)
        try:
            added = added_file(work, order, seen, lambda: staged.data)
        except VerificationError as error:
            if error.code != Code.RECIPE_INVALID:
                raise
            raise _malformed("a recipe that makes the file of its entry", error.got or "another") from None
        return ReadFile(added, seen, report.digested)

    def _reports(
        self, ground: Ground, tasks: Sequence[Task], held: Held, store: Mapping[str, str] | None
    ) -> list[Report]:
        if not tasks:
            return []
        sealed_store = None if store is None else JobSeal(held.keys, held.job_id).close_store(store)
        common = Common.of(ground, self.door_of(held.job_id, held.handle), sealed_store).to_bytes()
        orders = [task.to_bytes() for task in tasks]
        refused, sealed = self.application.run(held.job_id, common, orders)
        if not len(refused) == len(sealed) == len(orders):
            raise _incomplete()
        return opened(refused, sealed, [bound_to(common, order) for order in orders], held)


def opened(refused: Sequence[str | None], sealed: Sequence[bytes], about: Sequence[bytes], held: Held) -> list[Report]:
    """The reports, each about what it has to be about; the first that tells of an error raises it."""
    seal = JobSeal(held.keys, held.job_id)
    reports = []
    for why, data, bound in zip(refused, sealed, about, strict=True):
        if why is not None:
            raise _without_keys(why)
        report = Report.from_bytes(seal.open(data, bound))
        if report.error is not None:
            raise report.error
        reports.append(report)
    return reports


def _sides(staged: Sequence[StagedOrder], source: Sequence[SourceOrder]) -> tuple[list[str], list[str]]:
    """Where everything lies that is fetched."""
    return [each.frozen.location for each in staged], [seen.location for each in source for seen in each.frozen]


def _tasks(staged: Sequence[StagedOrder], source: Sequence[SourceOrder], cores: int) -> list[Task]:
    """Both sides together in at most four tasks a core."""
    sized: list[tuple[int, StagedOrder | SourceOrder]] = [(each.frozen.size, each) for each in staged]
    sized += [(each.size, each) for each in source]
    return [
        Task(
            tuple(each for each in group if isinstance(each, StagedOrder)),
            tuple(each for each in group if isinstance(each, SourceOrder)),
        )
        for group in grouped(sized, cores)
    ]


def _no_rows(ground: Ground, keys: Keys) -> Partials:
    """A chunk without files has a schema all the same, which is judged like any other."""
    digester = Digester(ground.plan, keys, engine=kernel_engine())
    with source_readable():
        digester.update(Intent(ground.bound, ground.source, ground.chunk, ground.plan).empty())
    return digester.partials()


def _incomplete() -> InputError:
    return _malformed("one report for every file of the task", "others")


def _malformed(expected: str, got: str) -> InputError:
    return InputError(Code.WORKER_REPORT_MALFORMED, "a worker's report cannot be read", expected=expected, got=got)


def _without_keys(why: str) -> UnavailableError:
    return UnavailableError(
        "spark_worker_refused",
        "a worker of the Steward's Spark application got no keys",
        expected="the job's keys",
        got=why[:120],
        hint="its token must lie in the file that [spark] names, on every worker's host, and be a worker's",
    )
