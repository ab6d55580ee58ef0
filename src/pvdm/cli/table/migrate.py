"""`pvdm migrate`: proposes, shows, signs and applies changes of a protected table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pvdm.cli.common.commands import command_group
from pvdm.cli.common.files import read_file, require_json, require_new, write_new
from pvdm.cli.common.options import Service, out_option, path_argument, path_option, service_options
from pvdm.cli.common.screen import Line, notice, require_yes, say_result
from pvdm.cli.common.times import utc
from pvdm.cli.table import migrate_proposal
from pvdm.cli.table.approvals import Signing, migration_lines, signing_options, state_lines, submitted_lines
from pvdm.cli.table.migrate_changes import Changes, make_updates, type_warnings
from pvdm.cli.table.open_workloads import Effect, find_effect, find_open_workloads, open_lines
from pvdm.cli.table.protect import find_target
from pvdm.errors import Code
from pvdm.metadata.gate.state import table_metadata, table_ref
from pvdm.model.statements.migration import CONTRACT_MAX_BYTES, MIGRATION_UPDATES_MAX_BYTES, Migration
from pvdm.steward.work.contracts import contract_text
from pvdm.trust.envelope import ENVELOPE_SIZE_MAX_BYTES

if TYPE_CHECKING:
    from pvdm.client import StewardClient


@command_group("migrate")
def migrate() -> None:
    """Change schema, partition spec, sort order, properties, format version or contract of a protected table.

    A proposal is a file with the difference. An operator reads and signs it. The Steward applies it if the table is
    still as it was, and logs it. A migration never changes rows: they need proofs.

    \b
    Examples:
      pvdm migrate propose sales.orders --add-column channel:string --out proposal.json
      pvdm migrate sign proposal.json --key tom.pem --operator tom --reason "orders by channel" --out migration.json
      pvdm migrate submit migration.json
    """


@migrate.command("propose", short_help="Propose a change of a protected table.")
@click.argument("table", metavar="TABLE")
@path_option("--updates", "updates_file", help="Iceberg's updates as JSON.")
@click.option(
    "--add-column", "add", multiple=True, metavar="NAME:TYPE", help="A new optional column; TYPE is Iceberg's."
)
@click.option("--drop-column", "drop", multiple=True, metavar="NAME", help="A column to drop.")
@click.option("--rename-column", "rename", multiple=True, metavar="OLD:NEW", help="A column to rename.")
@click.option("--set-property", "properties", multiple=True, metavar="NAME=VALUE", help="A property to set.")
@click.option("--remove-property", "removed", multiple=True, metavar="NAME", help="A property to remove.")
@click.option("--format-version", type=click.IntRange(1, 3), metavar="N", help="A later format version.")
@path_option("--contract", "contract_file", help="The new contract.")
@path_option("--out", help="The new file for the proposal; an existing file is not overwritten.")
@service_options
def migrate_propose(  # noqa: PLR0913 - every kind of change is named
    *,
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
    """Show how a protected table would change, and with --out write a proposal for an operator to sign.

    Nothing is changed. The difference shows columns with their ids, specs, sort orders and properties, and the schema
    fingerprint before and after. If schema, partition spec, format version or contract changes, the gate refuses proofs
    from before. A new contract is shown as a difference of the two texts. Open workloads that the change ends or
    affects are listed with the number of their published and remaining chunks.

    A TYPE is one of Iceberg's: boolean, int, long, float, double, decimal(P,S), date, time, timestamp (without a
    zone), timestamptz (Spark's TIMESTAMP), string, uuid, fixed[L], binary. Nested types need --updates.

    \b
    Examples:
      pvdm migrate propose sales.orders --add-column channel:string --out proposal.json
      pvdm migrate propose sales.orders --rename-column town:city --set-property owner=sales
      pvdm migrate propose sales.orders --updates updates.json --contract orders-2.yaml --out proposal.json
    """
    if out is not None:
        require_new(out)
    updates = None if updates_file is None else read_file(updates_file, size_max_bytes=MIGRATION_UPDATES_MAX_BYTES)
    contract = None
    if contract_file is not None:
        contract = contract_text(read_file(contract_file, size_max_bytes=CONTRACT_MAX_BYTES), str(contract_file))
    changes = Changes(add, drop, rename, properties, removed, format_version, updates)
    with service.connect() as client:
        proposal = _propose(client, table, changes, contract)
    for warning in (*type_warnings(changes), *migrate_proposal.claim_warnings(proposal)):
        notice(warning)
    if out is not None:
        write_new(out, proposal.to_bytes())
    lines: list[Line | str] = [*_proposal_lines(proposal, shorten=True)]
    if proposal.lines(shorten=True) != proposal.lines():
        lines.append(("  long values are cut here; --json and `pvdm migrate sign` show them whole", "yellow"))
    lines += [
        "",
        "nothing was changed" if out is None else f"proposed: {out}; nothing was changed",
        f"hint: an operator signs it: `pvdm migrate sign {out or 'FILE'} …`",
    ]
    say_result({**_proposal_json(proposal), "out": out}, lines)


@migrate.command("sign", short_help="Read a proposal and sign it.")
@path_argument("file")
@click.option("--yes", is_flag=True, help="Sign without asking.")
@out_option()
@signing_options
def migrate_sign(*, file: Path, yes: bool, out: Path, signing: Signing) -> None:
    """Show the whole difference of a proposal, and sign it, offline.

    Before it is signed, the proposal is computed again: the updates must lead from the structure before to exactly the
    structure after. Your private key is not sent. Open workloads are shown as they were when the change was proposed;
    `pvdm status TABLE` shows them as they are now.

    \b
    Examples:
      pvdm migrate sign proposal.json --key tom.pem --operator tom --reason "orders by channel" --out migration.json
    """
    require_new(out)
    data = read_file(file, size_max_bytes=migrate_proposal.PROPOSAL_SIZE_MAX_BYTES)
    require_json(file, data, "a proposal")
    proposal = migrate_proposal.read_proposal(data)
    migration = Migration(
        table=proposal.table,
        before=proposal.before,
        after=proposal.after,
        updates=proposal.updates,
        contract=proposal.contract,
        **signing.new_signer_fields(),
    )
    lines: list[Line] = [
        *_proposal_lines(proposal),
        (f"  {'updates':<14}{migration.updates}", None),
        (f"  {'operator':<14}{migration.operator}: {migration.reason}", None),
        (f"  {'valid until':<14}{utc(migration.expires_at)}", None),
    ]
    for warning in migrate_proposal.claim_warnings(proposal):
        notice(warning)
    if not yes:
        require_yes("change the table like this, in your name?", lines)
    write_new(out, signing.sign(migration))
    document = {**_proposal_json(proposal), "operator": migration.operator, "out": out}
    hint = f"hint: `pvdm migrate submit {out}` before {utc(migration.expires_at)}"
    say_result(document, [*lines, "", f"signed: {out}; nothing was changed yet", hint])


@migrate.command("submit", short_help="Submit a signed migration.")
@path_argument("file")
@service_options
def migrate_submit(*, file: Path, service: Service) -> None:
    """Submit a signed migration, which the Steward verifies, logs and applies. The same file again changes nothing.

    Needs an operator's token. A migration that was applied before is reported as ALREADY APPLIED, with the contract
    that is in force now; in --json `applied` is `now` or `before`. If the migration is not
    valid, or the table has changed since, the command ends with 5 and nothing is changed.

    \b
    Examples:
      pvdm migrate submit migration.json --url https://steward.example:8181 --token-file token
    """
    envelope = read_file(file, size_max_bytes=ENVELOPE_SIZE_MAX_BYTES)
    migrate_proposal.require_not_proposal(envelope, file.name)
    with service.connect() as client:
        submitted = client.submit_migration(envelope)
    document = {
        "applied": submitted.applied.value,
        "applied_at": submitted.applied_at,
        "contract_in_force": submitted.contract_sha256,
        "migration": submitted.migration.model_dump(mode="json"),
    }
    say_result(document, submitted_lines(submitted))


@migrate.command("list", short_help="List all migrations.")
@service_options
def migrate_list(*, service: Service) -> None:
    """List the migrations that the Steward has applied, newest first: who, which table, why.

    \b
    Examples:
      pvdm migrate list --url https://steward.example:8181
      pvdm migrate list --json | jq '.migrations[] | {table, operator, reason}'
    """
    with service.connect() as client:
        views = client.migrations()
    lines = [
        f"{utc(view.issued_at)}  {view.table}  {view.operator}: {view.reason}  {view.migration_id}" for view in views
    ]
    document = {"migrations": [view.model_dump(mode="json") for view in views]}
    say_result(document, lines or ["no table was ever migrated here"])


@migrate.command("show", short_help="Show one migration.")
@click.argument("migration_id", metavar="ID")
@service_options
def migrate_show(*, migration_id: str, service: Service) -> None:
    """Show one migration whole: both states, the updates, its place in the log.

    \b
    Examples:
      pvdm migrate show ID --url https://steward.example:8181
    """
    with service.connect() as client:
        view = client.migration(migration_id)
    say_result({"migration": view.model_dump(mode="json")}, migration_lines(view))


def _propose(client: StewardClient, table: str, changes: Changes, contract: str | None) -> migrate_proposal.Proposal:
    """The proposal for the table as it is now, with both contracts and the open workloads that it affects."""
    target = find_target(client, "table", table)
    if target.contract_sha256 is None:
        hint = "a table without protection changes by ordinary commits"
        raise Code.NOT_PROTECTED(f"{target.name} is not protected", hint=hint)
    metadata, in_force = table_metadata(target), client.contract(target.contract_sha256).decode()
    updates = make_updates(metadata, changes)
    proposal = migrate_proposal.propose(table_ref(target), metadata, updates, (in_force, contract or in_force))
    if find_effect(proposal.before, proposal.after) is Effect.NONE:
        return proposal
    return replace(proposal, open_workloads=find_open_workloads(client, proposal.table.uuid))


def _proposal_lines(proposal: migrate_proposal.Proposal, *, shorten: bool = False) -> list[Line]:
    styles = {"+": "green", "-": "red", "~": "yellow"}
    lines: list[Line] = [(f"{proposal.table.name} in {proposal.table.catalog}, {proposal.table.uuid}", None)]
    lines += [(f"  {line}", styles[line[0]]) for line in proposal.lines(shorten=shorten)]
    lines += [(f"    {line}", styles.get(line[:1])) for line in proposal.contract_lines()]
    lines += state_lines(proposal.before, proposal.after)
    lines += open_lines(proposal.open_workloads, find_effect(proposal.before, proposal.after))
    return lines


def _proposal_json(proposal: migrate_proposal.Proposal) -> dict[str, object]:
    return {
        "table": proposal.table.to_json(),
        "before": proposal.before.to_json(),
        "after": proposal.after.to_json(),
        "difference": proposal.lines(),
        "contract_difference": proposal.contract_lines(),
        "updates": proposal.updates,
        "open_workloads_effect": find_effect(proposal.before, proposal.after).value,
        "open_workloads": [each.to_json() for each in proposal.open_workloads],
    }
