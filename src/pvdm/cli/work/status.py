"""`pvdm status`: shows the state of a Steward, of one table's workloads, or of one workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from pvdm.cli.common.commands import command, wants_json
from pvdm.cli.common.options import Service, number_option, service_options
from pvdm.cli.common.screen import ALERT, Line, say, say_json, say_lines, say_result
from pvdm.cli.common.times import utc
from pvdm.cli.evidence.statements import override_view_lines, proof_view_line
from pvdm.cli.table.open_workloads import all_workloads
from pvdm.cli.work.jobs import override_text
from pvdm.errors import Code, NotAllowedError, UnavailableError, comparison
from pvdm.model.located import describe, explain_more_keys
from pvdm.model.printable import counted, quoted_path, view_json
from pvdm.model.statements.epoch import EpochStage
from pvdm.model.states import AttemptState, WorkloadState

if TYPE_CHECKING:
    from pvdm.api.proofs import OverrideView, ProofView
    from pvdm.api.service import EpochView, Identity, StewardInfo
    from pvdm.api.work import AttemptView, ChunkView, ListedJob, NewestWorkloads, WorkloadView
    from pvdm.client import Readiness, StewardClient

_LISTED_ROWS: Final = 1_000
_DEFAULT_ROWS: Final = 20
_OUTBOX_LATE_SECONDS: Final = 60
_FAILED: Final = "failed"
_WAITING: Final = "waiting"
_NOT_PERMITTED: Final = frozenset({"domain_wrong", "role_wrong", "token_of_other_attempt"})
_STYLES: Final = {
    AttemptState.COMMITTED: "green",
    AttemptState.VERIFICATION_FAILED: "bold red",
    AttemptState.ROLLED_BACK: "yellow",
}
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Status:
    """What `pvdm status` shows. A field is None if the token's role may not see it."""

    readiness: Readiness
    info: StewardInfo
    identity: Identity
    epochs: tuple[EpochView, ...] | None
    overrides: tuple[OverrideView, ...] | None
    workloads: NewestWorkloads | None
    proofs: tuple[ProofView, ...] | None
    jobs: tuple[ListedJob, ...] | None


@command("status")
@click.argument("table", metavar="[TABLE]", required=False)
@click.option("--workload-id", metavar="ID", help="Show one workload with its chunks.")
@service_options
@number_option(
    "--rows", _DEFAULT_ROWS, least=1, most=_LISTED_ROWS, help_text="How many workloads, proofs or chunks to show."
)
def status(*, table: str | None, workload_id: str | None, service: Service, rows: int) -> None:
    """Show whether the Steward takes work, its epochs, workloads and proofs, and every overridden verdict.

    Shows what your role may see, and names what it may not. Ends with 7 when the Steward is not ready. Give a
    table or --workload-id to see only that.

    \b
    Examples:
      pvdm status --url https://steward.example:8181 --token-file token
      pvdm status --json | jq '.readiness'
      pvdm status sales.orders
      pvdm status --workload-id orders-2026-11-15
    """
    if table is not None or workload_id is not None:
        show_table_or_workload(service, table, workload_id, rows)
        return
    with service.connect() as client:
        found = _collect(client, rows)
    if wants_json():
        say_json(_to_json(found))
    else:
        _show(found)
    if not found.readiness.ready:
        click.get_current_context().exit(UnavailableError.exit_code)


def _collect(client: StewardClient, rows: int) -> Status:
    return Status(
        readiness=client.readiness(),
        info=client.info(),
        identity=client.identity(),
        epochs=_read_if_allowed(client.epochs),
        overrides=_read_if_allowed(client.overrides),
        workloads=_read_if_allowed(lambda: client.newest_workloads(limit=rows)),
        proofs=_read_if_allowed(lambda: client.proofs(limit=rows)),
        jobs=_read_if_allowed(lambda: client.jobs(limit=_LISTED_ROWS)),
    )


def _read_if_allowed(read: Callable[[], _T]) -> _T | None:
    """The result; None if the token's role may not see it."""
    try:
        return read()
    except NotAllowedError as error:
        if error.reason not in _NOT_PERMITTED:
            raise  # for example, the token has just expired
        return None


def _to_json(found: Status) -> dict[str, object]:
    reasons = [reason.to_json() for reason in found.readiness.reasons]
    return {
        "readiness": {"ready": found.readiness.ready, "reasons": reasons},
        "steward": view_json(found.info),
        "identity": view_json(found.identity),
        "epochs": _views_json(found.epochs),
        "overrides": _views_json(found.overrides),
        "workloads": None if found.workloads is None else _views_json(found.workloads.workloads),
        "workloads_total": None if found.workloads is None else str(found.workloads.total),
        "proofs": _views_json(found.proofs),
        "jobs": _views_json(found.jobs),
    }


def _views_json(views: Sequence[Any] | None) -> list[dict[str, object]] | None:
    return None if views is None else [view_json(view) for view in views]


def _show(found: Status) -> None:
    info = found.info
    for view in found.overrides or ():
        say_lines(override_view_lines(view))
    say(f"Steward {info.notary}, version {info.version}, isolation {info.isolation.value}", style="bold")
    if found.readiness.ready:
        say("  ready", style="green")
    for reason in found.readiness.reasons:
        say(f"  NOT READY: {reason.reason}: {reason}", style="bold red")
        if reason.hint:
            say(f"    hint: {reason.hint}")
    root = "none yet" if info.trust_root_version is None else f"version {info.trust_root_version}"
    say(f"  log         {info.origin}, {counted(info.log_size, 'entry', 'entries')}")
    say(f"  trust root  {root}")
    catalog = "none: steward.toml has no [catalog]"
    if info.catalog is not None:
        catalog = f"{info.catalog.name}, tables in {info.catalog.warehouse}"
    say(f"  catalog     {catalog}")
    _show_outbox(found)
    you = found.identity
    domain = "every domain" if you.domain == "*" else f"domain {you.domain}"
    say(f"  you are     {you.name}, {you.role.value} of {domain}, until {utc(you.expires_at)}")
    _show_epochs(found)
    _show_jobs(found)
    _show_workloads_and_proofs(found)


def _show_outbox(found: Status) -> None:
    for each in found.info.outbox:
        if each.set_aside:
            events = f"{counted(each.set_aside, 'event')} of the channel {each.channel} in the last seven days"
            say(f"  NOT SENT: {events}: {each.set_aside_problem}", style="bold red")
        if each.problem is not None or each.oldest_seconds >= _OUTBOX_LATE_SECONDS:
            problem = "" if each.problem is None else f": {each.problem}"
            age = f"the oldest for {counted(each.oldest_seconds, 'second')}"
            line = f"  NOT DELIVERED: {counted(each.pending, 'event')} of the channel {each.channel}, {age}{problem}"
            say(line, style="bold red")


def _show_epochs(found: Status) -> None:
    if found.epochs is None:
        say(f"  epoch       {found.info.active_epoch or 'none active'}")
    for epoch in found.epochs or ():
        say(f"  epoch       {epoch.number} {epoch.state.value}")
    created = [epoch.number for epoch in found.epochs or () if epoch.state is EpochStage.CREATED]
    if created and found.info.active_epoch is None:
        # After a restore, only this hint names the step.
        say("  hint: no epoch is active, so no workload opens. Name the newest epoch's keys in the trust root")
        say(f"        (`pvdm keys root next`, `submit`), then `pvdm keys activate {max(created)}`")


def _show_jobs(found: Status) -> None:
    """Show how many of the Steward's jobs, such as verifications, are not done, and which failed or await a retry."""
    jobs = found.jobs
    if jobs is None:
        return
    states = Counter(job.state.value for job in jobs)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    say(f"  jobs        {counts or 'none waiting'}")
    for job in jobs:
        if job.state.value not in (_FAILED, _WAITING):
            continue
        name = f"{job.kind} {job.subject}".strip()
        problem = "" if job.problem is None else f": {job.problem.reason}: {job.problem.message}"
        workload = "" if job.workload_id is None else f" of {job.workload_id} ({job.table or 'its table is gone'})"
        line = f"  {job.state.name} JOB: {name}{workload}, {counted(job.tries, 'try', 'tries')}{problem}"
        say(line, style="bold red" if job.state.value == _FAILED else "yellow")
    if states[_FAILED]:
        say("  hint: the Steward tries a failed job again at its next start; its log has details")


def _show_workloads_and_proofs(found: Status) -> None:
    role = found.identity.role.value
    if found.workloads is None:
        say(f"workloads: not shown to the role {role}")
    else:
        shown, total = found.workloads.workloads, found.workloads.total
        part = f" of {total:,}" if len(shown) < total else ""
        say(f"workloads, newest first: {len(shown):,}{part} shown", style="bold")
        for workload in shown:
            say_lines(workload_lines(workload))
    if found.proofs is None:
        say(f"proofs: not shown to the role {role}")
        return
    say(f"proofs: {len(found.proofs)} shown", style="bold")
    for proof in found.proofs:
        line, style = proof_view_line(proof)
        say(f"  {line}", style=style)


def show_table_or_workload(service: Service, table: str | None, workload_id: str | None, rows: int) -> None:
    """Show one workload with its first chunks, or the newest workloads of a table."""
    if table is not None and workload_id is not None:
        raise click.UsageError("a table or a workload, not both")
    with service.connect() as client:
        if workload_id is not None:
            workload = client.workload(workload_id, limit=1).workload  # its chunks are fetched below
            chunks = client.chunks(workload_id, limit=rows)
            failed = _read_failed_attempts(client, workload_id, chunks)
            document: dict[str, object] = {
                "workload": view_json(workload),
                "chunks": _views_json(chunks),
                "failed_attempts": _views_json([each for found in failed.values() for each in found]),
            }
            say_result(document, _one_workload_lines(workload, chunks, failed))
            return
        found = [each for each in all_workloads(client) if each.table == table]
        if not found and not client.protected("table", name=table):
            message = "no table that you may see is protected under this name, and no workload was for it"
            expected = "a table's namespace and name, such as sales.orders"
            hint = "`pvdm status` shows the workloads that you may see"
            raise Code.TABLE_UNKNOWN(message, expected=expected, got=str(table)[:200], hint=hint)
    newest = sorted(found, key=lambda each: each.changed_at, reverse=True)[:rows]
    part = f"{len(newest):,} of " if len(found) > len(newest) else ""
    lines = [(f"{table}: {part}{counted(len(found), 'workload')} shown", "bold")]
    document = {"table": table, "workloads": _views_json(newest), "workloads_total": str(len(found))}
    say_result(document, [*lines, *(line for each in newest for line in workload_lines(each))])


def workload_lines(workload: WorkloadView) -> Iterator[Line]:
    """A workload with the states of its chunks, and its problem and overrides if there are any."""
    states = {each.state: each.chunks for each in workload.chunk_states}
    counts = ", ".join(f"{count} of {workload.chunk_count} chunks {each.value}" for each, count in states.items())
    has_problem = AttemptState.VERIFICATION_FAILED in states or workload.problem is not None
    state = f"{workload.state.value}, {counts or f'0 of {workload.chunk_count} chunks begun'}"
    yield f"  {workload.workload_id}  {state}  {utc(workload.changed_at)}", "bold red" if has_problem else None
    if workload.problem is not None:
        yield f"    the Steward cannot continue: {workload.problem.reason}: {workload.problem.message}", "bold red"
    for override_id in workload.override_ids:
        yield f"    *** published by override {override_id}, not by proof ***", ALERT
    yield from _lease_lines(workload)


def _lease_lines(workload: WorkloadView) -> Iterator[Line]:
    lease = workload.lease
    if workload.deadline is not None and workload.state is WorkloadState.OPEN:
        if workload.timed_out:
            yield (
                f"    its time ran out at {utc(workload.deadline)}; give `pvdm run` a longer --workload-timeout",
                "yellow",
            )
        else:
            yield f"    its chunks may be staged until {utc(workload.deadline)}", None
    if lease is not None and lease.live:
        yield f"    a run works on it: {lease.runner} ({lease.holder}), until {utc(lease.expires_at)} at least", None


def _read_failed_attempts(
    client: StewardClient, workload_id: str, chunks: tuple[ChunkView, ...]
) -> dict[str, tuple[AttemptView, ...]]:
    """The VERIFICATION_FAILED attempts before the last attempt at each of these chunks, by chunk id."""
    from pvdm.durable.final_outcome import read_failed_attempts

    last = {each.chunk_id: each.attempt for each in chunks if each.attempt is not None}
    return read_failed_attempts(client, workload_id, last)


def _one_workload_lines(
    workload: WorkloadView, chunks: tuple[ChunkView, ...], failed: Mapping[str, tuple[AttemptView, ...]]
) -> Iterator[Line]:
    from pvdm.durable.outcome import failed_text

    yield f"workload {workload.workload_id} of {workload.table or workload.table_uuid}", "bold"
    yield f"  {workload.state.value}, {workload.reason}  {utc(workload.changed_at)}", None
    yield f"  atomicity {workload.atomicity}, {counted(workload.chunk_count, 'chunk')}, {len(chunks)} shown", None
    yield from _lease_lines(workload)
    pinned, newest = workload.source_snapshot_id, workload.source_newest_snapshot_id
    if pinned is not None:
        moved = "" if newest in (None, pinned) else f"; its newest is {newest}"
        yield f"  source at snapshot {pinned}, which the workload has pinned{moved}", None
    for name, value in sorted(workload.parameters.items()):
        yield f"  {name} = {value}", None
    for chunk in chunks:
        if chunk.attempt is None:
            yield f"  {'not begun':<20}{chunk.chunk_id}", None
        else:
            yield from attempt_lines(chunk.chunk_id, chunk.attempt)
            for each in failed.get(chunk.chunk_id, ()):
                yield f"    {failed_text(each, chunk.attempt)}", "yellow"


def attempt_lines(chunk_id: str, attempt: AttemptView) -> Iterator[Line]:
    """A chunk's last attempt: its state, publication, findings, quarantined files and problem."""
    details = f"  {attempt.reason}"
    if attempt.snapshot_id is not None:
        added = "" if attempt.extent is None else f"  {attempt.extent.added}"
        details = f"{added}  snapshot {attempt.snapshot_id}"
    yield f"  {attempt.state.value:<20}{chunk_id}  attempt {attempt.number}{details}", _STYLES.get(attempt.state)
    if attempt.overridden:
        yield f"    *** {override_text(attempt)} ***", ALERT
    if (refusal := attempt.refusal) is not None:
        tail = comparison(refusal.expected, refusal.got)
        message = "" if attempt.reason.endswith(refusal.message) else refusal.message  # the line above shows the reason
        if text := ": ".join(part for part in (message, tail) if part):
            yield f"    {text}", None
    if attempt.located is not None:
        for line in describe(attempt.located):
            yield f"    {line}", None
        if rest := explain_more_keys(attempt.located, attempt.workload_id):
            yield f"    {rest}", None
    for each in attempt.findings:
        yield f"    {each}", None
    if attempt.findings_more:
        yield f"    and {counted(attempt.findings_more, 'finding')} more", None
    if attempt.quarantine is not None:
        folder = attempt.quarantine.folder
        yield f"    its files are in quarantine, each under its SHA-256: {quoted_path(folder)}", None
        for moved in attempt.quarantine.files:
            yield f"      {quoted_path(moved.location.removeprefix(f'{folder}/'))} is {quoted_path(moved.file)}", None
    problem = attempt.problem
    if attempt.job is not None and problem is not None:
        tries = f"{attempt.job.tries} tries, job {attempt.job.state.value}"
        yield f"    the Steward cannot continue ({tries}): {problem.reason}: {problem.message}", "bold red"
        if tail := comparison(problem.expected, problem.got):
            yield f"      {tail}", None
        if problem.hint:
            yield f"      hint: {problem.hint}", None
