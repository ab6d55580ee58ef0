"""What commands that run workloads share: options, jobs, Spark sessions, progress and outcomes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from pvdm.cli.common.commands import wants_json
from pvdm.cli.common.options import Service, option_group, parse_pairs
from pvdm.cli.common.output import output_to_stderr
from pvdm.cli.common.screen import ALERT, Line, notice, say, say_error, say_json, say_lines, say_on_stderr
from pvdm.durable.parallel import PARALLEL_MAX
from pvdm.errors import Code, SegmentEndedError
from pvdm.model.printable import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pvdm.api.work import AttemptView
    from pvdm.client import StewardClient
    from pvdm.durable.coordinator import Build, Coordinator
    from pvdm.durable.outcome import Committed, Outcome, Step, Watch


@dataclass(frozen=True, slots=True)
class Job:
    """The producer's function, named as `module:function`, and how it runs; a `small` job runs without Spark."""

    name: str | None
    small: bool
    master: str | None
    conf: tuple[str, ...]
    take_over: bool = False
    parallel: int = 1

    def load_build(self) -> Build | None:
        """The producer's function; None if the contract's filter and mapping are the job."""
        if self.name is not None:
            from pvdm.durable.job import load_job

            return load_job(self.name)
        if self.small:
            message, expected = "a job without Spark needs a function", "--job module:function"
            hint = "name one, or leave --small out: Spark then reads the source as the contract says"
            raise Code.JOB_INVALID(message, reason="job_missing", expected=expected, got="none", hint=hint)
        return None

    @contextlib.contextmanager
    def spark(self, client: StewardClient) -> Iterator[Callable[[], SparkSession] | None]:
        """Yield a function that starts a Spark session (stopped after the block), or None for a job without Spark."""
        if self.small:
            yield None
            return
        config = parse_pairs(self.conf, "--conf")
        with contextlib.ExitStack() as stack:
            yield lambda: self._start_session(client, config, stack)

    def _start_session(
        self, client: StewardClient, config: dict[str, str], stack: contextlib.ExitStack
    ) -> SparkSession:
        """A session with access to the Steward's tables; the stack stops the session if this call started it."""
        from pvdm.client.table import uses_object_store
        from pvdm.lake.spark import running_session, spark_session

        running = running_session()
        session = spark_session(
            [],
            app_name="pvdm run",
            master=self.master,
            config=config,
            object_store=uses_object_store(client),
            ca_file=client.ca_file,
        )
        if running is None:
            stack.callback(session.stop)
        return session


job_options = option_group(
    "job",
    Job,
    click.option(
        "--job",
        "name",
        metavar="MODULE:FUNCTION",
        help="build(spark, chunk) -> DataFrame.  [default: the contract's filter and mapping]",
    ),
    click.option("--small", is_flag=True, help="Without Spark: the job returns Arrow tables."),
    click.option("--master", metavar="URL", help="Spark's master, such as local[4].  [default: Spark's own]"),
    click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
    click.option(
        "--parallel",
        type=click.IntRange(1, PARALLEL_MAX),
        default=1,
        show_default=True,
        metavar="N",
        help="Work on N chunks at a time. The job is called from N threads.",
    ),
    click.option("--take-over", is_flag=True, help="End the lease of another run of this workload."),
)
param_option = click.option(
    "--param", "params", multiple=True, metavar="NAME=VALUE", help="A parameter of the contract; may be repeated."
)
workload_option = click.option(
    "--workload-id",
    required=True,
    metavar="ID",
    help="The workload's name. A later run with it continues where the last one ended, and never publishes twice.",
)


@contextlib.contextmanager
def open_coordinator(
    service: Service,
    job: Job,
    *,
    segment_timeout: float | None = None,
    rollback_threshold: float | None = None,
    max_chunks: int | None = None,
    segment_started_at: float | None = None,
    workload_timeout: float | None = None,
    shows_progress: bool = True,
) -> Iterator[Coordinator]:
    """A Coordinator with the caller's token; Spark starts with the first staged chunk, unless the job is small.

    If the block ends without an error, SIGINT and SIGTERM are ignored until all is closed, so its outcome is kept.
    """
    from pvdm.durable.coordinator import Coordinator
    from pvdm.physical.watchdog import hold_stop_signals

    watch = watch_steps() if shows_progress else _notice_note
    with contextlib.ExitStack() as closing:
        client = closing.enter_context(service.connect())
        spark = closing.enter_context(job.spark(client))
        client.when_waiting(lambda: say_on_stderr(f"waiting for the Steward at {client.url} ..."))
        coordinator = Coordinator(
            client,
            spark,
            segment_timeout=segment_timeout,
            rollback_threshold=rollback_threshold,
            max_chunks=max_chunks,
            segment_started_at=segment_started_at,
            workload_timeout=workload_timeout,
            take_over=job.take_over,
            parallel=job.parallel,
            watch=watch,
        )
        yield closing.enter_context(coordinator)
        with hold_stop_signals():
            closing.close()


def job_output(*, json: bool) -> contextlib.AbstractContextManager[None]:
    """With --json, a job's output goes to standard error: standard output has the JSON document only."""
    return output_to_stderr() if json else contextlib.nullcontext()


def _notice_note(step: Step) -> None:
    """Print the note of a step, without its progress."""
    if step.note is not None:
        notice(step.note)


def watch_steps() -> Watch:
    """Return a function that prints one line on standard error for each step, without repetitions."""
    last_line = ""

    def watch(step: Step) -> None:
        nonlocal last_line
        _notice_note(step)
        what = f"chunk {step.chunk_id}: " if step.chunk_id else ""
        line = f"[{step.done}/{step.total}] {what}{step.activity.value}"
        line += f" (attempt {step.attempt})" if (step.attempt or 1) > 1 else ""
        line += f": {step.problem}" if step.problem else ""
        if line != last_line:
            last_line = line
            say_on_stderr(line)

    return watch


def finish(outcome: Outcome) -> None:
    """Print the outcome, and end the command with the outcome's exit code. Signals are ignored from here on."""
    from pvdm.durable.outcome import Committed, segment_end_text
    from pvdm.physical.watchdog import ignore_stop_signals

    ignore_stop_signals()
    if wants_json():
        say_json(outcome.to_json())
    elif isinstance(outcome, Committed):
        say_lines(committed_lines(outcome))
    else:
        headline = f"{outcome.name}  {outcome.workload_id} of {outcome.table}"
        if isinstance(outcome.error, SegmentEndedError):
            say(headline, style="yellow")
            say_on_stderr(segment_end_text(outcome.error))
        else:
            say(headline, style="bold red")
            say_error(outcome.error)
        say_on_stderr(outcome.counts_text)
    click.get_current_context().exit(outcome.exit_code)


def committed_lines(outcome: Committed) -> Iterator[Line]:
    """The lines for a published workload and its chunks, with alerts, overrides and failed attempts."""
    from pvdm.durable.outcome import PublicationTime, failed_text

    summary, *alerts = str(outcome).split("\n")
    yield summary, "green"
    yield from ((each, ALERT) for each in alerts)
    if outcome.published is PublicationTime.PARTLY_NOW:
        count = sum(1 for each in outcome.chunks if each.before)
        yield f"  {counted(count, 'chunk')} of them had been published by an earlier run", None
    for chunk in outcome.overridden:
        yield f"*** chunk {chunk.chunk_id}: {override_text(chunk.attempt)} ***", ALERT
    for chunk in outcome.chunks:
        attempt = chunk.attempt
        added = "" if attempt.extent is None else f"  {attempt.extent.added}"
        proof = "FAIL proof" if attempt.overridden else "proof"
        yield f"  {chunk.chunk_id}{added}  snapshot {attempt.snapshot_id}  {proof} {attempt.proof_id}", None
        for failed in chunk.failed_attempts:
            yield f"    {failed_text(failed, attempt)}", "yellow"


def override_text(attempt: AttemptView) -> str:
    """A text which says that an override, and no proof, published the attempt."""
    classes = ", ".join(each.value for each in attempt.classes)
    by = "override" if attempt.override_id is None else f"override {attempt.override_id}"
    return f"published by {by}, not by proof: its verdict is FAIL ({classes})"
