"""What `protect` and `migrate` share: options of who signs, and approvals in plain words."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pvdm.cli.common.options import PlaceType
from pvdm.cli.common.passphrases import OPENING, open_key, passphrase_option
from pvdm.cli.common.times import DurationType, now_micros, utc
from pvdm.cli.proof.text import LOUD, Line
from pvdm.model.statements.migration import (
    APPROVAL_LIFETIME_MAX_MICROS,
    Migration,
    Protection,
    ProtectionAction,
    TableState,
)
from pvdm.trust.verify import sign_statement

if TYPE_CHECKING:
    from pvdm.client import MigrationView, ProtectedView, ProtectionView, SubmittedMigration

_DEFAULT: Final = "4h"


@dataclass(frozen=True, slots=True)
class Signing:
    """Who approves, why, with which key, and for how long."""

    key_file: Path
    where: str | None
    operator: str
    reason: str
    expires: int

    def facts(self) -> dict[str, Any]:
        """The fields of an approval that are the signer's own; the nonce is a new one each time."""
        now = now_micros()
        return {
            "operator": self.operator,
            "reason": self.reason,
            "nonce": secrets.token_hex(16),
            "issued_at": now,
            "expires_at": now + self.expires,
        }

    def sign(self, said: Migration | Protection) -> bytes:
        """The approval in its envelope; the private key is opened here and goes nowhere."""
        return sign_statement(said, open_key(self.key_file, self.where)).to_bytes()


def signing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--key`, `--passphrase`, `--operator`, `--reason` and `--expires` as one `signing`."""

    @functools.wraps(command)
    def called(*, key_file: Path, where: str | None, operator: str, reason: str, expires: int, **others: Any) -> Any:
        return command(signing=Signing(key_file, where, operator, reason, expires), **others)

    for option in (
        click.option(
            "--expires",
            type=DurationType(most=APPROVAL_LIFETIME_MAX_MICROS),
            default=_DEFAULT,
            show_default=True,
            metavar="TIME",
            help="How long it can be handed in: 90s, 30m, 4h; at most 7d.",
        ),
        click.option("--reason", required=True, metavar="TEXT", help="Why, for everybody who reads the log."),
        click.option("--operator", required=True, metavar="NAME", help="Your name, as the trust root has it."),
        passphrase_option(OPENING),
        click.option(
            "--key", "key_file", type=PlaceType(), required=True, metavar="FILE", help="Your operator's private key."
        ),
    ):
        called = option(called)
    return called


def protection_lines(view: ProtectionView) -> Iterator[Line]:
    """A protection, or the end of one, which is loud."""
    kind = "namespace" if view.table_uuid is None else "table"
    if view.action is ProtectionAction.PROTECT:
        yield f"PROTECTED  {kind} {view.name}", "green"
    else:
        yield f"*** UNPROTECTED  {kind} {view.name} ***", "bold red"
    yield f"  {'contract':<14}{view.contract_sha256}", None
    yield f"  {'operator':<14}{view.operator}: {view.reason}", None
    if view.schema_fingerprint is not None:
        yield f"  {'schema':<14}{view.schema_fingerprint}", None
    if view.table_uuid is not None:
        yield f"  {'main showed':<14}{shown_words(view.snapshot_id)}", None
    yield f"  {'logged':<14}entry {view.log_index:,}, {view.protection_id}", None
    yield f"  {'issued':<14}{utc(view.issued_at)}", None


def shown_words(snapshot_id: int | None) -> str:
    """What `main` shows, in an approval."""
    return "no snapshot yet" if snapshot_id is None else f"snapshot {snapshot_id}"


def protected_lines(view: ProtectedView) -> Iterator[Line]:
    """What is under a contract now, and how it came there."""
    yield f"{view.kind} {view.name}", "green"
    yield f"  {'id':<14}{view.id}", None
    yield f"  {'contract':<14}{view.contract_sha256}", None
    by = f"born in namespace {view.born_in}" if view.protection_id is None else f"by protection {view.protection_id}"
    yield f"  {'since':<14}{utc(view.since_at)}, {by}", None


def submitted_lines(found: SubmittedMigration) -> Iterator[Line]:
    """A migration that was handed in; one of before is not told as if it had changed something now."""
    from pvdm.client import Applied

    lines = migration_lines(found.migration)
    if found.applied is Applied.BEFORE:
        next(lines)
        in_force = "no contract" if found.contract_sha256 is None else found.contract_sha256
        at = utc(found.applied_at)
        yield f"ALREADY APPLIED  {found.migration.table} at {at}; nothing was changed now; in force is {in_force}", LOUD
    yield from lines


def migration_lines(view: MigrationView) -> Iterator[Line]:
    """A migration that was applied."""
    yield f"MIGRATED  {view.table}", "green"
    yield f"  {'operator':<14}{view.operator}: {view.reason}", None
    yield from state_lines(view.before, view.after)
    yield f"  {'updates':<14}{view.updates}", None
    yield f"  {'logged':<14}entry {view.log_index:,}, {view.migration_id}", None
    yield f"  {'issued':<14}{utc(view.issued_at)}", None


def state_lines(before: TableState, after: TableState) -> Iterator[Line]:
    """The two states side by side: the new schema fingerprint is what the next proofs must name."""
    for what, old, new in (
        ("contract", before.contract_sha256, after.contract_sha256),
        ("schema", before.schema_fingerprint, after.schema_fingerprint),
        ("spec", before.spec_id, after.spec_id),
        ("format", before.format_version, after.format_version),
        ("structure", before.structure_sha256, after.structure_sha256),
    ):
        yield f"  {what:<14}{old}" + ("" if old == new else f" becomes {new}"), None
