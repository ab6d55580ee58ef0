"""`pvdm protect`, `pvdm unprotect` and `pvdm protections`: signed approvals that start and end protection."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pvdm.cli.common.commands import command
from pvdm.cli.common.files import read_file
from pvdm.cli.common.options import Service, path_option, service_options
from pvdm.cli.common.screen import require_yes, say_list, say_result
from pvdm.cli.table.approvals import Signing, protected_lines, protection_lines, signing_options
from pvdm.errors import Code, InputError
from pvdm.metadata.gate.state import table_metadata, table_ref, target_of
from pvdm.model.printable import view_json
from pvdm.model.role import Role
from pvdm.model.statements import migration
from pvdm.model.statements.table import NamespaceRef
from pvdm.steward.work.contracts import contract_text

if TYPE_CHECKING:
    from pvdm.api.protection import ProtectedView, TargetView
    from pvdm.client import StewardClient


@command("protect")
@click.argument("table", required=False, metavar="[TABLE]")
@click.option("--namespace", metavar="NAMESPACE", help="A namespace instead: its new tables are created protected.")
@path_option("--contract", "contract_file", required=True, help="The contract.")
@signing_options
@service_options
def protect(
    *, table: str | None, namespace: str | None, contract_file: Path, signing: Signing, service: Service
) -> None:
    """Put a table under a contract: from then on its main changes by a proof or a signed migration only.

    You sign the table as it is now (UUID, name, schema, structure, and the snapshot of its main) with your own key,
    which is not sent. The Steward verifies the approval, logs it and protects the table in one step. If main has
    changed meanwhile, it refuses: check the table and sign again. Every later snapshot must be proved.

    The contract (`pvdm validate` checks it, docs/contract.md is its reference) names this table as its target; the
    Steward stores it. Every table that is created in a protected namespace is protected.

    \b
    Examples:
      pvdm protect sales.orders --contract orders.yaml --key tom.pem --operator tom --reason "orders go live"
      pvdm protect --namespace curated --contract curated.yaml --key tom.pem --operator tom --reason "…"
    """
    contract = contract_text(read_file(contract_file, size_max_bytes=migration.CONTRACT_MAX_BYTES), str(contract_file))
    with service.connect() as client:
        require_operator(client)
        target = _find_one_target(client, table, namespace)
        _sign_and_submit(client, signing, target, migration.contract_sha256(contract), contract)


@command("unprotect")
@click.argument("table", required=False, metavar="[TABLE]")
@click.option("--namespace", metavar="NAMESPACE", help="A namespace instead; tables that are in it stay protected.")
@click.option("--yes", is_flag=True, help="Sign without asking.")
@signing_options
@service_options
def unprotect(*, table: str | None, namespace: str | None, yes: bool, signing: Signing, service: Service) -> None:
    """End the protection of a table: every job with write access can then change its main.

    The approval is signed with your own key and logged. Audits report the time from here to the next protection as a
    gap, and end with 3 until the auditor accepts it.

    \b
    Examples:
      pvdm unprotect sales.orders --key tom.pem --operator tom --reason "orders are retired"
      pvdm unprotect --namespace curated --key tom.pem --operator tom --reason "…"
    """
    with service.connect() as client:
        require_operator(client)
        target = _find_one_target(client, table, namespace)
        if target.contract_sha256 is None:
            raise Code.NOT_PROTECTED(f"{target.name} is not protected", hint="nothing was changed")
        if not yes:
            lines = [
                (f"{target.kind} {target.name}, protected by contract {target.contract_sha256}", None),
                ("audits report a gap in protection from here on, and end with 3 until it is accepted", None),
            ]
            require_yes("allow changes without a proof, in your name?", lines)
        _sign_and_submit(client, signing, target, target.contract_sha256, None)


@command("protections")
@click.argument("table", required=False, metavar="[TABLE]")
@click.option("--current", is_flag=True, help="What is protected now, with tables that were created protected.")
@click.option("--namespace", metavar="NAMESPACE", help="With --current: this namespace and its tables only.")
@service_options
def protections(*, table: str | None, current: bool, namespace: str | None, service: Service) -> None:
    """List the protections, and their ends, that the Steward has accepted, newest first: who, what, contract and why.

    With --current: the namespaces and tables that are protected now, since when, and by which protection. A table
    that was created in a protected namespace stays protected when the protection of the namespace ends.

    \b
    Examples:
      pvdm protections --url https://steward.example:8181
      pvdm protections --json | jq '.protections[] | {name, action, operator}'
      pvdm protections --current
      pvdm protections --current sales.orders
      pvdm protections --current --namespace sales --json | jq '.protected[].name'
    """
    if not current and (table is not None or namespace is not None):
        raise click.UsageError("name a TABLE, or --namespace, with --current only")
    if table is not None and namespace is not None:
        raise click.UsageError("name a TABLE, or a namespace with --namespace")
    with service.connect() as client:
        if current:
            protected = _fetch_protected(client, table, namespace)
            say_list("protected", protected, protected_lines, "nothing that you named is protected now")
            return
        views = client.protections()
    say_list("protections", views, protection_lines, "nothing was ever protected here")


def _fetch_protected(client: StewardClient, table: str | None, namespace: str | None) -> list[ProtectedView]:
    """What is protected now, page by page: namespaces first, then tables."""
    views: list[ProtectedView] = []
    for kind in ("namespace", "table") if table is None else ("table",):
        after: str | None = None
        while page := client.protected(kind, namespace=namespace, name=table, after=after):
            views += page
            after = page[-1].name
    return views


def require_operator(client: StewardClient) -> None:
    """Raise unless the token is an operator's, which submitting needs. Called before anything is signed."""
    role = client.identity().role
    if role is not Role.OPERATOR:
        hint = "nothing was signed; name an operator's token with --token-file"
        raise Code.PERMISSION_DENIED(reason="role_wrong", expected=Role.OPERATOR.value, got=role.value, hint=hint)


def find_target(client: StewardClient, kind: str, name: str) -> TargetView:
    """The table or namespace. Raises with a hint about names if there is none."""
    try:
        return client.target(kind, name)
    except InputError as error:
        if error.code not in (Code.TABLE_UNKNOWN, Code.NAMESPACE_UNKNOWN):
            raise
        hint = (
            "name a table by its namespace and name, such as sales.orders, without Spark's name of the catalog"
            " (lake in lake.sales.orders)"
        )
        raise InputError(error.reason, error.message, expected=error.expected, got=error.got, hint=hint) from None


def _find_one_target(client: StewardClient, table: str | None, namespace: str | None) -> TargetView:
    """The table or namespace. Raises unless exactly one is named."""
    if table is not None and namespace is None:
        return find_target(client, "table", table)
    if namespace is not None and table is None:
        return find_target(client, "namespace", namespace)
    raise click.UsageError("name a TABLE, or a namespace with --namespace")


def _sign_and_submit(
    client: StewardClient, signing: Signing, view: TargetView, contract_sha256: str, contract: str | None
) -> None:
    """Sign and submit an approval for the target as it is now. Without `contract` the approval ends the protection."""
    target: migration.TableTarget | migration.NamespaceTarget
    if view.kind == "namespace":
        target = migration.NamespaceTarget(NamespaceRef(view.catalog, view.id, view.name), contract_sha256)
    else:
        target = target_of(table_ref(view), table_metadata(view), contract_sha256)
    action = migration.ProtectionAction.UNPROTECT if contract is None else migration.ProtectionAction.PROTECT
    approval = migration.Protection(action=action, target=target, contract=contract, **signing.new_signer_fields())
    protection = client.submit_protection(signing.sign(approval))
    say_result({"protection": view_json(protection)}, protection_lines(protection))
