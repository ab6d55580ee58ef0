"""`pvdm status`: how a Steward stands, in one look, break-glass first; or one table's workloads, or one workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from pvdm.cli.common.options import json_option
from pvdm.cli.common.screen import say, say_json
from pvdm.cli.common.service import Service, service_options
from pvdm.cli.common.times import utc
from pvdm.cli.common.views import override_view_lines, proof_view_line
from pvdm.cli.work.status_work import show_work, workload_lines
from pvdm.errors import Code, NotAllowedError, UnavailableError
from pvdm.model.printable import counted, view_json
from pvdm.model.statements.epoch import EpochStage

if TYPE_CHECKING:
    from pvdm.client import (
        EpochView,
        Identity,
        ListedJob,
        NewestWorkloads,
        OverrideView,
        ProofView,
        Readiness,
        StewardClient,
        StewardInfo,
    )

_ROWS: Final = 1_000
_DEFAULT_ROWS: Final = 20
_FAILED: Final = "failed"
_WAITING: Final = "waiting"
_NOT_SHOWN: Final = frozenset({Code.DOMAIN_WRONG, Code.ROLE_WRONG, Code.TOKEN_OF_OTHER_ATTEMPT})
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Status:
    """What the bearer of the token may see; None is what this role is not shown."""

    readiness: Readiness
    info: StewardInfo
    identity: Identity
    epochs: tuple[EpochView, ...] | None
    overrides: tuple[OverrideView, ...] | None
    workloads: NewestWorkloads | None
    proofs: tuple[ProofView, ...] | None
    jobs: tuple[ListedJob, ...] | None


@click.command("status", short_help="How a Steward, a table or a workload stands.")
@json_option
@click.argument("table", metavar="[TABLE]", required=False)
@click.option("--workload-id", metavar="ID", help="Show one workload with its chunks.")
@service_options
@click.option(
    "--rows",
    type=click.IntRange(1, _ROWS),
    default=_DEFAULT_ROWS,
    show_default=True,
    help="Workloads, newest first, and proofs to show.",
)
def status(*, as_json: bool, table: str | None, workload_id: str | None, service: Service, rows: int) -> None:
    """Show whether the Steward takes work, its epochs, workloads and proofs, and every verdict that was overridden.

    Shows what your role may see, and says what it may not. Ends with 7 when the Steward is not ready. Give a
    table or --workload-id to see only that.

    \b
    Examples:
      pvdm status --url https://steward.example:8181 --token-file token
      pvdm status --json | jq '.readiness'
      pvdm status sales.orders
      pvdm status --workload-id orders-2026-11-15
    """
    if table is not None or workload_id is not None:
        show_work(service, table, workload_id, rows, as_json=as_json)
        return
    with service.connect() as client:
        found = _ask(client, rows)
    if as_json:
        say_json(_to_json(found))
    else:
        _tell(found)
    if not found.readiness.ready:
        click.get_current_context().exit(UnavailableError.exit_code)


def _ask(client: StewardClient, rows: int) -> Status:
    return Status(
        client.readiness(),
        client.info(),
        client.identity(),
        _allowed(client.epochs),
        _allowed(client.overrides),
        _allowed(lambda: client.newest_workloads(limit=rows)),
        _allowed(lambda: client.proofs(limit=rows)),
        _allowed(lambda: client.jobs(limit=_ROWS)),
    )


def _allowed(ask: Callable[[], _T]) -> _T | None:
    try:
        return ask()
    except NotAllowedError as error:
        if error.code not in _NOT_SHOWN:
            raise  # a token that ends in between is no answer
        return None


def _to_json(found: Status) -> dict[str, object]:
    return {
        "readiness": {
            "ready": found.readiness.ready,
            "reasons": [reason.to_json() for reason in found.readiness.reasons],
        },
        "steward": view_json(found.info),
        "identity": view_json(found.identity),
        "epochs": _views(found.epochs),
        "overrides": _views(found.overrides),
        "workloads": None if found.workloads is None else _views(found.workloads.workloads),
        "workloads_total": None if found.workloads is None else str(found.workloads.total),
        "proofs": _views(found.proofs),
        "jobs": _views(found.jobs),
    }


def _views(views: tuple[Any, ...] | None) -> list[dict[str, object]] | None:
    return None if views is None else [view_json(view) for view in views]


def _tell(found: Status) -> None:
    info = found.info
    for view in found.overrides or ():
        for line, style in override_view_lines(view):
            say(line, style=style)
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
    served = "none: steward.toml has no [catalog]"
    if info.catalog is not None:
        served = f"{info.catalog.name}, tables in {info.catalog.warehouse}"
    say(f"  catalog     {served}")
    you = found.identity
    reach = "every domain" if you.domain == "*" else f"domain {you.domain}"
    say(f"  you are     {you.name}, {you.role.value} of {reach}, until {utc(you.expires_at)}")
    _tell_epochs(found)
    _tell_jobs(found)
    _tell_work(found)


def _tell_epochs(found: Status) -> None:
    if found.epochs is None:
        say(f"  epoch       {found.info.active_epoch or 'none active'}")
    for epoch in found.epochs or ():
        say(f"  epoch       {epoch.number} {epoch.state.value}")
    created = [epoch.number for epoch in found.epochs or () if epoch.state is EpochStage.CREATED]
    if created and found.info.active_epoch is None:
        # So it stands after a restore, and nothing else says what is still to be done.
        say("  hint: no epoch is active, so no workload opens. Name the keys of the newest in the trust root")
        say(f"        (`pvdm keys root next`, `submit`), then `pvdm keys activate {max(created)}`")


def _tell_jobs(found: Status) -> None:
    """How many there are, and each that does not get on."""
    jobs = found.jobs
    if jobs is None:
        return
    states = Counter(job.state.value for job in jobs)
    said = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    say(f"  jobs        {said or 'none waiting'}")
    for job in jobs:
        if job.state.value not in (_FAILED, _WAITING):
            continue
        what = f"{job.kind} {job.subject}".strip()
        problem = "" if job.problem is None else f": {job.problem.reason}: {job.problem.message}"
        whose = "" if job.workload_id is None else f" of {job.workload_id} ({job.table or 'its table is gone'})"
        line = f"  {job.state.name} JOB: {what}{whose}, {counted(job.tries, 'try', 'tries')}{problem}"
        say(line, style="bold red" if job.state.value == _FAILED else "yellow")
    if states[_FAILED]:
        say("  hint: a failed job is taken up again at the Steward's next start; its log says more")


def _count_shown(found: NewestWorkloads) -> str:
    shown = len(found.workloads)
    return f"{shown:,} shown" if shown >= found.total else f"{shown:,} of {found.total:,} shown"


def _tell_work(found: Status) -> None:
    role = found.identity.role.value
    if found.workloads is None:
        say(f"workloads: not shown to the role {role}")
    else:
        say(f"workloads, newest first: {_count_shown(found.workloads)}", style="bold")
        for workload in found.workloads.workloads:
            for line, style in workload_lines(workload):
                say(line, style=style)
    if found.proofs is None:
        say(f"proofs: not shown to the role {role}")
        return
    say(f"proofs: {len(found.proofs)} shown", style="bold")
    for proof in found.proofs:
        line, style = proof_view_line(proof)
        say(f"  {line}", style=style)
