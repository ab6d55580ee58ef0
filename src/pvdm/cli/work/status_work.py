"""`pvdm status TABLE` and `pvdm status --workload-id ID`: how workloads and their chunks stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from pvdm.cli.common.screen import say, say_json
from pvdm.cli.common.service import Service
from pvdm.cli.common.times import utc
from pvdm.cli.proof.text import LOUD, Line
from pvdm.cli.table.open_workloads import all_workloads
from pvdm.cli.work.outcome_text import counted, override_words
from pvdm.errors import Code, comparison
from pvdm.model.located import describe, rest_of_keys
from pvdm.model.printable import place, view_json
from pvdm.model.states import AttemptState

if TYPE_CHECKING:
    from pvdm.client import AttemptView, ChunkView, StewardClient, WorkloadView

_STYLES: Final = {
    AttemptState.COMMITTED: "green",
    AttemptState.VERIFICATION_FAILED: "bold red",
    AttemptState.ROLLED_BACK: "yellow",
}


def show_work(service: Service, table: str | None, workload_id: str | None, rows: int, *, as_json: bool) -> None:
    """One workload with its first chunks, or the newest workloads of a table."""
    if table is not None and workload_id is not None:
        raise click.UsageError("a table or a workload, not both")
    with service.connect() as client:
        if workload_id is not None:
            workload = client.workload(workload_id, limit=1).workload
            _show_workload(workload, client.chunks(workload_id, limit=rows), as_json=as_json)
        else:
            found = _workloads(client, str(table))
            if not found:
                _require_table(client, str(table))
            _show_table(str(table), found[:rows], len(found), as_json=as_json)


def _require_table(client: StewardClient, table: str) -> None:
    """A table that no workload ever published to must at least be under protection: names are easily mistyped."""
    if client.protected("table", name=table):
        return
    raise Code.TABLE_UNKNOWN(
        "no table that you may see is protected under this name, and no workload was for it",
        expected="a table's namespace and name, such as sales.orders",
        got=table[:200],
        hint="`pvdm status` shows the workloads that you may see",
    )


def _workloads(client: StewardClient, table: str) -> list[WorkloadView]:
    found = [each for each in all_workloads(client) if each.table == table]
    return sorted(found, key=lambda each: each.changed_at, reverse=True)


def _show_table(table: str, found: list[WorkloadView], total: int, *, as_json: bool) -> None:
    if as_json:
        shown = [view_json(each) for each in found]
        say_json({"table": table, "workloads": shown, "workloads_total": str(total)})
        return
    part = f"{len(found):,} of " if total > len(found) else ""
    say(f"{table}: {part}{counted(total, 'workload')} shown", style="bold")
    for each in found:
        for line, style in workload_lines(each):
            say(line, style=style)


def workload_lines(workload: WorkloadView) -> Iterator[Line]:
    """A workload in a line, with how the last attempts at its chunks stand; and what it waits for, if it does."""
    states = {each.state: each.chunks for each in workload.chunk_states}
    said = ", ".join(f"{count} of {workload.chunk_count} chunks {state.value}" for state, count in states.items())
    bad = AttemptState.VERIFICATION_FAILED in states or workload.problem is not None
    stands = f"{workload.state.value}, {said or f'0 of {workload.chunk_count} chunks begun'}"
    yield f"  {workload.workload_id}  {stands}  {utc(workload.changed_at)}", "bold red" if bad else None
    if workload.problem is not None:
        yield f"    the Steward cannot go on: {workload.problem.reason}: {workload.problem.message}", "bold red"
    for override_id in workload.override_ids:
        yield f"    *** published by override {override_id}, not by proof ***", LOUD


def _show_workload(workload: WorkloadView, chunks: tuple[ChunkView, ...], *, as_json: bool) -> None:
    if as_json:
        say_json({"workload": view_json(workload), "chunks": [view_json(each) for each in chunks]})
        return
    say(f"workload {workload.workload_id} of {workload.table or workload.table_uuid}", style="bold")
    say(f"  {workload.state.value}, {workload.reason}  {utc(workload.changed_at)}")
    say(f"  atomicity {workload.atomicity}, {counted(workload.chunk_count, 'chunk')}, {len(chunks)} shown")
    if workload.source_snapshot_id is not None:
        say(f"  source at snapshot {workload.source_snapshot_id}, as the workload has pinned it{_moved(workload)}")
    for name, value in sorted(workload.parameters.items()):
        say(f"  {name} = {value}")
    for chunk in chunks:
        found = chunk.attempt
        if found is None:
            say(f"  {'not begun':<20}{chunk.chunk_id}")
            continue
        for line, style in attempt_lines(chunk.chunk_id, found):
            say(line, style=style)


def _moved(workload: WorkloadView) -> str:
    newest = workload.source_newest_snapshot_id
    return "" if newest in (None, workload.source_snapshot_id) else f"; its newest is {newest}"


def attempt_lines(chunk_id: str, found: AttemptView) -> Iterator[Line]:
    """A chunk's last attempt: where it stands, what was published by what, what was found, what it waits for."""
    more = f"  {found.reason}"
    if found.snapshot_id is not None:
        added = "" if found.extent is None else f"  {found.extent.added}"
        more = f"{added}  snapshot {found.snapshot_id}"
    yield f"  {found.state.value:<20}{chunk_id}  attempt {found.number}{more}", _STYLES.get(found.state)
    if found.overridden:
        yield f"    *** {override_words(found)} ***", LOUD
    if found.refusal is not None:
        tail = comparison(found.refusal.expected, found.refusal.got)
        message = "" if found.reason.endswith(found.refusal.message) else found.refusal.message  # it stands above then
        if said := ": ".join(part for part in (message, tail) if part):
            yield f"    {said}", None
    if found.located is not None:
        for line in describe(found.located):
            yield f"    {line}", None
        if rest := rest_of_keys(found.located, found.workload_id):
            yield f"    {rest}", None
    for each in found.findings:
        yield f"    {each}", None
    if found.findings_more:
        yield f"    and {counted(found.findings_more, 'finding')} more", None
    if found.quarantine is not None:
        folder = found.quarantine.folder
        yield f"    its files are in quarantine, each under its SHA-256: {place(folder)}", None
        for kept in found.quarantine.files:
            yield f"      {place(kept.location.removeprefix(f'{folder}/'))} is {place(kept.file)}", None
    problem = found.problem
    if found.job is not None and problem is not None:
        tries = f"{found.job.tries} tries, job {found.job.state.value}"
        yield f"    the Steward cannot go on ({tries}): {problem.reason}: {problem.message}", "bold red"
        if tail := comparison(problem.expected, problem.got):
            yield f"      {tail}", None
        if problem.hint:
            yield f"      hint: {problem.hint}", None
