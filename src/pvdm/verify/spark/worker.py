"""The work of a worker process: it exchanges the job's handle for keys, digests the files of a task, and reports.

It imports neither `trust` nor `ledger`: a process that decodes staged files has one attempt's keys, never root keys.
"""

from __future__ import annotations

import os
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import httpx
import pyarrow as pa

from pvdm.client.token import read_token
from pvdm.digest import Digester, Keys, combine_each, kernel_engine
from pvdm.errors import Code, PvdmError, VerificationError
from pvdm.lake.read.resolve import pc
from pvdm.lake.stores.s3_client import settings_from_config
from pvdm.lake.stores.stores import Stores
from pvdm.model.projection import ProjectionName
from pvdm.model.secret import DigestKey
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.fetch import Files, source_fetcher
from pvdm.verify.findings import Finding, Partials
from pvdm.verify.readers import JobInputs, SourceItem, StagedItem, observe_staged
from pvdm.verify.source import translate_read_errors
from pvdm.verify.spark.report import FileReport, JobCipher, Report, hash_task
from pvdm.verify.spark.task import FILE_COLUMN, Common, KeyEndpoint, RowSelection, Task

# The path of the key endpoint, where workers get a job's keys from the Steward.
REDEEM_PATH: Final = "/v1/keys/redeem"
REDEEM_TRIES_MAX: Final = 4
REDEEM_TIMEOUT_SECONDS: Final = 30
KEYS_IDLE_SECONDS: Final = 30
_COLUMNS: Final[dict[str, pa.DataType]] = {"task": pa.int64(), "encrypted": pa.binary(), "refused": pa.string()}
ANSWER_SCHEMA: Final = pa.schema(_COLUMNS)


class Keyring:
    """The keys of the job that this process works for; one job at a time.

    Spark keeps worker processes for later tasks, and does not report the end of a job. So the keys are dropped when a
    task of another job starts, or some time after the last task. A later task redeems again, under a new name.
    """

    def __init__(self, redeem: Callable[[KeyEndpoint, str], Keys], idle_seconds: float = KEYS_IDLE_SECONDS) -> None:
        self._redeem = redeem
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._process = 0
        self._job_id: str | None = None
        self._keys: Keys | None = None
        self._timer: threading.Timer | None = None

    def keys(self, endpoint: KeyEndpoint) -> Keys:
        """The job's keys, from memory or from the Steward."""
        with self._lock:
            self._stop_timer()
            # A forked process has a copy of its parent's keys, but must redeem under its own name.
            if self._keys is None or self._job_id != endpoint.job_id or self._process != os.getpid():
                self._keys = self._job_id = None  # no old keys may stay if `_redeem` raises
                self._keys = self._redeem(endpoint, new_worker_name())
                self._job_id, self._process = endpoint.job_id, os.getpid()
            return self._keys

    def start_idle_timer(self) -> None:
        """Drop the keys after the idle time, unless another task starts before."""
        with self._lock:
            self._stop_timer()
            self._timer = threading.Timer(self._idle_seconds, self.forget)
            self._timer.daemon = True
            self._timer.start()

    def forget(self) -> None:
        """Drop the keys."""
        with self._lock:
            self._keys = self._job_id = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def new_worker_name() -> str:
    """A name under which this process redeems keys once."""
    host = "".join(each if each.isalnum() or each in ".-" else "-" for each in socket.gethostname())[:60]
    return f"{host}:{os.getpid()}:{secrets.token_hex(8)}"


def redeem(endpoint: KeyEndpoint, worker: str) -> Keys:
    """Get the job's keys from the Steward with the worker's own token; retries if it is busy or unreachable."""
    request = {"job_id": endpoint.job_id, "handle": endpoint.handle, "worker": worker}
    verify: ssl.SSLContext | bool = True
    if endpoint.authorities is not None:
        verify = ssl.create_default_context(cafile=endpoint.authorities)
    for number in range(1, REDEEM_TRIES_MAX + 1):
        try:
            with httpx.Client(verify=verify, timeout=REDEEM_TIMEOUT_SECONDS, trust_env=False) as http:
                headers = {"authorization": f"Bearer {read_token(Path(endpoint.token_file)).text}"}
                answer = http.post(f"{endpoint.address}{REDEEM_PATH}", json=request, headers=headers)
        except httpx.HTTPError as error:
            if number == REDEEM_TRIES_MAX:
                got = type(error).__name__
                raise Code.SPARK_EXTRACTION_FAILED(reason="key_endpoint_unreachable", got=got) from None
        else:
            if answer.status_code == httpx.codes.OK:
                return _parse_keys(answer.json())
            if answer.status_code not in (429, 503) or number == REDEEM_TRIES_MAX:
                raise _refusal_error(answer)
        time.sleep(number)  # seconds, one more after each try
    raise AssertionError("unreachable: the last try returns or raises")


def _parse_keys(answer: dict[str, object]) -> Keys:
    epoch, keys = answer["epoch"], answer["keys"]
    if not isinstance(keys, dict):
        raise Code.SPARK_EXTRACTION_FAILED(reason="key_endpoint_unreachable", got="a response without keys")
    return {ProjectionName(name): DigestKey(bytes.fromhex(text), epoch=int(str(epoch))) for name, text in keys.items()}


def _refusal_error(answer: httpx.Response) -> PvdmError:
    try:
        reason = str(answer.json()["error"]["reason"])
    except (ValueError, KeyError, TypeError):
        reason = f"status {answer.status_code}"
    return Code.WORKER_REFUSED(got=reason[:80])


KEYRING: Final = Keyring(redeem)


def run_tasks(common: bytes, tasks: Sequence[bytes], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the tasks numbered in the column `id`. Each answer has an encrypted report, or why the worker got no keys."""
    for batch in batches:
        numbers: list[int] = batch.to_pydict()["id"]
        for number in numbers:
            yield _make_answer(number, *run_task(common, tasks[number]))


def run_extraction(common: bytes, selection: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Digest all rows of a partition that Spark's own reader reads, in one answer. `selection` is a `RowSelection`."""

    def extract(shared: Common, keys: Keys) -> Report:
        return _extract(shared.inputs, RowSelection.from_bytes(selection), keys, batches)

    yield _make_answer(0, *_run_work(common, selection, extract))  # the driver does not read the number


def _make_answer(task: int, encrypted: bytes | None, refused: str | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"task": task, "encrypted": encrypted, "refused": refused}], ANSWER_SCHEMA)


def run_task(common: bytes, task: bytes) -> tuple[bytes | None, str | None]:
    """The encrypted report of a task and None; or None and the reason why the worker got no keys."""

    def read(shared: Common, keys: Keys) -> Report:
        store = None if shared.store is None else JobCipher(keys, shared.endpoint.job_id).decrypt_store(shared.store)
        files = Files(Stores(None if store is None else settings_from_config(store)))
        return read_task(shared.inputs, Task.from_bytes(task), keys, files)

    return _run_work(common, task, read)


def _run_work(common: bytes, task: bytes, work: Callable[[Common, Keys], Report]) -> tuple[bytes | None, str | None]:
    """Get the keys, do the work, and encrypt the report. Returns the same as `run_task`."""
    shared = Common.from_bytes(common)
    try:
        keys = KEYRING.keys(shared.endpoint)
    except PvdmError as error:
        # A refusal has the Steward's reason in `got`.
        return None, (error.got if error.code == Code.WORKER_REFUSED else error.reason)
    try:
        try:
            report = work(shared, keys)
        except PvdmError as error:
            report = Report((), None, None, error)  # the Steward raises the error, so there is no verdict
        data = report.to_bytes(shared.inputs.metadata)
        return JobCipher(keys, shared.endpoint.job_id).encrypt(data, hash_task(common, task)), None
    finally:
        KEYRING.start_idle_timer()


def _extract(inputs: JobInputs, selection: RowSelection, keys: Keys, batches: Iterable[pa.RecordBatch]) -> Report:
    """Digest rows that Spark read. The report has digests only: `selection` says of which side."""
    digester = Digester(inputs.plan, keys, engine=kernel_engine())
    if selection.staged:
        for batch in batches:
            digester.update(batch)
        return Report((), digester.partials(), None)
    with translate_read_errors():
        intent = inputs.intent()
        for batch in batches:
            if selection.files is None:
                digester.update(intent.map_batch(batch))
            else:  # the chunk is a list of source files, and rows carry the name of their file
                is_of_chunk = pc.is_in(batch.column(FILE_COLUMN), pa.array(selection.files, pa.string()))
                digester.update(intent.map_batch(batch.drop_columns([FILE_COLUMN]).filter(is_of_chunk)))
    return Report((), None, digester.partials())


def read_task(inputs: JobInputs, task: Task, keys: Keys, files: Files) -> Report:
    """The report of a task, with its files of both sides: staged and source."""
    read, staged = _read_staged(inputs, task.staged, keys, files)
    return Report(read, staged, _read_source(inputs, task.source, keys, files))


def _read_staged(
    inputs: JobInputs, items: Sequence[StagedItem], keys: Keys, files: Files
) -> tuple[tuple[FileReport, ...], Partials | None]:
    read: list[FileReport] = []
    sums: list[Partials] = []
    for item in items:
        try:
            fetched = files.fetch_frozen(item.frozen)
        except VerificationError as error:
            finding = Finding.of(FailureClass.PHYSICAL, error, item.path)
            read.append(FileReport(item.position, finding, digested=False))
            continue
        observed, partials = observe_staged(inputs, item, fetched, keys)
        read.append(FileReport(item.position, observed, partials is not None))
        if partials is not None:
            sums.append(partials)
    return tuple(read), combine_each(sums) if sums else None


def _read_source(inputs: JobInputs, items: Sequence[SourceItem], keys: Keys, files: Files) -> Partials | None:
    if not items:
        return None
    digest = inputs.intent_digest(keys)
    add_file = digest.file_adder(source_fetcher(files, (each for item in items for each in item.frozen_files)))
    with translate_read_errors():
        for item in items:
            add_file(item.file)
    return digest.partials()
