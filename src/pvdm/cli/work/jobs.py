"""What commands that run workloads share: jobs by name, parameters, Spark sessions, steps on the screen, outcomes."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from pvdm.cli.common.output import output_aside
from pvdm.cli.common.screen import notice, say, say_aside, say_error, say_json
from pvdm.cli.common.service import Service
from pvdm.cli.work.outcome_text import committed_lines
from pvdm.errors import Code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pvdm.client import StewardClient
    from pvdm.durable.coordinator import Build, Coordinator
    from pvdm.durable.outcome import Outcome, Step, Watch


@dataclass(frozen=True, slots=True)
class Job:
    """Who makes the rows, and where."""

    name: str | None
    small: bool
    master: str | None
    settings: tuple[str, ...]
    stage_seconds: float | None

    def build(self) -> Build | None:
        """The producer's function; None where the contract is the job."""
        if self.name is None:
            if self.small:
                raise Code.JOB_MISSING(
                    "a small job reads its rows itself",
                    expected="--job module:function",
                    got="none",
                    hint="name one, or leave --small out: Spark then reads the source as the contract says",
                )
            return None
        return load_job(self.name)

    @contextlib.contextmanager
    def spark(self, client: StewardClient) -> Iterator[Callable[[], SparkSession] | None]:
        """What starts a Spark session for the command, which is stopped at its end; None for a small job."""
        if self.small:
            yield None
            return
        config = named_values(self.settings, "--conf")
        with contextlib.ExitStack() as ends:
            yield lambda: self._session(client, config, ends)

    def _session(self, client: StewardClient, config: dict[str, str], ends: contextlib.ExitStack) -> SparkSession:
        """A session which reaches the store that the Steward's tables lie in; one that runs already is not stopped."""
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
            ends.callback(session.stop)
        return session


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--job`, `--small`, `--master`, `--conf` and `--stage-seconds` as one `job`."""

    @functools.wraps(command)
    def called(
        *,
        job_name: str | None,
        small: bool,
        master: str | None,
        conf: tuple[str, ...],
        stage_seconds: float | None,
        **others: Any,
    ) -> Any:
        return command(job=Job(job_name, small, master, conf, stage_seconds), **others)

    for option in (
        click.option(
            "--stage-seconds",
            type=click.FloatRange(min=0, min_open=True),
            metavar="N",
            help="Roll a chunk back whose staging takes longer.  [default: as long as its token is good]",
        ),
        click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
        click.option("--master", metavar="URL", help="Spark's master, such as local[4].  [default: Spark's own]"),
        click.option("--small", is_flag=True, help="Without Spark: the job gives Arrow tables."),
        click.option(
            "--job",
            "job_name",
            metavar="MODULE:FUNCTION",
            help="build(spark, chunk) -> DataFrame.  [default: the contract's filter and mapping]",
        ),
    ):
        called = option(called)
    return called


def param_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--param`: a value for one of the contract's parameters."""
    return click.option(
        "--param", "params", multiple=True, metavar="NAME=VALUE", help="A parameter of the contract; may be repeated."
    )(command)


def workload_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--workload-id`: the name of the run, by which it is taken up again."""
    return click.option(
        "--workload-id",
        required=True,
        metavar="ID",
        help="The run's name; the same one again takes up where it ended, and never publishes twice.",
    )(command)


def named_values(given: tuple[str, ...], option: str) -> dict[str, str]:
    """NAME=VALUE pairs, each name once."""
    found: dict[str, str] = {}
    for each in given:
        name, sign, value = each.partition("=")
        if not sign or not name or name in found:
            raise Code.USAGE(f"{option} cannot be accepted", got=ascii(each)[:80])
        found[name] = value
    return found


def load_job(text: str) -> Build:
    """The function that `module:function` names; modules are found in the current folder too."""
    module, sign, name = text.partition(":")
    if not sign or not module or not name.isidentifier():
        raise Code.JOB_INVALID("the job's name cannot be read", expected="module:function", got=ascii(text)[:120])
    if (here := os.getcwd()) not in sys.path:  # noqa: PTH109 - sys.path holds texts
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), name, None)
    except Exception as error:
        raise Code.JOB_NOT_IMPORTABLE(
            f"the module of {ascii(text)[1:-1][:120]} cannot be imported",
            got=f"{type(error).__name__}: {error}"[:200],
            hint=_importing(module, name, here),
        ) from error
    if not callable(found):
        raise Code.JOB_INVALID(
            f"{module} has no such function", expected=name, got=type(found).__name__ if found else "none"
        )
    build: Build = found
    return build


def _importing(module: str, function: str, here: str) -> str:
    """Where modules are looked for; a file's name is taken for a module inside a package."""
    if module.endswith(".py"):
        return f"name the module without .py: {module.removesuffix('.py').replace('/', '.')}:{function}"
    return f"it was looked for in {here} and among the installed modules; change to the folder that holds it"


@contextlib.contextmanager
def coordinator(service: Service, job: Job, *, as_json: bool) -> Iterator[Coordinator]:
    """A Coordinator under the caller's token, with Spark unless the job is small; it starts when a chunk is staged."""
    from pvdm.durable.coordinator import Coordinator

    watch = quiet if as_json else watch_steps()
    with service.connect() as client, job.spark(client) as spark:
        if not as_json:
            client.when_waiting(lambda: say_aside(f"waiting for the Steward at {client.url} ..."))
        with Coordinator(client, spark, stage_seconds=job.stage_seconds, watch=watch) as found:
            yield found


def job_output(*, as_json: bool) -> contextlib.AbstractContextManager[None]:
    """For programs, standard output is the one document alone: what a job prints goes to standard error."""
    return output_aside() if as_json else contextlib.nullcontext()


def quiet(step: Step) -> None:
    """Nothing is shown."""
    del step


def watch_steps() -> Watch:
    """One line on standard error for each step; the same step again only if something new is said."""
    told: list[str] = []

    def watch(step: Step) -> None:
        if step.note is not None:
            notice(step.note)
        line = f"[{step.done}/{step.total}] chunk {step.chunk_id}: {step.doing.value}"
        line += f" (attempt {step.attempt})" if (step.attempt or 1) > 1 else ""
        line += f": {step.problem}" if step.problem else ""
        if told != [line]:
            told[:] = [line]
            say_aside(line)

    return watch


def tell(outcome: Outcome, *, as_json: bool) -> None:
    """The outcome, and its exit code as the command's."""
    from pvdm.durable.outcome import Committed

    if as_json:
        say_json(outcome.to_json())
    elif isinstance(outcome, Committed):
        for line, style in committed_lines(outcome):
            say(line, style=style)
    else:
        say(f"{outcome.name}  {outcome.workload_id} of {outcome.table}", style="bold red")
        say_error(outcome.error)
    click.get_current_context().exit(outcome.exit_code)
