"""Workers of the Steward's Spark application, without a JVM: same verdicts, keys by handle, sealed reports."""

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
from tests.support.gate.approvals import code_of
from tests.support.spark.verification import InProcess, Lab, facts, lab_at
from tests.support.steward.http import refusal
from tests.support.steward.notary import attempt_token, context_of, core_of
from tests.support.steward.secret_search import traces
from tests.support.verify.attempts import RAW, ROWS, Bench, Row, altered

pytestmark = pytest.mark.usefixtures("kernel")
SOURCE = (ROWS[:40], ROWS[40:70], ROWS[70:])
PARTS = (ROWS[:25], ROWS[25:50], ROWS[50:])
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Shared: every test has a workload and a job of its own."""
    with lab_at(tmp_path_factory.mktemp("open"), source=SOURCE) as made:
        yield made


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab_at(tmp_path_factory.mktemp("copied"), source=SOURCE, contracted={"storage": "copied"}) as made:
        yield made


def staged(lab: Lab, *parts: Sequence[Row], **more: Any) -> tuple[Attempt, list[Path]]:
    return lab.bench.staged(*parts, workload_id=f"work-{next(_NUMBERS)}", **more)


def test_workers_find_what_threads_find(lab: Lab) -> None:
    attempt, _ = staged(lab, *PARTS)
    application, tools = lab.without_jvm()
    threads, workers = lab.both(attempt, tools)
    assert threads.core.verdict.passed
    assert facts(workers) == facts(threads)
    assert len(application.seen[0][1]) == 6, "three staged files and three of the source, each in its own task"


def test_a_changed_row_fails_with_the_same_error(lab: Lab) -> None:
    attempt, _ = staged(lab, altered(ROWS, 17, amount=0.5))
    threads, workers = lab.both(attempt, lab.without_jvm()[1])
    assert [each.value for each in workers.core.verdict.classes] == ["modified"]
    assert facts(workers) == facts(threads)


def test_a_file_that_lies_about_its_rows_fails_with_the_same_error(lab: Lab) -> None:
    attempt, _ = staged(lab, *PARTS, change=lambda file: replace(file, record_count=file.record_count + 1))
    threads, workers = lab.both(attempt, lab.without_jvm()[1])
    assert workers.findings
    assert facts(workers) == facts(threads)


@pytest.mark.parametrize("storage", ["lab", "copied"])
def test_bytes_swapped_after_the_freeze_fail_as_they_do_with_threads(
    request: pytest.FixtureRequest, storage: str
) -> None:
    lab: Lab = request.getfixturevalue(storage)
    attempt, paths = staged(lab, *PARTS)
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


def test_the_steward_makes_the_published_files_of_what_workers_read(copied: Lab) -> None:
    attempt, _ = staged(copied, *PARTS)
    _, tools = copied.without_jvm()
    found = copied.verified(attempt, tools)
    assert found.core.verdict.passed
    assert {parse_location(each.published_path).local for each in found.core.files.added} == set(
        copied.bench.copies(attempt)
    )


def test_workers_and_threads_publish_the_same_bytes(copied: Lab) -> None:
    attempt, _ = staged(copied, *PARTS)
    _, tools = copied.without_jvm()
    by_workers = copied.verified(attempt, tools).core.files
    by_threads = copied.verified(attempt, replace(tools, large=None)).core.files
    assert by_workers == by_threads


def test_a_file_that_was_changed_since_a_worker_read_it_is_not_published(copied: Lab) -> None:
    attempt, paths = staged(copied, *PARTS)
    application, tools = copied.without_jvm()
    before = application.run

    def change_afterwards(job_id: str, common: bytes, tasks: Any) -> Any:
        reports = before(job_id, common, tasks)
        paths[0].write_bytes(paths[0].read_bytes()[:-1] + b"\0")
        return reports

    application.run = change_afterwards  # type: ignore[method-assign]
    found = copied.verified(attempt, tools)
    assert not found.core.verdict.passed
    assert [each.code for each in found.findings] == ["file_changed"]


def _part(written: int, start: int, length: int) -> bytes:
    return struct.pack("<3Q", written, start, length)


@pytest.mark.parametrize(
    "change",
    [
        lambda recipe: recipe[:-1],
        lambda _: _part(0, 2**40, 1),
        lambda _: b"",
        lambda recipe: recipe + _part(0, 0, 1),
        lambda recipe: recipe + _part(0, 4, 64) * 1000,
    ],
    ids=["cut", "beyond the file", "nothing", "more", "the same bytes again and again"],
)
def test_a_recipe_that_does_not_make_the_file_of_its_entry_proves_nothing(
    copied: Lab, monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    """It is a worker's fault, so it is nobody's verdict."""
    _observe_otherwise(monkeypatch, lambda seen: replace(seen, recipe=change(seen.recipe)))
    attempt, _ = staged(copied, *PARTS)
    assert code_of(lambda: copied.verified(attempt, copied.without_jvm()[1])) == "worker_report_malformed"
    assert copied.bench.cores(attempt) == []


def test_recipes_that_a_report_cannot_hold_are_made_by_the_steward(
    copied: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer decides how many pages a file has, and so how long its recipe is; nothing is published in place."""
    attempt, _ = staged(copied, *PARTS)
    _, tools = copied.without_jvm()
    honest = copied.verified(attempt, tools).core.files
    monkeypatch.setattr(report, "RECIPES_MAX_BYTES", 1)
    found = copied.verified(attempt, tools).core
    assert found.verdict.passed
    assert found.files == honest
    assert all(each.published_path != each.staged_path for each in found.files.added)


def _observe_otherwise(monkeypatch: pytest.MonkeyPatch, change: Callable[[FileObservation], FileObservation]) -> None:
    whole = observe_staged

    def otherwise(*given: Any) -> Any:
        seen, sums = whole(*given)
        return change(seen), sums

    monkeypatch.setattr(worker, "observe_staged", otherwise)


def test_a_source_that_is_gone_after_the_freeze_gives_no_verdict(lab: Lab) -> None:
    attempt, _ = staged(lab, *PARTS)
    place = parse_location(lab.bench.state("orders", RAW).metadata.location).local / "data" / "1.parquet"
    away = place.with_suffix(".away")

    def take_away() -> None:
        place.rename(away)

    with fault.armed("verify.after_freeze", fault.Call(take_away)):
        assert code_of(lambda: lab.verified(attempt, lab.without_jvm()[1]), UnavailableError) == "source_unreadable"
    away.rename(place)


def test_nothing_staged_is_judged_like_anything_else(lab: Lab) -> None:
    attempt, _ = staged(lab)
    threads, workers = lab.both(attempt, lab.without_jvm()[1])
    assert [each.value for each in workers.core.verdict.classes] == ["missing"]
    assert facts(workers) == facts(threads)


def test_small_chunks_stay_with_threads(lab: Lab) -> None:
    attempt, _ = staged(lab, *PARTS)
    reader = replace(lab.desk.reader, settings=replace(lab.settings, bytes_least=2**40, files_least=7))
    tools = replace(lab.tools, large=reader)
    assert lab.verified(attempt, tools).core.verdict.passed, "six files, and no Spark was started"
    assert lab.desk.application.started is None
    assert isinstance(lab.tools.reader(lab.work(attempt)), ThreadReader), "without [spark] nothing is too large"
    for settings in (replace(lab.settings, bytes_least=2**40, files_least=6), replace(lab.settings, bytes_least=1)):
        found = replace(lab.tools, large=replace(reader, settings=settings)).reader(lab.work(attempt))
        assert not isinstance(found, ThreadReader)


def test_what_lies_in_an_object_store_stays_with_threads_however_large_it_is(lab: Lab) -> None:
    attempt, _ = staged(lab, *PARTS)
    reader = replace(lab.desk.reader, settings=replace(lab.settings, bytes_least=1))
    work = lab.work(attempt)
    first, *rest = work.staged
    away = replace(first, frozen=replace(first.frozen, location="s3://lake/orders/a.parquet"))
    source, *more = work.source
    elsewhere = replace(source, frozen=tuple(replace(each, location="s3://lake/raw/a") for each in source.frozen))
    assert reader.takes(work)
    assert not reader.takes(replace(work, staged=(away, *rest)))
    assert not reader.takes(replace(work, source=(elsewhere, *more)))


# Reports


class _Meddling(InProcess):
    """Something between the workers and the Steward."""

    def __init__(self, lab: Lab, meddle: Any) -> None:
        super().__init__(lab.settings)
        self._meddle = meddle

    def run(self, job_id: str, common: bytes, tasks: Any) -> Any:
        refused, sealed = super().run(job_id, common, tasks)
        return refused, self._meddle(sealed)


@pytest.mark.parametrize(
    "meddle",
    [
        lambda sealed: [sealed[0][:-1] + bytes([sealed[0][-1] ^ 1]), *sealed[1:]],
        lambda sealed: [sealed[1], sealed[0], *sealed[2:]],
        lambda sealed: [b"", *sealed[1:]],
    ],
    ids=["changed", "swapped", "missing"],
)
def test_a_report_that_was_tampered_with_proves_nothing(lab: Lab, meddle: Any) -> None:
    attempt, _ = staged(lab, *PARTS)
    tools = lab.on_spark(_Meddling(lab, meddle))
    assert code_of(lambda: lab.verified(attempt, tools), UnavailableError) == "worker_report_forged"
    assert lab.bench.cores(attempt) == []


def test_a_report_too_few_proves_nothing(lab: Lab) -> None:
    attempt, _ = staged(lab, *PARTS)
    tools = lab.on_spark(_Meddling(lab, lambda sealed: sealed[1:]))
    assert code_of(lambda: lab.verified(attempt, tools)) == "worker_report_malformed"


def test_a_report_about_fewer_files_than_its_task_has_proves_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = worker.read_task

    def fewer(*given: Any) -> Any:
        found = whole(*given)
        return replace(found, files=found.files[1:])

    monkeypatch.setattr(worker, "read_task", fewer)
    attempt, _ = staged(lab, *PARTS)
    assert code_of(lambda: lab.verified(attempt, lab.without_jvm()[1])) == "worker_report_malformed"


def test_neither_orders_nor_reports_hold_a_key_or_a_digest(lab: Lab) -> None:
    attempt, _ = staged(lab, *PARTS)
    application, tools = lab.without_jvm()
    found = lab.verified(attempt, tools)
    assert found.context is not None
    ((common, tasks),) = application.seen
    travelled = [zlib.decompress(common), *map(zlib.decompress, tasks), *application.answers]
    assert any(b"town" in each for each in travelled), "what is searched is what travels"
    for name in found.context.projections:
        key = lab.bench.scene.notary.keys.row_hash_key(found.context, name).reveal()
        assert not any(traces(key, each) for each in travelled)


# The door


@dataclass(frozen=True, slots=True)
class Handed:
    """A handle of a job of its own."""

    lab: Lab
    job_id: str
    handle: str

    def redeem(self, worker: str = "host:1:a", role: Role = Role.WORKER, domain: str = "*", **other: str) -> Any:
        """What the door answers to a token of that role."""
        headers = self.lab.served.headers(role, domain, "somebody")
        return self.lab.served.http.post("/v1/keys/redeem", json=self.asked(worker) | other, headers=headers)

    def asked(self, worker: str = "host:1:a") -> dict[str, str]:
        return {"job_id": self.job_id, "handle": self.handle, "worker": worker}

    def freeze(self) -> None:
        notary = self.lab.bench.scene.notary
        notary.handles.freeze(self.job_id, context_of(core_of("one"), notary.keys.epoch_for(None)))

    def end(self) -> None:
        self.lab.bench.scene.notary.handles.end(self.job_id)


def issued(lab: Lab) -> Handed:
    job_id = f"verify:job:{next(_NUMBERS)}"
    return Handed(lab, job_id, lab.bench.scene.notary.handles.issue(job_id, redemptions=2))


@pytest.fixture
def handed(lab: Lab) -> Handed:
    """Of a job that is frozen."""
    made = issued(lab)
    made.freeze()
    return made


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.WORKER])
def test_a_token_of_any_other_role_gets_no_keys_for_a_good_handle(handed: Handed, role: Role) -> None:
    assert refusal(handed.redeem(role=role)) == (403, "role_wrong")
    assert handed.redeem().status_code == 200, "the handle itself was good"


def test_an_attempts_own_token_gets_no_keys(lab: Lab, handed: Handed) -> None:
    attempt = lab.bench.attempt(f"work-{next(_NUMBERS)}")
    access = lab.bench.scene.notary.access
    token, _ = attempt_token(access, lab.bench.scene.grant(Role.PRODUCER, "sales"), attempt.attempt_id)
    headers = {"authorization": f"Bearer {token.reveal()}"}
    answer = lab.served.http.post("/v1/keys/redeem", json=handed.asked(), headers=headers)
    assert refusal(answer) == (403, "role_wrong")


def test_a_worker_without_a_handle_of_the_job_gets_no_keys(handed: Handed) -> None:
    assert refusal(handed.redeem(handle="ab" * 16)) == (403, "handle_unknown")
    assert refusal(handed.redeem(job_id="verify:other:0")) == (403, "handle_wrong_job")
    assert refusal(handed.redeem(domain="sales")) == (403, "domain_wrong")


def test_a_worker_redeems_once_under_its_name_and_the_handle_has_a_bound(handed: Handed) -> None:
    first = handed.redeem("host:1:a")
    assert set(first.json()) == {"epoch", "keys"}
    assert refusal(handed.redeem("host:1:a")) == (403, "handle_redeemed")
    assert handed.redeem("host:2:b").json() == first.json()
    assert refusal(handed.redeem("host:3:c")) == (403, "handle_exhausted")


def test_no_keys_before_the_freeze_and_none_after_the_end(lab: Lab) -> None:
    made = issued(lab)
    assert refusal(made.redeem()) == (403, "handle_not_frozen")
    made.freeze()
    made.end()
    assert refusal(made.redeem()) == (403, "handle_ended")


def test_a_job_that_is_over_leaves_no_handle_that_opens(lab: Lab) -> None:
    attempt, _ = staged(lab, *PARTS)
    application, tools = lab.without_jvm()
    lab.verified(attempt, tools)
    ((common, tasks),) = application.seen
    refused, sealed = application.run("again", common, tasks)
    assert set(refused) == {"handle_ended"}
    assert not any(sealed)


@pytest.mark.parametrize(("role", "told"), [(Role.PRODUCER, "role_wrong"), (None, "token_file_invalid")])
def test_workers_with_a_wrong_token_are_reported_to_the_operator(
    lab: Lab, tmp_path: Path, role: Role | None, told: str
) -> None:
    path = tmp_path / "token"
    if role is not None:
        path.touch(0o600)
        path.write_text(lab.served.stand.token(role, "sales", "job")[0])
    attempt, _ = staged(lab, *PARTS)
    _, tools = lab.without_jvm()
    reader = lab.desk.reader
    assert tools.large is not None

    def endpoint(job_id: str, handle: str) -> Any:
        return replace(reader.endpoint_of(job_id, handle), token_file=str(path))

    with pytest.raises(UnavailableError) as caught:
        lab.verified(attempt, replace(tools, large=replace(tools.large, endpoint_of=endpoint)))  # type: ignore[type-var]
    assert (caught.value.reason, caught.value.got) == ("spark_worker_refused", told)


def test_a_worker_reads_no_token_that_others_can_read(lab: Lab) -> None:
    attempt, _ = staged(lab, *PARTS)
    application, tools = lab.without_jvm()
    before = application.run

    def opened(job_id: str, common: bytes, tasks: Any) -> Any:
        (lab.settings.scratch / "worker.token").chmod(0o644)
        return before(job_id, common, tasks)

    application.run = opened  # type: ignore[method-assign]
    with pytest.raises(UnavailableError) as caught:
        lab.verified(attempt, tools)
    (lab.settings.scratch / "worker.token").chmod(0o600)
    assert caught.value.got == "token_file_mode"


def test_the_token_of_local_workers_ends_with_the_steward(tmp_path: Path) -> None:
    with lab_at(tmp_path, source=SOURCE) as lab:
        attempt, _ = staged(lab, *PARTS)
        lab.verified(attempt, lab.without_jvm()[1])
        file = lab.settings.scratch / "worker.token"
        assert file.stat().st_mode & 0o777 == 0o600
        lab.desk.close()
        assert not file.exists()
        (grant,) = [each for each in lab.bench.scene.notary.access.list_tokens() if each.role is Role.WORKER]
        assert grant.revoked_micros is not None


def test_the_whole_path_is_published_from_what_workers_saw(lab: Lab) -> None:
    bench: Bench = lab.bench
    attempt, _ = staged(lab, *PARTS)
    bench.verification = bench.verifying(tools=lab.without_jvm()[1])
    assert bench.verify(attempt).verdict.passed
    bench.publish(attempt)
    assert "main" in bench.state().metadata.refs
    bench.verification = bench.verifying()
