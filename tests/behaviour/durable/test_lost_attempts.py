"""The errors and hints that a producer gets if a job did not finish, on an embedded Steward without a JVM."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pyarrow as pa
import pytest

import pvdm
from pvdm import Chunk, Committed, Coordinator, Outcome, RolledBack, VerificationFailed
from pvdm.api.work import AttemptView
from pvdm.client import Retries
from pvdm.client.work import WorkCalls
from pvdm.durable.outcome import Activity, Step
from pvdm.errors import PvdmError, UnavailableError, VerificationError
from pvdm.model.role import Role
from pvdm.model.states import AttemptState
from tests.support.steward.shop import ROWS, Shop, contract, shop_at, table_of

ABANDON = "pvdm abandon {} --reason TEXT"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


def protect_target(shop: Shop, name: str, *more: str) -> str:
    shop.make(f"sales.{name}")
    shop.protect(contract(f"sales.{name}", *more))
    return f"sales.{name}"


def honest(_spark: object, _chunk: Chunk) -> pa.Table:
    return table_of(ROWS)


def lossy(_spark: object, _chunk: Chunk) -> pa.Table:
    return table_of(ROWS[1:])


def raising(_spark: object, _chunk: Chunk) -> pa.Table:
    held = {"a word that nobody is to read": table_of(ROWS)}
    return held["oops"]


def run(shop: Shop, table: str, build: object = honest, *, take_over: bool = False) -> Outcome:
    with Coordinator(shop.steward, take_over=take_over) as coordinator:
        return coordinator.execute_workload(f"{table}-1", build, table=table)  # type: ignore[arg-type]


def test_rolled_back_attempts_do_not_count_against_the_contracts_limit(shop: Shop) -> None:
    table = protect_target(shop, "patient", "governance: {attempts: 1}")
    for _ in range(3):
        outcome = run(shop, table, raising)
        assert isinstance(outcome, RolledBack)
        assert outcome.error.hint == "fix the job; the same call continues the workload"
    assert isinstance(run(shop, table), Committed)


def test_the_hint_names_no_repair_if_it_would_be_refused(shop: Shop) -> None:
    table = protect_target(shop, "last", "governance: {attempts: 2}")
    first = run(shop, table, lossy)
    assert isinstance(first, VerificationFailed)
    assert first.error.hint == f"fix the job, then: pvdm repair {table}-1 --reason TEXT"
    with Coordinator(shop.steward) as coordinator:
        second = coordinator.repair(f"{table}-1", lossy, reason="a guess")
        assert isinstance(second, VerificationFailed)
        assert "no attempt is left" in str(second.error.hint)
        assert ABANDON.format(f"{table}-1") in str(second.error.hint)
        with pytest.raises(VerificationError) as caught:  # the same exit code as the outcome of a run
            coordinator.repair(f"{table}-1", honest, reason="now I know")
    assert caught.value.exit_code == second.exit_code == 3
    assert (caught.value.reason, caught.value.expected) == ("attempts_used_up", "at most 2 failed")
    for hint in (str(second.error.hint), str(caught.value.hint)):
        assert 0 < hint.index("pvdm break-glass") < hint.index("pvdm abandon")
    assert ABANDON.format(f"{table}-1") in str(caught.value.hint)


def test_the_hint_does_not_name_the_same_call_if_it_would_be_refused(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = protect_target(shop, "often")
    for module in ("run", "failure_text"):
        monkeypatch.setattr(f"pvdm.durable.{module}.ROLLED_BACK_MAX", 2)
    hints = [outcome.error.hint for _ in range(2) if isinstance(outcome := run(shop, table, raising), RolledBack)]
    assert hints[0] == "fix the job; the same call continues the workload"
    assert "since 2 were rolled back" in str(hints[1])
    assert ABANDON.format(f"{table}-1") in str(hints[1])


def test_a_control_character_in_a_jobs_error_is_shown_escaped(shop: Shop) -> None:
    def colourful(_spark: object, _chunk: Chunk) -> pa.Table:
        raise ValueError("red \x1b[31m")

    table = protect_target(shop, "escaped")
    assert isinstance(run(shop, table, colourful), RolledBack)
    assert "ValueError: red \\x1b[31m" in shop.command(["status", "--workload-id", f"{table}-1"])[1]


def test_a_failed_job_is_reported_with_the_line_of_its_own_code(shop: Shop) -> None:
    outcome = run(shop, protect_target(shop, "placed"), raising)
    assert isinstance(outcome, RolledBack)
    assert (outcome.error.reason, outcome.error.got) == ("job_failed", "KeyError: 'oops'")
    line = raising.__code__.co_firstlineno + 2
    assert str(outcome.error.details["at"]).endswith(f"test_lost_attempts.py:{line} in raising")
    assert "nobody is to read" not in str(outcome.to_json())


def raise_java_error(_spark: object, _chunk: Chunk) -> pa.Table:
    raise OSError(
        "An error occurred while calling o35.sql.\n: a.b.SparkException: no\n\tat c\nCaused by: d.E: the cause\n"
    )


def test_an_error_from_java_is_reported_by_its_cause(shop: Shop) -> None:
    table = protect_target(shop, "java")
    outcome = run(shop, table, raise_java_error)
    assert isinstance(outcome, RolledBack)
    assert (outcome.error.reason, outcome.error.got) == ("job_failed", "OSError: E: the cause")


def parsing(_spark: object, _chunk: Chunk) -> pa.Table:
    return pa.table({"id": pa.array(["x"]).cast(pa.int64())})


def misusing(_spark: object, _chunk: Chunk) -> pa.Table:
    return Chunk.of(None, None, None)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("job", [parsing, misusing])
def test_the_reported_line_is_the_jobs_even_if_a_library_or_pvdm_raises(shop: Shop, job: FunctionType) -> None:
    outcome = run(shop, protect_target(shop, job.__name__), job)
    assert isinstance(outcome, RolledBack)
    line = job.__code__.co_firstlineno + 1
    assert str(outcome.error.details["at"]).endswith(f"test_lost_attempts.py:{line} in {job.__name__}")


def test_the_line_of_an_installed_job_is_reported_too(shop: Shop) -> None:
    where = Path(sysconfig.get_paths()["purelib"]) / "deployed" / "jobs.py"
    names: dict[str, Any] = {"__name__": "deployed.jobs", "__file__": str(where)}
    exec(compile("def build(spark, chunk):\n    raise OSError('no source')", str(where), "exec"), names)
    outcome = run(shop, protect_target(shop, "deployed"), names["build"])
    assert isinstance(outcome, RolledBack)
    assert str(outcome.error.details["at"]).endswith("deployed/jobs.py:2 in build")


@pytest.mark.parametrize(("then", "reason"), [("fails", "attempt_taken_over"), ("writes on", "lease_taken_over")])
def test_a_run_whose_attempt_a_second_run_took_over_reports_it(shop: Shop, then: str, reason: str) -> None:
    table = protect_target(shop, f"taken_{then.replace(' ', '_')}")
    second: list[Outcome] = []

    def run_again_meanwhile(_spark: object, _chunk: Chunk) -> pa.Table:
        second.append(run(shop, table, take_over=True))
        if then == "fails":
            raise RuntimeError("the branch is gone")
        return table_of(ROWS)

    first = run(shop, table, run_again_meanwhile)
    assert isinstance(second[0], Committed), second
    assert isinstance(first, RolledBack), first
    assert (first.exit_code, first.error.reason) == (4, reason)
    assert "another run" in first.error.message
    assert "fix the job" not in str(first.to_json())
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)


def test_a_run_that_is_taken_over_before_its_hand_in_reports_it(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    table = protect_target(shop, "taken_late")
    calls, real = WorkCalls, WorkCalls.staged

    def run_again_then_hand_in(client: WorkCalls, attempt_id: str) -> AttemptView:
        monkeypatch.setattr(calls, "staged", real)
        assert isinstance(run(shop, table, take_over=True), Committed)
        return real(client, attempt_id)

    monkeypatch.setattr(calls, "staged", run_again_then_hand_in)
    first = run(shop, table)
    assert isinstance(first, RolledBack), first
    assert first.error.reason == "attempt_taken_over"
    assert "another run" in first.error.message


def test_an_attempt_aborted_by_another_caller_is_reported_with_the_reason(shop: Shop) -> None:
    table = protect_target(shop, "ended")

    def abort_attempt(_spark: object, _chunk: Chunk) -> pa.Table:
        with shop.client() as client:
            (live,) = client.workload(f"{table}-1").attempts
            client.abort_attempt(live.attempt_id, "the clock ran out", 1)
        raise RuntimeError("the branch is gone")

    outcome = run(shop, table, abort_attempt)
    assert isinstance(outcome, RolledBack)
    assert (outcome.error.reason, outcome.error.got) == ("attempt_rolled_back", "the clock ran out")
    assert outcome.error.details["job"] == "RuntimeError: the branch is gone"


def test_a_run_whose_workload_is_abandoned_meanwhile_reports_it(shop: Shop) -> None:
    table = protect_target(shop, "dropped")

    def abandon(_spark: object, _chunk: Chunk) -> pa.Table:
        with shop.client(Role.OPERATOR) as operator:
            operator.abandon_workload(f"{table}-1", "not needed")
        return table_of(ROWS)

    outcome = run(shop, table, abandon)
    assert isinstance(outcome, RolledBack)
    assert (outcome.error.reason, outcome.error.got) == ("attempt_rolled_back", "workload abandoned: not needed")


def test_an_unreachable_steward_leaves_the_attempt_staging(tmp_path: Path) -> None:
    steps: list[Step] = []
    with shop_at(tmp_path) as shop:
        table = protect_target(shop, "alone")
        token = shop.steward.token_for(Role.PRODUCER, "sales")

        def stop_steward(_spark: object, _chunk: Chunk) -> pa.Table:
            shop.steward.close()
            raise RuntimeError("no rows")

        client = pvdm.Steward.connect(shop.steward.url, token, retries=Retries(tries=1, total_seconds=5))
        with client, Coordinator(client, watch=steps.append) as coordinator, pytest.raises(UnavailableError) as caught:
            coordinator.execute_workload("alone-1", stop_steward, table=table)
    assert (caught.value.reason, caught.value.got) == ("attempt_left_staging", "RuntimeError: no rows")
    assert [step.activity for step in steps] == [Activity.STAGING, Activity.LEFT]
    with pvdm.Steward.embedded(tmp_path / "steward") as again, Coordinator(again) as coordinator:
        left = again.workload("alone-1").attempts[0]
        assert left.state is AttemptState.STAGING
        assert isinstance(coordinator.execute_workload("alone-1", honest, table=table), Committed)


def test_an_outcome_as_text_says_what_a_caller_could_overlook(shop: Shop) -> None:
    shop.make("sales.nothing")
    shop.protect(contract("sales.nothing", where="id > 1000"))
    with Coordinator(shop.steward) as coordinator:
        outcome = coordinator.execute_workload("n-1", lambda _s, _c: table_of([]), table="sales.nothing")
        again = coordinator.execute_workload("n-1", lambda _s, _c: table_of([]), table="sales.nothing")
    assert str(outcome).splitlines()[1:] == ["*** 0 rows: the source has no row for these parameters ***"]
    assert str(again).splitlines()[1:] == [
        "*** nothing was published now: an earlier run of this workload id published it ***",
        "*** 0 rows: the source had no row for these parameters at its publication ***",
    ]


def test_a_contract_is_given_as_the_path_of_its_file(shop: Shop, tmp_path: Path) -> None:
    table = protect_target(shop, "by_file")
    path = tmp_path / "by_file.yaml"
    path.write_text(contract(table), "utf-8")
    with Coordinator(shop.steward) as coordinator:
        assert isinstance(coordinator.execute_workload("f-1", honest, contract=str(path)), Committed)
        path.write_text(contract(table, "governance: {attempts: 1}"), "utf-8")
        with pytest.raises(PvdmError) as caught:
            coordinator.execute_workload("f-2", honest, contract=path)
    assert caught.value.reason == "contract_not_protecting"
