"""What `protect`, `migrate` and `claims` share: the options for signing, and approvals as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pvdm.cli.common.options import option_group, path_option
from pvdm.cli.common.passphrases import open_key, open_passphrase_option
from pvdm.cli.common.screen import ALERT, Line
from pvdm.cli.common.times import duration_option, now_micros, utc
from pvdm.model.statements import migration
from pvdm.model.statements.claim_release import ClaimRelease
from pvdm.trust.approval import SignerFields, signer_fields
from pvdm.trust.verify import sign_statement

if TYPE_CHECKING:
    from pvdm.api.protection import MigrationView, ProtectedView, ProtectionView, SubmittedMigration


@dataclass(frozen=True, slots=True)
class Signing:
    """The options for a signed approval. The approval can be submitted for `lifetime_micros` after it is signed."""

    key_file: Path
    passphrase_source: str | None
    operator: str
    reason: str
    lifetime_micros: int

    def new_signer_fields(self) -> SignerFields:
        """The signer's fields of an approval, with a new nonce."""
        return signer_fields(self.operator, self.reason, now=now_micros(), lifetime_micros=self.lifetime_micros)

    def sign(self, statement: migration.Migration | migration.Protection | ClaimRelease) -> bytes:
        """The signed envelope of the approval."""
        return sign_statement(statement, open_key(self.key_file, self.passphrase_source)).to_bytes()


signing_options = option_group(
    "signing",
    Signing,
    path_option("--key", "key_file", required=True, help="Your operator's private key."),
    open_passphrase_option,
    click.option("--operator", required=True, metavar="NAME", help="Your name, as the trust root has it."),
    click.option("--reason", required=True, metavar="TEXT", help="Why; it is signed with the approval."),
    duration_option(
        "--expires",
        "lifetime_micros",
        default="4h",
        help_text="How long the approval can be submitted: 90s, 30m, 4h; at most 7d.",
        max_micros=migration.APPROVAL_LIFETIME_MAX_MICROS,
    ),
)


def protection_lines(view: ProtectionView) -> Iterator[Line]:
    """A protection, or the end of one."""
    kind = "namespace" if view.table_uuid is None else "table"
    if view.action is migration.ProtectionAction.PROTECT:
        yield f"PROTECTED  {kind} {view.name}", "green"
    else:
        yield f"*** UNPROTECTED  {kind} {view.name} ***", "bold red"
    yield f"  {'contract':<14}{view.contract_sha256}", None
    yield f"  {'operator':<14}{view.operator}: {view.reason}", None
    if view.schema_fingerprint is not None:
        yield f"  {'schema':<14}{view.schema_fingerprint}", None
    if view.table_uuid is not None:
        yield f"  {'main showed':<14}{snapshot_text(view.snapshot_id)}", None
    yield f"  {'logged':<14}entry {view.log_index:,}, {view.protection_id}", None
    yield f"  {'issued':<14}{utc(view.issued_at)}", None


def snapshot_text(snapshot_id: int | None) -> str:
    """The snapshot that `main` shows."""
    return "no snapshot yet" if snapshot_id is None else f"snapshot {snapshot_id}"


def protected_lines(view: ProtectedView) -> Iterator[Line]:
    """A protected table or namespace, its contract, and since when."""
    yield f"{view.kind} {view.name}", "green"
    yield f"  {'id':<14}{view.id}", None
    yield f"  {'contract':<14}{view.contract_sha256}", None
    has_approval = view.protection_id is not None
    cause = f"by protection {view.protection_id}" if has_approval else f"created in namespace {view.born_in}"
    yield f"  {'since':<14}{utc(view.since_at)}, {cause}", None


def submitted_lines(submitted: SubmittedMigration) -> Iterator[Line]:
    """A submitted migration, marked if it was applied before."""
    from pvdm.api.protection import Applied

    first, *others = migration_lines(submitted.migration)
    if submitted.applied is Applied.BEFORE:
        applied = f"ALREADY APPLIED  {submitted.migration.table} at {utc(submitted.applied_at)}"
        contract = submitted.contract_sha256 or "none"
        first = f"{applied}; nothing was changed now; the contract is {contract}", ALERT
    yield first
    yield from others


def migration_lines(view: MigrationView) -> Iterator[Line]:
    """An applied migration."""
    yield f"MIGRATED  {view.table}", "green"
    yield f"  {'operator':<14}{view.operator}: {view.reason}", None
    yield from state_lines(view.before, view.after)
    yield f"  {'updates':<14}{view.updates}", None
    yield f"  {'logged':<14}entry {view.log_index:,}, {view.migration_id}", None
    yield f"  {'issued':<14}{utc(view.issued_at)}", None


def state_lines(before: migration.TableState, after: migration.TableState) -> Iterator[Line]:
    """Both states of a table, with each change."""
    for what, old, new in (
        ("contract", before.contract_sha256, after.contract_sha256),
        ("schema", before.schema_fingerprint, after.schema_fingerprint),
        ("spec", before.spec_id, after.spec_id),
        ("format", before.format_version, after.format_version),
        ("structure", before.structure_sha256, after.structure_sha256),
    ):
        yield f"  {what:<14}{old}" + ("" if old == new else f" becomes {new}"), None
