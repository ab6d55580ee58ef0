"""Parts of verification on Spark that need no Spark: task groups, encrypted reports, keys, messages, the archive."""

from __future__ import annotations

import os
import pickle
import subprocess
import tarfile
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pvdm.digest import Construction, Digester, Keys, Mode, Partial, Plan, combine_each
from pvdm.errors import InputError, UnavailableError
from pvdm.lake.spark import cause_of
from pvdm.lake.stores.roles import VendingSettings
from pvdm.lake.stores.s3_client import S3Settings
from pvdm.model.projection import ProjectionName, content, identity
from pvdm.model.schema import Field, Kind, PrimitiveType, Schema
from pvdm.model.secret import DigestKey
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.findings import Finding
from pvdm.verify.readers import combine_all
from pvdm.verify.spark.access import StoreAccess
from pvdm.verify.spark.application import Application, RunningDriver
from pvdm.verify.spark.driver import receive, send
from pvdm.verify.spark.reader import group_by_size
from pvdm.verify.spark.report import FileReport, JobCipher, Report, hash_task
from pvdm.verify.spark.settings import (
    TASKS_A_CORE_MAX,
    SparkSettings,
    build_archive,
    credential_file,
    driver_environment,
    lend_credential,
    spark_conf,
)
from pvdm.verify.spark.task import KeyEndpoint
from pvdm.verify.spark.worker import Keyring, new_worker_name
from tests.support.for_each import for_each

SCHEMA = Schema((Field("id", PrimitiveType(Kind.LONG), field_id=1),))
PLAN = Plan(SCHEMA, (identity(SCHEMA, ("id",)), content(SCHEMA)))
KEYS: Keys = {name: DigestKey(bytes([at + 1]) * 32, epoch=1) for at, name in enumerate(ProjectionName)}
OTHER_KEYS: Keys = {name: DigestKey(bytes([at + 9]) * 32, epoch=1) for at, name in enumerate(ProjectionName)}
ERROR = UnavailableError("source_unreadable", "gone", expected="a file", got="none", hint="bring it", file="f")


def endpoint(job_id: str = "job") -> KeyEndpoint:
    return KeyEndpoint("http://127.0.0.1:1", job_id, "00" * 16, "/nowhere", None)


@given(st.lists(st.integers(0, 10**9), max_size=200), st.integers(1, 16))
def test_every_file_is_in_one_task_of_at_most_four_per_core_and_loads_are_even(sizes: list[int], cores: int) -> None:
    groups = group_by_size([(size, at) for at, size in enumerate(sizes)], cores)
    assert sorted(at for group in groups for at in group) == list(range(len(sizes)))
    assert len(groups) == min(len(sizes), TASKS_A_CORE_MAX * cores)
    assert [] not in groups
    loads = [sum(sizes[at] + 1 for at in group) for group in groups]
    assert not loads or max(loads) - min(loads) <= max(sizes) + 1


def test_grouping_the_same_files_twice_gives_the_same_groups() -> None:
    files = [(at * 7919 % 100, at) for at in range(50)]
    assert group_by_size(files, 2) == group_by_size(files, 2)


@pytest.mark.usefixtures("kernel")
@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), max_size=12), st.integers(1, 3))
def test_digests_combined_by_task_and_over_tasks_are_the_digest_of_all_rows(files: list[list[int]], cores: int) -> None:
    def partials_of(rows: list[int]) -> dict[ProjectionName, Partial]:
        digester = Digester(PLAN, KEYS)
        digester.update(pa.table({"id": pa.array(rows, pa.int64())}))
        return digester.partials()

    tasks = group_by_size([(len(rows), partials_of(rows)) for rows in files], cores)
    found = combine_all(PLAN, KEYS, [combine_each(task) for task in tasks if task])
    flat = partials_of([row for rows in files for row in rows])
    assert all(found[name].matches(flat[name]) for name in ProjectionName)


def test_a_report_is_decrypted_only_with_the_keys_of_its_job_for_its_task_and_unchanged() -> None:
    report_task_hash = hash_task(b"common", b"task")
    sealed = JobCipher(KEYS, "job").encrypt(b"report", report_task_hash)
    assert JobCipher(KEYS, "job").decrypt(sealed, report_task_hash) == b"report"
    assert b"report" not in sealed
    flipped = [sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :] for at in range(len(sealed))]
    for seal, data, task_hash in (
        *((JobCipher(KEYS, "job"), each, report_task_hash) for each in (*flipped, b"", b"short", sealed[:-1])),
        (JobCipher(KEYS, "job"), sealed, hash_task(b"common", b"another task")),
        (JobCipher(KEYS, "job"), sealed, hash_task(b"commont", b"ask")),
        (JobCipher(KEYS, "another job"), sealed, report_task_hash),
        (JobCipher(OTHER_KEYS, "job"), sealed, report_task_hash),
    ):
        with pytest.raises(UnavailableError) as caught:
            seal.decrypt(data, task_hash)
        assert caught.value.reason == "worker_report_forged"


def test_an_error_is_read_back_from_a_report_unchanged() -> None:
    found = Report.from_bytes(Report((), None, None, ERROR).to_bytes(None)).error  # type: ignore[arg-type]
    assert type(found) is UnavailableError
    assert (found.reason, str(found), found.hint, found.details) == (
        ERROR.reason,
        str(ERROR),
        ERROR.hint,
        {"file": "f"},
    )


def test_a_finding_and_digests_are_read_back_from_a_report_unchanged() -> None:
    finding = Finding(FailureClass.PHYSICAL, "file_changed", "changed", "a", "b", "file")
    sums = {
        name: Partial(1, Construction.HMAC_SHA256, Mode.STORED, name, bytes(32), bytes(16), 3, 5)
        for name in ProjectionName
    }
    report = Report((FileReport(7, finding, digested=False),), sums, None)
    found = Report.from_bytes(report.to_bytes(None))  # type: ignore[arg-type]
    assert found.files == report.files
    assert found.intent is None
    assert found.staged is not None
    assert all(found.staged[name].matches(sums[name]) for name in ProjectionName)


@for_each(
    "data",
    [
        pickle.dumps({"files": []}),
        b"{}",
        b'{"entries":null,"error":null,"files":[{}],"intent":null,"staged":null}',
        b'{"entries":null,"error":{"kind":"SystemExit"},"files":[],"intent":null,"staged":null}',
        b'{"entries":1,"error":null,"files":[],"intent":null,"staged":null}',
        b'{"entries":null,"error":null,"files":[],"intent":7,"staged":null}',
        b'{"entries":null,"error":null,"files":[],"intent":{"content":"zz"},"staged":null}',
        b'{"entries":"%","error":null,"files":[],"intent":null,"staged":null}',
    ],
)
def test_data_that_is_no_report_is_refused(data: bytes) -> None:
    with pytest.raises(InputError) as caught:
        Report.from_bytes(data)
    assert caught.value.reason in ("worker_report_malformed", "document_malformed")


class RecordingKeySource:
    """Gives keys to every worker, and records the jobs and names under which they were asked for."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []

    def __call__(self, endpoint: KeyEndpoint, worker: str) -> Keys:
        self.requests.append((endpoint.job_id, worker))
        return KEYS


def test_a_worker_redeems_keys_once_for_all_tasks_of_a_job() -> None:
    key_source = RecordingKeySource()
    ring = Keyring(key_source)
    for _ in range(3):
        assert ring.keys(endpoint()) is KEYS
        ring.start_idle_timer()
    ring.forget()
    assert len(key_source.requests) == 1


def test_keys_of_a_job_are_forgotten_when_a_task_of_another_job_starts() -> None:
    key_source = RecordingKeySource()
    ring = Keyring(key_source)
    for job_id in ("one", "two", "one"):
        ring.keys(endpoint(job_id))
    assert [job_id for job_id, _ in key_source.requests] == ["one", "two", "one"]
    assert len({worker for _, worker in key_source.requests}) == 3, "each time under a name of its own"


def test_keys_are_forgotten_when_no_task_starts_in_the_idle_time() -> None:
    forgotten = threading.Event()

    class SignallingKeyring(Keyring):
        def forget(self) -> None:
            super().forget()
            forgotten.set()

    ring = SignallingKeyring(RecordingKeySource(), idle_seconds=0.05)
    ring.keys(endpoint())
    ring.start_idle_timer()
    assert forgotten.wait(10)
    assert ring._keys is None


def test_keys_are_kept_while_a_task_runs() -> None:
    ring = Keyring(RecordingKeySource(), idle_seconds=0.3)
    ring.keys(endpoint())
    ring.start_idle_timer()
    ring.keys(endpoint())
    time.sleep(0.5)
    assert ring._keys is not None, "the task may take as long as it takes"
    ring.forget()


class SleepingApplication(Application):
    """An application whose driver only sleeps."""

    def _start(self) -> RunningDriver:
        process = subprocess.Popen(
            ["sleep", "60"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        return RunningDriver(process, process.stdin, process.stdout, 2, "application", "4.1")


def test_the_driver_of_a_job_that_begins_as_the_idle_time_ends_is_not_killed(tmp_path: Path) -> None:
    application = SleepingApplication(SparkSettings("local[2]", tmp_path))
    assert application.cores() == 2
    timer = application._idle
    assert timer is not None
    timer.cancel()
    with application._driver() as started:
        fired = threading.Thread(target=timer.function)
        fired.start()
        fired.join(0.3)
        assert started.process.poll() is None, "the job's driver"
    fired.join(10)
    assert not fired.is_alive()
    assert application.started is started
    assert started.process.poll() is None, "the driver's own idle time has begun again"
    application.close()
    assert started.process.poll() is not None


def test_an_idle_driver_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pvdm.verify.spark.application._STOP_SECONDS", 0.1)
    application = SleepingApplication(SparkSettings("local[2]", tmp_path, idle_seconds=0))
    with application._driver() as started:
        pass
    assert started.process.wait(10) is not None
    application.close()
    assert application.started is None


def test_names_of_workers_are_all_different_and_at_most_128_characters_long() -> None:
    names = {new_worker_name() for _ in range(100)}
    assert len(names) == 100
    assert all(f":{os.getpid()}:" in name for name in names)
    assert max(map(len, names)) <= 128


def test_a_driver_that_does_not_answer_in_time_or_has_ended_is_unavailable() -> None:
    ends = zip(os.pipe(), ("rb", "wb"), strict=True)
    read_end, write_end = (os.fdopen(end, mode, buffering=0) for end, mode in ends)
    with read_end:
        with write_end:
            send(write_end, {"job": "one"}, [b"a", b""])
            assert receive(read_end, 5) == ({"job": "one", "parts": 2}, [b"a", b""])
            with pytest.raises(UnavailableError) as on_silence:
                receive(read_end, 0.01)
        with pytest.raises(UnavailableError) as on_end:
            receive(read_end, 5)
    assert (on_silence.value.reason, on_silence.value.got) == ("spark_driver_gone", "no answer in time")
    assert (on_end.value.reason, on_end.value.got) == ("spark_driver_gone", "the end of its output")


@pytest.mark.usefixtures("kernel")
def test_the_archive_holds_both_packages_and_the_native_library(tmp_path: Path) -> None:
    with tarfile.open(build_archive(tmp_path)) as archive:
        names = archive.getnames()
    assert "pvdm/verify/spark/worker.py" in names
    assert any(name.startswith("pvdm_kernel/") and name.endswith(".so") for name in names)
    assert not any("__pycache__" in name for name in names)


# Stores

CONFIG = {"s3.access-key-id": "AKIA1", "s3.secret-access-key": "hush" * 8, "s3.session-token": "token" * 8}
VENDING = VendingSettings("arn:aws:iam::123456789012:role/producers", "arn:aws:iam::123456789012:role/consumers")
JAVA_ERROR = """An error occurred while calling o240.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
Caused by: java.lang.RuntimeException: cannot open
\t... 21 more
Caused by: org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s3"
\tat org.apache.hadoop.fs.FileSystem.getFileSystemClass(FileSystem.java:1)
\t... 30 more
"""


@for_each(
    ("message", "cause"),
    [
        (JAVA_ERROR, 'UnsupportedFileSystemException: No FileSystem for scheme "s3"'),
        (
            JAVA_ERROR.partition("Caused by")[0],
            "SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed",
        ),
        ("[CONNECT_URL] it is wrong\nmore", "[CONNECT_URL] it is wrong"),
        ("", "ValueError"),
    ],
    ids=["with causes", "without", "of Python", "nothing"],
)
def test_the_deepest_cause_is_taken_from_an_error_message_of_java(message: str, cause: str) -> None:
    assert cause_of(ValueError(message)) == cause


def test_a_credential_is_in_a_file_that_only_its_owner_can_read_while_a_job_runs_and_no_longer(tmp_path: Path) -> None:
    path = credential_file(tmp_path)
    with lend_credential(tmp_path, CONFIG):
        assert path.stat().st_mode & 0o777 == 0o600
        assert all(value in path.read_text() for value in CONFIG.values())
    assert not path.exists()
    path.write_text("of one that was killed")  # a Steward that is killed cannot remove it
    with lend_credential(tmp_path, None):
        assert not path.exists()


def test_settings_and_environment_of_spark_name_the_credentials_file_and_no_credential(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    settings = SparkSettings("local[2]", tmp_path)
    store = StoreAccess(S3Settings("eu-central-1", "http://127.0.0.1:1"), VENDING).config
    assert store is not None
    conf, environment = spark_conf(settings, store, None), driver_environment(settings, store)
    assert conf["spark.sql.catalog.pvdm_extraction.s3.endpoint"] == "http://127.0.0.1:1"
    assert environment["AWS_SHARED_CREDENTIALS_FILE"] == str(credential_file(tmp_path))
    assert not any("hush" in value for value in (*conf.values(), *environment.values()))
    without_store = driver_environment(settings, None), spark_conf(settings, None, None)
    assert not any("AWS" in name for each in without_store for name in each)


@for_each(
    ("locations", "vending", "expected"),
    [
        (["file:///a/b"], None, True),
        (["s3://lake/a/b"], None, False),
        (["s3://lake/a/b", "file:///a/b"], VENDING, True),
        (["s3://lake/b"], VENDING, False),
        (["gs://lake/a/b"], VENDING, False),
        ([f"s3://lake/{at}/b" for at in range(200)], VENDING, False),
        ([f"s3://lake/a/{at}/b" for at in range(200)], VENDING, True),
    ],
    ids=["local", "none to vend", "vended", "a whole bucket", "another store", "too many folders", "one folder"],
)
def test_objects_are_reached_only_where_a_session_can_be_limited_to_them(
    locations: list[str], vending: VendingSettings | None, expected: bool
) -> None:
    assert StoreAccess(S3Settings("eu-central-1"), vending).reaches(locations) is expected


def test_the_credential_of_a_store_is_decrypted_only_with_the_keys_of_its_job() -> None:
    sealed = JobCipher(KEYS, "job").encrypt_store(CONFIG)
    assert JobCipher(KEYS, "job").decrypt_store(sealed) == CONFIG
    assert b"hush" not in sealed
    for other in (JobCipher(OTHER_KEYS, "job"), JobCipher(KEYS, "another")):
        with pytest.raises(UnavailableError):
            other.decrypt_store(sealed)
    with pytest.raises(UnavailableError):
        JobCipher(KEYS, "job").decrypt(sealed, hash_task(b"", b""))
