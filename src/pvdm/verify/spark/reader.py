"""The reader of large chunks: groups files into tasks, runs them on Spark, and adds up their encrypted reports."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pvdm.digest import Keys, combine_each
from pvdm.digest.sharing import map_in_threads
from pvdm.errors import Code, VerificationError
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.fetch import Files
from pvdm.verify.findings import Finding
from pvdm.verify.readers import (
    JobInputs,
    JobKeys,
    ReadFile,
    ReadResult,
    SourceItem,
    StagedItem,
    Work,
    combine_all,
    observe_staged,
    write_added_file,
)
from pvdm.verify.spark.access import StoreAccess
from pvdm.verify.spark.application import Application
from pvdm.verify.spark.report import FileReport, JobCipher, Report, hash_task
from pvdm.verify.spark.settings import TASK_TRIES_MAX, TASKS_A_CORE_MAX, SparkSettings
from pvdm.verify.spark.task import Common, KeyEndpoint, Task

EndpointOf = Callable[[str, str], KeyEndpoint]
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class SparkReader:
    """Reads with the Steward's Spark application.

    `endpoint_of` says, by job id and handle, where workers get the keys. `access` vends their access to objects.
    `threads` threads write the published files.
    """

    settings: SparkSettings
    application: Application
    files: Files
    endpoint_of: EndpointOf
    access: StoreAccess
    threads: int = 2

    def takes(self, work: Work) -> bool:
        """Whether the chunk has enough bytes or files for Spark, and workers can read all of it."""
        size = sum(each.size for each in work.items)
        is_large = size >= self.settings.bytes_least or len(work.items) >= self.settings.files_least
        return is_large and self.access.reaches(*_list_locations(work))

    def redemptions(self, work: Work) -> int:
        """One for every try of every task: each worker process redeems once, and runs at least one task."""
        return TASK_TRIES_MAX * len(_group_tasks(work, self.application.cores()))

    def read(self, work: Work, job_keys: JobKeys) -> ReadResult:
        """Let workers read the files. They write nothing: the Steward makes published files from their recipes."""
        store = self.access.vend(job_keys.job_id, *_list_locations(work))
        tasks = _group_tasks(work, self.application.cores())
        reports = self._run_tasks(work.inputs, tasks, job_keys, store)
        by_position = {each.position: each for report in reports for each in report.files}
        if by_position.keys() != {item.position for item in work.staged}:
            raise Code.WORKER_REPORT_MALFORMED(expected="a report for each staged file", got="reports for other files")
        keys = job_keys.keys

        def finish(item: StagedItem) -> ReadFile | Finding:
            return self._finish_file(work, item, by_position[item.position], keys)

        read = tuple(map_in_threads(self.threads, finish, work.staged))
        all_digested = all(each.digested for each in by_position.values())
        all_read = all_digested and all(isinstance(each, ReadFile) for each in read)
        intent = [report.intent for report in reports if report.intent is not None]
        return ReadResult(
            read,
            combine_all(work.inputs.plan, keys, (report.staged for report in reports)) if all_read else None,
            # The digests of no rows come first: making them checks the source's schema, even without any file.
            combine_each([work.inputs.intent_digest(keys).partials(), *intent]),
        )

    def _finish_file(self, work: Work, item: StagedItem, report: FileReport, keys: Keys) -> ReadFile | Finding:
        """The file as a worker observed it, with the file to publish, made of the bytes that the worker read."""
        seen = report.seen
        if isinstance(seen, Finding):
            return seen
        try:
            staged = None if work.store_copy is None or seen.data_file is None else self.files.fetch_frozen(item.frozen)
        except VerificationError as error:
            return Finding.of(FailureClass.PHYSICAL, error, item.path)
        if staged is None:
            return ReadFile(write_added_file(work, item, seen, lambda: b""), seen)  # no copy is made of it
        if seen.recipe is None:
            # The recipe was too long for the report.
            seen = replace(seen, recipe=observe_staged(work.inputs, item, staged, keys)[0].recipe)
        try:
            added = write_added_file(work, item, seen, lambda: staged.data)
        except VerificationError as error:
            if error.code != Code.RECIPE_INVALID:
                raise
            expected = "a recipe that makes the file of its entry"
            raise Code.WORKER_REPORT_MALFORMED(expected=expected, got=error.got or "another") from None
        return ReadFile(added, seen)

    def _run_tasks(
        self, inputs: JobInputs, tasks: Sequence[Task], job_keys: JobKeys, store: Mapping[str, str] | None
    ) -> list[Report]:
        if not tasks:
            return []
        encrypted_store = None if store is None else JobCipher(job_keys.keys, job_keys.job_id).encrypt_store(store)
        endpoint = self.endpoint_of(job_keys.job_id, job_keys.handle)
        common = Common.for_tasks(inputs, endpoint, encrypted_store).to_bytes()
        messages = [task.to_bytes() for task in tasks]
        refused, encrypted = self.application.run(job_keys.job_id, common, messages)
        if not len(refused) == len(encrypted) == len(messages):
            raise Code.WORKER_REPORT_MALFORMED(expected=f"{len(messages)} reports", got=f"{len(encrypted)} reports")
        return open_reports(refused, encrypted, [hash_task(common, message) for message in messages], job_keys)


def open_reports(
    refused: Sequence[str | None], encrypted: Sequence[bytes], task_hashes: Sequence[bytes], job_keys: JobKeys
) -> list[Report]:
    """Decrypt the reports, each of which must be bound to its task. Raises the first error that a report has."""
    cipher = JobCipher(job_keys.keys, job_keys.job_id)
    reports = []
    for refusal, data, task_hash in zip(refused, encrypted, task_hashes, strict=True):
        if refusal is not None:
            raise Code.SPARK_EXTRACTION_FAILED(reason="spark_worker_refused", got=refusal[:120])
        report = Report.from_bytes(cipher.decrypt(data, task_hash))
        if report.error is not None:
            raise report.error
        reports.append(report)
    return reports


def _list_locations(work: Work) -> tuple[list[str], list[str]]:
    """The locations of all staged files, and of all source files with their delete files."""
    source = [frozen.location for each in work.source for frozen in each.frozen_files]
    return [each.frozen.location for each in work.staged], source


def _group_tasks(work: Work, cores: int) -> list[Task]:
    """The files of both sides in at most `TASKS_A_CORE_MAX` tasks a core."""
    return [
        Task(
            tuple(each for each in group if isinstance(each, StagedItem)),
            tuple(each for each in group if isinstance(each, SourceItem)),
        )
        for group in group_by_size([(each.size, each) for each in work.items], cores)
    ]


def group_by_size(items: Sequence[tuple[int, _Item]], cores: int) -> list[list[_Item]]:
    """The items in at most `TASKS_A_CORE_MAX` groups a core: largest first, each into the smallest group.

    There are few groups, since a Python task costs as much as a file of some megabytes. Each item counts one byte more,
    since opening a file costs time too. The result depends on the input only, and no group is empty.
    """
    count = min(len(items), TASKS_A_CORE_MAX * max(1, cores))
    groups: list[list[_Item]] = [[] for _ in range(count)]
    loads = [(0, at) for at in range(count)]
    for size, each in sorted(items, key=lambda pair: -pair[0]):
        load, at = heapq.heappop(loads)
        groups[at].append(each)
        heapq.heappush(loads, (load + size + 1, at))
    return groups
