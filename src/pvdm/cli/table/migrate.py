"""`pvdm migrate`: a change of a protected table is proposed, shown as a difference, signed by an operator, applied."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pvdm.cli.common.confirm import require_yes
from pvdm.cli.common.files import read_file, require_json, require_new, write_new
from pvdm.cli.common.options import PlaceType, json_option, require_command
from pvdm.cli.common.screen import notice, say, say_json
from pvdm.cli.common.service import Service, service_options
from pvdm.cli.common.times import utc
from pvdm.cli.proof.text import Line
from pvdm.cli.table.approval_text import Signing, migration_lines, signing_options, state_lines, submitted_lines
from pvdm.cli.table.migrate_changes import Wishes, traps_of, updates_of
from pvdm.cli.table.migrate_proposal import (
    PROPOSAL_SIZE_MAX_BYTES,
    Proposal,
    propose,
    read_proposal,
    require_signed,
    warn_of_unclaimed,
)
from pvdm.cli.table.open_workloads import Effect, effect_of, find_open, open_lines
from pvdm.cli.table.protect import find_target, table_metadata, table_ref
from pvdm.errors import Code
from pvdm.model.statements.migration import CONTRACT_MAX_BYTES, MIGRATION_UPDATES_MAX_BYTES, Migration
from pvdm.steward.work.contracts import contract_text
from pvdm.trust.envelope import ENVELOPE_SIZE_MAX_BYTES

if TYPE_CHECKING:
    from pvdm.client import StewardClient


@click.group("migrate", short_help="Change a protected table by a signed migration.", invoke_without_command=True)
@click.pass_context
def migrate(context: click.Context) -> None:
    """Change schema, partition spec, sort order, properties, format version or contract of a protected table.

    What is proposed is a file with the difference; an operator reads and signs exactly that; the Steward applies it
    if the table is still as it was, and logs it. Rows are never touched: they come by proofs.

    \b
    Examples:
      pvdm migrate propose sales.orders --add-column channel:string --out proposal.json
      pvdm migrate sign proposal.json --key tom.pem --operator tom --reason "orders by channel" --out migration.json
      pvdm migrate submit migration.json
    """
    require_command(context)


@migrate.command("propose", short_help="Work out what a change would make of a table.")
@json_option
@click.argument("table", metavar="TABLE")
@click.option("--updates", "updates_file", type=PlaceType(), metavar="FILE", help="Iceberg's updates as JSON.")
@click.option(
    "--add-column", "add", multiple=True, metavar="NAME:TYPE", help="A new optional column; TYPE as Iceberg has it."
)
@click.option("--drop-column", "drop", multiple=True, metavar="NAME", help="A column that goes.")
@click.option("--rename-column", "rename", multiple=True, metavar="OLD:NEW", help="A column with another name.")
@click.option("--set-property", "properties", multiple=True, metavar="NAME=VALUE", help="A property.")
@click.option("--remove-property", "removed", multiple=True, metavar="NAME", help="A property that goes.")
@click.option("--format-version", type=click.IntRange(1, 3), metavar="N", help="A later format version.")
@click.option("--contract", "contract_file", type=PlaceType(), metavar="FILE", help="Another contract.")
@click.option("--out", type=PlaceType(), metavar="FILE", help="Where the proposal goes; never over another file.")
@service_options
def migrate_propose(  # noqa: PLR0913 - every kind of change is named
    *,
    as_json: bool,
    table: str,
    updates_file: Path | None,
    add: tuple[str, ...],
    drop: tuple[str, ...],
    rename: tuple[str, ...],
    properties: tuple[str, ...],
    removed: tuple[str, ...],
    format_version: int | None,
    contract_file: Path | None,
    out: Path | None,
    service: Service,
) -> None:
    """Show what a change would make of a protected table, and write it down for an operator to sign.

    Nothing is changed. The difference shows columns by their ids, specs, sort orders and properties, and the schema
    fingerprint before and after: proofs of before do not fit the table afterwards. Another contract is shown as a
    difference of the two texts. Open workloads that the change ends or affects are listed with their chunks that are
    published and left.

    A TYPE is one of Iceberg's: boolean, int, long, float, double, decimal(P,S), date, time, timestamp (without a
    zone), timestamptz (Spark's TIMESTAMP), string, uuid, fixed[L], binary. Nested ones come by --updates.

    \b
    Examples:
      pvdm migrate propose sales.orders --add-column channel:string --out proposal.json
      pvdm migrate propose sales.orders --rename-column town:city --set-property owner=sales
      pvdm migrate propose sales.orders --updates updates.json --contract orders-2.yaml --out proposal.json
    """
    if out is not None:
        require_new(out)
    read = None if updates_file is None else read_file(updates_file, size_max_bytes=MIGRATION_UPDATES_MAX_BYTES)
    contract = None
    if contract_file is not None:
        contract = contract_text(read_file(contract_file, size_max_bytes=CONTRACT_MAX_BYTES), str(contract_file))
    wishes = Wishes(add, drop, rename, properties, removed, format_version, read)
    with service.connect() as client:
        proposal = _proposed(client, table, wishes, contract)
    for trap in (*traps_of(wishes), *warn_of_unclaimed(proposal)):
        notice(trap)
    if out is not None:
        write_new(out, proposal.to_bytes())
    if as_json:
        say_json({**_proposal_json(proposal), "out": None if out is None else str(out)})
        return
    _say(_proposal_lines(proposal, cut=True))
    if proposal.lines(cut=True) != proposal.lines():
        say("  long values are cut here; --json and `pvdm migrate sign` show them whole", style="yellow")
    say()
    say("nothing was changed" if out is None else f"proposed: {out}; nothing was changed")
    say(f"hint: an operator signs it: `pvdm migrate sign {out or 'FILE'} …`")


@migrate.command("sign", short_help="Read a proposal and sign it.")
@json_option
@click.argument("file", type=PlaceType(), metavar="FILE")
@click.option("--yes", is_flag=True, help="Sign without asking.")
@click.option("--out", type=PlaceType(), required=True, metavar="FILE", help="Where it goes; never over another file.")
@signing_options
def migrate_sign(*, as_json: bool, file: Path, yes: bool, out: Path, signing: Signing) -> None:
    """Show the difference that a proposal makes, whole, and sign exactly that, offline.

    Before anything is signed the proposal is worked out again: the updates must lead from the structure before to the
    structure after, to the last property. Your private key stays on your side. Open workloads are shown as they were
    when the change was proposed; `pvdm status TABLE` shows them as they are now.

    \b
    Examples:
      pvdm migrate sign proposal.json --key tom.pem --operator tom --reason "orders by channel" --out migration.json
    """
    require_new(out)
    data = read_file(file, size_max_bytes=PROPOSAL_SIZE_MAX_BYTES)
    require_json(file, data, "a proposal")
    proposal = read_proposal(data)
    said = Migration(
        table=proposal.table,
        before=proposal.before,
        after=proposal.after,
        updates=proposal.updates,
        contract=proposal.contract,
        **signing.facts(),
    )
    lines = [*_proposal_lines(proposal), *_signed_lines(said)]
    for trap in warn_of_unclaimed(proposal):
        notice(trap)
    if not yes:
        require_yes("change the table so, in your name?", lines)
    write_new(out, signing.sign(said))
    if as_json:
        say_json({**_proposal_json(proposal), "operator": said.operator, "out": str(out)})
        return
    _say(lines)
    say()
    say(f"signed: {out}; nothing was changed yet")
    say(f"hint: `pvdm migrate submit {out}` before {utc(said.expires_at)}")


@migrate.command("submit", short_help="Hand a signed migration in.")
@json_option
@click.argument("file", type=PlaceType(), metavar="FILE")
@service_options
def migrate_submit(*, as_json: bool, file: Path, service: Service) -> None:
    """Hand a signed migration to the Steward, which verifies, logs and applies it. The same file again changes nothing.

    Needs an operator's token. One that was applied before is reported as ALREADY APPLIED, with the contract that is in
    force by now; in --json `applied` is `now` or `before`. One that does not hold, or is for a table that moved on,
    ends with 5: nothing changed.

    \b
    Examples:
      pvdm migrate submit migration.json --url https://steward.example:8181 --token-file token
    """
    envelope = read_file(file, size_max_bytes=ENVELOPE_SIZE_MAX_BYTES)
    require_signed(envelope, file.name)
    with service.connect() as client:
        found = client.submit_migration(envelope)
    if as_json:
        say_json(
            {
                "applied": found.applied.value,
                "applied_at": found.applied_at,
                "contract_in_force": found.contract_sha256,
                "migration": found.migration.model_dump(mode="json"),
            }
        )
        return
    _say(submitted_lines(found))


@migrate.command("list", short_help="List every migration there ever was.")
@json_option
@service_options
def migrate_list(*, as_json: bool, service: Service) -> None:
    """List the migrations that the Steward has applied, newest first: who, which table, why.

    \b
    Examples:
      pvdm migrate list --url https://steward.example:8181
      pvdm migrate list --json | jq '.migrations[] | {table, operator, reason}'
    """
    with service.connect() as client:
        views = client.migrations()
    if as_json:
        say_json({"migrations": [view.model_dump(mode="json") for view in views]})
        return
    if not views:
        say("no table was ever migrated here")
    for view in views:
        say(f"{utc(view.issued_at)}  {view.table}  {view.operator}: {view.reason}  {view.migration_id}")


@migrate.command("show", short_help="Show one migration.")
@json_option
@click.argument("migration_id", metavar="ID")
@service_options
def migrate_show(*, as_json: bool, migration_id: str, service: Service) -> None:
    """Show one migration whole: both states, the updates, its place in the log.

    \b
    Examples:
      pvdm migrate show ID --url https://steward.example:8181
    """
    with service.connect() as client:
        view = client.migration(migration_id)
    if as_json:
        say_json({"migration": view.model_dump(mode="json")})
        return
    _say(migration_lines(view))


def _proposed(client: StewardClient, table: str, wishes: Wishes, contract: str | None) -> Proposal:
    """What the wishes make of the table as it is now; the contract in force is read for who compares the two."""
    found = find_target(client, "table", table)
    if found.contract_sha256 is None:
        raise Code.NOT_PROTECTED(
            f"{found.name} is not protected", hint="a table without protection changes by ordinary commits"
        )
    contracts = None if contract is None else (client.contract(found.contract_sha256).decode(), contract)
    metadata = table_metadata(found)
    made = propose(table_ref(found), metadata, found.contract_sha256, updates_of(metadata, wishes), contracts)
    if effect_of(made.before, made.after) is Effect.NONE:
        return made
    return replace(made, open_workloads=find_open(client, made.table.uuid))


def _proposal_lines(proposal: Proposal, *, cut: bool = False) -> list[Line]:
    styles = {"+": "green", "-": "red", "~": "yellow"}
    found: list[Line] = [(f"{proposal.table.name} in {proposal.table.catalog}, {proposal.table.uuid}", None)]
    found += [(f"  {line}", styles[line[0]]) for line in proposal.lines(cut=cut)]
    found += [(f"    {line}", styles.get(line[:1])) for line in proposal.contract_lines()]
    affected = open_lines(proposal.open_workloads, effect_of(proposal.before, proposal.after))
    return [*found, *state_lines(proposal.before, proposal.after), *affected]


def _signed_lines(said: Migration) -> list[Line]:
    """What is signed beside the difference."""
    return [
        (f"  {'updates':<14}{said.updates}", None),
        (f"  {'operator':<14}{said.operator}: {said.reason}", None),
        (f"  {'good until':<14}{utc(said.expires_at)}", None),
    ]


def _proposal_json(proposal: Proposal) -> dict[str, object]:
    return {
        "table": proposal.table.to_json(),
        "before": proposal.before.to_json(),
        "after": proposal.after.to_json(),
        "difference": proposal.lines(),
        "contract_difference": proposal.contract_lines(),
        "updates": proposal.updates,
        "open_workloads_effect": effect_of(proposal.before, proposal.after).value,
        "open_workloads": [each.to_json() for each in proposal.open_workloads],
    }


def _say(lines: Iterable[Line]) -> None:
    for line, style in lines:
        say(line, style=style)
