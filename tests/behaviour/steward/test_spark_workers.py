"""Workers of the Steward's Spark application, without a JVM: same verdicts, keys by handle, encrypted reports."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pvdm.errors import UnavailableError
from pvdm.lake.paths import parse_location
from pvdm.ledger.work.attempts import Attempt
from pvdm.model.role import Role
from pvdm.verify.observed import FileObservation
from pvdm.verify.readers import ThreadReader, observe_staged
from pvdm.verify.spark import report, worker
from tests.support import fault
from tests.support.gate.approvals import reason_of
from tests.support.spark.verification import InProcess, Lab, facts, lab_at
from tests.support.steward.http import refusal
from tests.support.steward.notary import attempt_token, context_of, core_of
from tests.support.steward.secret_search import traces
from tests.support.verify.attempts import RAW, ROWS, Bench, Row, with_changed_row

pytestmark = pytest.mark.usefixtures("kernel")
SOURCE = (ROWS[:40], ROWS[40:70], ROWS[70:])
PARTS = (ROWS[:25], ROWS[25:50], ROWS[50:])
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Shared by all tests: each has its own workload and job."""
    with lab_at(tmp_path_factory.mktemp("open"), source=SOURCE) as made:
        yield made


@pytest.fixture(scope="module")
def copied_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab_at(tmp_path_factory.mktemp("copied"), source=SOURCE, contracted={"storage": "copied"}) as made:
        yield made


def stage_parts(lab: Lab, *parts: Sequence[Row], **more: Any) -> tuple[Attempt, list[Path]]:
    return lab.bench.staged(*parts, workload_id=f"work-{next(_NUMBERS)}", **more)


def test_workers_find_what_threads_find(lab: Lab) -> None:
    attempt, _ = stage_parts(lab, *PARTS)
    application, tools = lab.without_jvm()
    threads, workers = lab.verify_both(attempt, tools)
    assert threads.core.verdict.passed
    assert facts(workers) == facts(threads)
    assert len(application.seen[0][1]) == 6, "three staged files and three of the source, each in its own task"


def test_a_changed_row_fails_with_the_same_error(lab: Lab) -> None:
    attempt, _ = stage_parts(lab, with_changed_row(ROWS, 17, amount=0.5))
    threads, workers = lab.verify_both(attempt, lab.without_jvm()[1])
    assert [each.value for each in workers.core.verdict.classes] == ["modified"]
    assert facts(workers) == facts(threads)


def test_a_file_that_lies_about_its_rows_fails_with_the_same_error(lab: Lab) -> None:
    attempt, _ = stage_parts(lab, *PARTS, change=lambda file: replace(file, record_count=file.record_count + 1))
    threads, workers = lab.verify_both(attempt, lab.without_jvm()[1])
    assert workers.findings
    assert facts(workers) == facts(threads)


@pytest.mark.parametrize("storage", ["lab", "copied_lab"])
def test_bytes_that_are_swapped_after_the_freeze_fail_with_the_same_error(
    request: pytest.FixtureRequest, storage: str
) -> None:
    lab: Lab = request.getfixturevalue(storage)
    attempt, paths = stage_parts(lab, *PARTS)
    good = paths[1].read_bytes()
    found = []

    def swap() -> None:
        paths[1].write_bytes(good[:-1] + b"\0")

    for tools in (lab.tools, lab.without_jvm()[1]):
        with fault.armed("verify.after_freeze", fault.Call(swap)):
            found.append(lab.verified(attempt, tools))
        paths[1].write_bytes(good)
    assert [each.code for each in found[1].findings] == ["file_changed"]
    assert facts(found[1]) == facts(found[0])


def test_the_steward_makes_copies_of_the_files_that_workers_read(copied_lab: Lab) -> None:
    attempt, _ = stage_parts(copied_lab, *PARTS)
    _, tools = copied_lab.without_jvm()
    found = copied_lab.verified(attempt, tools)
    assert found.core.verdict.passed
    assert {parse_location(each.published_path).local for each in found.core.files.added} == set(
        copied_lab.bench.copies(attempt)
    )


def test_workers_and_threads_publish_the_same_bytes(copied_lab: Lab) -> None:
    attempt, _ = stage_parts(copied_lab, *PARTS)
    _, tools = copied_lab.without_jvm()
    by_workers = copied_lab.verified(attempt, tools).core.files
    by_threads = copied_lab.verified(attempt, replace(tools, large=None)).core.files
    assert by_workers == by_threads


def test_a_file_that_was_changed_since_a_worker_read_it_is_not_published(copied_lab: Lab) -> None:
    attempt, paths = stage_parts(copied_lab, *PARTS)
    application, tools = copied_lab.without_jvm()
    before = application.run

    def change_afterwards(job_id: str, common: bytes, tasks: Any) -> Any:
        reports = before(job_id, common, tasks)
        paths[0].write_bytes(paths[0].read_bytes()[:-1] + b"\0")
        return reports

    application.run = change_afterwards  # type: ignore[method-assign]
    found = copied_lab.verified(attempt, tools)
    assert not found.core.verdict.passed
    assert [each.code for each in found.findings] == ["file_changed"]


def recipe_part(written: int, start: int, length: int) -> bytes:
    return struct.pack("<3Q", written, start, length)


@pytest.mark.parametrize(
    "change",
    [
        lambda recipe: recipe[:-1],
        lambda _: recipe_part(0, 2**40, 1),
        lambda _: b"",
        lambda recipe: recipe + recipe_part(0, 0, 1),
        lambda recipe: recipe + recipe_part(0, 4, 64) * 1000,
    ],
    ids=["cut", "beyond the file", "nothing", "more", "the same bytes again and again"],
)
def test_a_recipe_that_does_not_make_the_reported_file_gives_no_verdict(
    copied_lab: Lab, monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    """A recipe lists the byte ranges of a published copy. A wrong one is the worker's error, not a verdict."""
    change_observations(monkeypatch, lambda seen: replace(seen, recipe=change(seen.recipe)))
    attempt, _ = stage_parts(copied_lab, *PARTS)
    assert reason_of(lambda: copied_lab.verified(attempt, copied_lab.without_jvm()[1])) == "worker_report_malformed"
    assert copied_lab.bench.cores(attempt) == []


def test_recipes_that_a_report_cannot_hold_are_made_by_the_steward(
    copied_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The producer decides how many pages a file has, and so how long its recipe is. Copies are published anyway."""
    attempt, _ = stage_parts(copied_lab, *PARTS)
    _, tools = copied_lab.without_jvm()
    honest = copied_lab.verified(attempt, tools).core.files
    monkeypatch.setattr(report, "RECIPES_MAX_BYTES", 1)
    found = copied_lab.verified(attempt, tools).core
    assert found.verdict.passed
    assert found.files == honest
    assert all(each.published_path != each.staged_path for each in found.files.added)


def change_observations(monkeypatch: pytest.MonkeyPatch, change: Callable[[FileObservation], FileObservation]) -> None:
    whole = observe_staged

    def observe_and_change(*given: Any) -> Any:
        seen, sums = whole(*given)
        return change(seen), sums

    monkeypatch.setattr(worker, "observe_staged", observe_and_change)


def test_a_source_that_is_gone_after_the_freeze_gives_no_verdict(lab: Lab) -> None:
    attempt, _ = stage_parts(lab, *PARTS)
    place = parse_location(lab.bench.state("orders", RAW).metadata.location).local / "data" / "1.parquet"
    away = place.with_suffix(".away")

    def take_away() -> None:
        place.rename(away)

    with fault.armed("verify.after_freeze", fault.Call(take_away)):
        assert reason_of(lambda: lab.verified(attempt, lab.without_jvm()[1]), UnavailableError) == "source_unreadable"
    away.rename(place)


def test_an_attempt_without_files_gets_the_same_verdict(lab: Lab) -> None:
    attempt, _ = stage_parts(lab)
    threads, workers = lab.verify_both(attempt, lab.without_jvm()[1])
    assert [each.value for each in workers.core.verdict.classes] == ["missing"]
    assert facts(workers) == facts(threads)


def test_small_chunks_are_read_by_threads(lab: Lab) -> None:
    attempt, _ = stage_parts(lab, *PARTS)
    reader = replace(lab.desk.reader, settings=replace(lab.settings, bytes_least=2**40, files_least=7))
    tools = replace(lab.tools, large=reader)
    assert lab.verified(attempt, tools).core.verdict.passed, "six files, and no Spark was started"
    assert lab.desk.application.started is None
    assert isinstance(lab.tools.choose_reader(lab.work(attempt)), ThreadReader), "without [spark] nothing is too large"
    for settings in (replace(lab.settings, bytes_least=2**40, files_least=6), replace(lab.settings, bytes_least=1)):
        found = replace(lab.tools, large=replace(reader, settings=settings)).choose_reader(lab.work(attempt))
        assert not isinstance(found, ThreadReader)


def test_files_in_an_object_store_are_read_by_threads_whatever_their_size(lab: Lab) -> None:
    attempt, _ = stage_parts(lab, *PARTS)
    reader = replace(lab.desk.reader, settings=replace(lab.settings, bytes_least=1))
    work = lab.work(attempt)
    first, *rest = work.staged
    away = replace(first, frozen=replace(first.frozen, location="s3://lake/orders/a.parquet"))
    source, *more = work.source
    elsewhere = replace(
        source, frozen_files=tuple(replace(each, location="s3://lake/raw/a") for each in source.frozen_files)
    )
    assert reader.takes(work)
    assert not reader.takes(replace(work, staged=(away, *rest)))
    assert not reader.takes(replace(work, source=(elsewhere, *more)))


# Reports


class _TamperingApplication(InProcess):
    """Changes the reports of the workers before the Steward gets them."""

    def __init__(self, lab: Lab, tamper: Any) -> None:
        super().__init__(lab.settings)
        self._tamper = tamper

    def run(self, job_id: str, common: bytes, tasks: Any) -> Any:
        refused, sealed = super().run(job_id, common, tasks)
        return refused, self._tamper(sealed)


@pytest.mark.parametrize(
    "tamper",
    [
        lambda sealed: [sealed[0][:-1] + bytes([sealed[0][-1] ^ 1]), *sealed[1:]],
        lambda sealed: [sealed[1], sealed[0], *sealed[2:]],
        lambda sealed: [b"", *sealed[1:]],
    ],
    ids=["changed", "swapped", "missing"],
)
def test_a_report_that_was_tampered_with_gives_no_verdict(lab: Lab, tamper: Any) -> None:
    attempt, _ = stage_parts(lab, *PARTS)
    tools = lab.on_spark(_TamperingApplication(lab, tamper))
    assert reason_of(lambda: lab.verified(attempt, tools), UnavailableError) == "worker_report_forged"
    assert lab.bench.cores(attempt) == []


def test_a_missing_report_gives_no_verdict(lab: Lab) -> None:
    attempt, _ = stage_parts(lab, *PARTS)
    tools = lab.on_spark(_TamperingApplication(lab, lambda sealed: sealed[1:]))
    assert reason_of(lambda: lab.verified(attempt, tools)) == "worker_report_malformed"


def test_a_report_about_fewer_files_than_its_task_has_gives_no_verdict(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = worker.read_task

    def read_all_but_one(*given: Any) -> Any:
        found = whole(*given)
        return replace(found, files=found.files[1:])

    monkeypatch.setattr(worker, "read_task", read_all_but_one)
    attempt, _ = stage_parts(lab, *PARTS)
    assert reason_of(lambda: lab.verified(attempt, lab.without_jvm()[1])) == "worker_report_malformed"


def test_neither_tasks_nor_reports_contain_a_key(lab: Lab) -> None:
    attempt, _ = stage_parts(lab, *PARTS)
    application, tools = lab.without_jvm()
    found = lab.verified(attempt, tools)
    assert found.context is not None
    ((common, tasks),) = application.seen
    travelled = [zlib.decompress(common), *map(zlib.decompress, tasks), *application.answers]
    assert any(b"town" in each for each in travelled), "the searched bytes are what is sent"
    for name in found.context.projections:
        key = lab.bench.scene.notary.keys.row_hash_key(found.context, name).reveal()
        assert not any(traces(key, each) for each in travelled)


# The route that gives keys for a handle


@dataclass(frozen=True, slots=True)
class IssuedHandle:
    """A handle of its own job, and a client that redeems it."""

    lab: Lab
    job_id: str
    handle: str

    def redeem(self, worker: str = "host:1:a", role: Role = Role.WORKER, domain: str = "*", **other: str) -> Any:
        """Send the handle with a token of this role; returns the response."""
        headers = self.lab.served.headers(role, domain, "somebody")
        return self.lab.served.http.post("/v1/keys/redeem", json=self.redeem_body(worker) | other, headers=headers)

    def redeem_body(self, worker: str = "host:1:a") -> dict[str, str]:
        return {"job_id": self.job_id, "handle": self.handle, "worker": worker}

    def freeze(self) -> None:
        notary = self.lab.bench.scene.notary
        notary.handles.freeze(self.job_id, context_of(core_of("one"), notary.keys.epoch_for(None)))

    def end(self) -> None:
        self.lab.bench.scene.notary.handles.end(self.job_id)


def issue_handle(lab: Lab) -> IssuedHandle:
    job_id = f"verify:job:{next(_NUMBERS)}"
    return IssuedHandle(lab, job_id, lab.bench.scene.notary.handles.issue(job_id, redemptions=2))


@pytest.fixture
def handle(lab: Lab) -> IssuedHandle:
    """A handle whose job is frozen."""
    handle = issue_handle(lab)
    handle.freeze()
    return handle


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.WORKER])
def test_a_token_of_any_other_role_gets_no_keys_for_a_good_handle(handle: IssuedHandle, role: Role) -> None:
    assert refusal(handle.redeem(role=role)) == (403, "role_wrong")
    assert handle.redeem().status_code == 200, "the handle itself was good"


def test_an_attempts_own_token_gets_no_keys(lab: Lab, handle: IssuedHandle) -> None:
    attempt = lab.bench.attempt(f"work-{next(_NUMBERS)}")
    access = lab.bench.scene.notary.access
    token, _ = attempt_token(access, lab.bench.scene.grant(Role.PRODUCER, "sales"), attempt.attempt_id)
    headers = {"authorization": f"Bearer {token.reveal()}"}
    answer = lab.served.http.post("/v1/keys/redeem", json=handle.redeem_body(), headers=headers)
    assert refusal(answer) == (403, "role_wrong")


def test_a_worker_without_a_handle_of_the_job_gets_no_keys(handle: IssuedHandle) -> None:
    assert refusal(handle.redeem(handle="ab" * 16)) == (403, "handle_unknown")
    assert refusal(handle.redeem(job_id="verify:other:0")) == (403, "handle_wrong_job")
    assert refusal(handle.redeem(domain="sales")) == (403, "domain_wrong")


def test_a_worker_redeems_a_handle_once_and_only_a_limited_number_of_workers_do(handle: IssuedHandle) -> None:
    first = handle.redeem("host:1:a")
    assert set(first.json()) == {"epoch", "keys"}
    assert refusal(handle.redeem("host:1:a")) == (403, "handle_redeemed")
    assert handle.redeem("host:2:b").json() == first.json()
    assert refusal(handle.redeem("host:3:c")) == (403, "handle_exhausted")


def test_a_handle_gives_no_keys_before_the_freeze_and_after_the_end_of_its_job(lab: Lab) -> None:
    handle = issue_handle(lab)
    assert refusal(handle.redeem()) == (403, "handle_not_frozen")
    handle.freeze()
    handle.end()
    assert refusal(handle.redeem()) == (403, "handle_ended")


def test_the_handle_of_a_finished_job_gives_no_keys(lab: Lab) -> None:
    attempt, _ = stage_parts(lab, *PARTS)
    application, tools = lab.without_jvm()
    lab.verified(attempt, tools)
    ((common, tasks),) = application.seen
    refused, sealed = application.run("again", common, tasks)
    assert set(refused) == {"handle_ended"}
    assert not any(sealed)


@pytest.mark.parametrize(("role", "reason"), [(Role.PRODUCER, "role_wrong"), (None, "token_file_invalid")])
def test_workers_with_a_wrong_token_are_reported_to_the_operator(
    lab: Lab, tmp_path: Path, role: Role | None, reason: str
) -> None:
    path = tmp_path / "token"
    if role is not None:
        path.touch(0o600)
        path.write_text(lab.served.stand.token(role, "sales", "job")[0])
    attempt, _ = stage_parts(lab, *PARTS)
    _, tools = lab.without_jvm()
    reader = lab.desk.reader
    assert tools.large is not None

    def endpoint(job_id: str, handle: str) -> Any:
        return replace(reader.endpoint_of(job_id, handle), token_file=str(path))

    with pytest.raises(UnavailableError) as caught:
        lab.verified(attempt, replace(tools, large=replace(tools.large, endpoint_of=endpoint)))  # type: ignore[type-var]
    assert (caught.value.reason, caught.value.got) == ("spark_worker_refused", reason)


def test_a_worker_refuses_a_token_file_that_others_can_read(lab: Lab) -> None:
    attempt, _ = stage_parts(lab, *PARTS)
    application, tools = lab.without_jvm()
    before = application.run

    def open_token_file_and_run(job_id: str, common: bytes, tasks: Any) -> Any:
        (lab.settings.scratch / "worker.token").chmod(0o644)
        return before(job_id, common, tasks)

    application.run = open_token_file_and_run  # type: ignore[method-assign]
    with pytest.raises(UnavailableError) as caught:
        lab.verified(attempt, tools)
    (lab.settings.scratch / "worker.token").chmod(0o600)
    assert caught.value.got == "token_file_mode"


def test_the_token_of_local_workers_is_removed_and_revoked_at_the_end(tmp_path: Path) -> None:
    with lab_at(tmp_path, source=SOURCE) as lab:
        attempt, _ = stage_parts(lab, *PARTS)
        lab.verified(attempt, lab.without_jvm()[1])
        file = lab.settings.scratch / "worker.token"
        assert file.stat().st_mode & 0o777 == 0o600
        lab.desk.close()
        assert not file.exists()
        (grant,) = [each for each in lab.bench.scene.notary.access.list_tokens() if each.role is Role.WORKER]
        assert grant.revoked_micros is not None


def test_an_attempt_that_workers_verified_is_published(lab: Lab) -> None:
    bench: Bench = lab.bench
    attempt, _ = stage_parts(lab, *PARTS)
    bench.verification = bench.verifying(tools=lab.without_jvm()[1])
    assert bench.verify(attempt).verdict.passed
    bench.publish(attempt)
    assert "main" in bench.state().metadata.refs
    bench.verification = bench.verifying()
