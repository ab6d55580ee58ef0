"""`pvdm claims`: the claims that a restore has lost, and signed releases of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from pvdm.cli.common.commands import command_group
from pvdm.cli.common.options import Service, service_options
from pvdm.cli.common.screen import Line, require_yes, say_list, say_result
from pvdm.cli.common.times import utc
from pvdm.cli.table.approvals import Signing, signing_options
from pvdm.cli.table.protect import require_operator
from pvdm.errors import Code
from pvdm.model.printable import view_json
from pvdm.model.statements.claim_release import ClaimRelease
from pvdm.model.statements.table import TableRef

if TYPE_CHECKING:
    from pvdm.api.protection import ClaimReleaseView, LostClaimView


@command_group("claims")
def claims() -> None:
    """Claims that a restore of the ledger has lost: list them, and release them after a comparison with the source.

    While a claim on a table is lost, no workload can claim rows of the table (`claim_lost`).

    \b
    Examples:
      pvdm claims lost
      pvdm claims release RECEIPT_ID --key tom.pem --operator tom --reason "compared, day by day"
    """


@claims.command("lost", short_help="List the claims that a restore has lost.")
@service_options
def claims_lost(*, service: Service) -> None:
    """List the claims that a restore has lost: first those that block claims, then those that were released.

    Both are sorted by workload. Each has the receipt of its publication, and what receipt and proofs say of it:
    parameters, chunks, rows, snapshot and time. A publication without a receipt is listed by its proof.

    \b
    Examples:
      pvdm claims lost --url https://steward.example:8181
      pvdm claims lost --json | jq '.lost_claims[] | select(.release == null) | {table, workload_id, receipt_id}'
    """
    with service.connect() as client:
        found = client.lost_claims()
    say_list("lost_claims", found, _lost_lines, "no claim was ever lost here")


@claims.command("release", short_help="Release a claim that a restore has lost.")
@click.argument("receipt_id", metavar="RECEIPT_ID")
@click.option("--yes", is_flag=True, help="Sign without asking.")
@signing_options
@service_options
def claims_release(*, receipt_id: str, yes: bool, signing: Signing, service: Service) -> None:
    """Release the lost claim of this receipt's publication, or of this proof's, if it has no receipt.

    Compare the table with its source first: once the claim is released, another workload can publish the rows again.
    The release names table, workload, receipt and proofs. You sign it with your own key, which is not sent. The
    Steward verifies it, logs it and applies it in one step; a later restore finds it in the log. It releases no other
    claim, and the publication's workload id stays used up. The same command again changes nothing.

    \b
    Examples:
      pvdm claims release RECEIPT_ID --key tom.pem --operator tom --reason "compared, day by day"
      pvdm claims release RECEIPT_ID --key tom.pem --operator tom --reason "…" --yes --json | jq .release
    """
    with service.connect() as client:
        require_operator(client)
        found = client.lost_claims(receipt_id)
        if not found:
            raise Code.APPROVAL_REFUSED(reason="claim_not_lost", got=receipt_id)
        (lost,) = found
        if lost.release is None:
            if not yes:
                require_yes("allow other workloads to claim rows of this table, in your name?", _lost_lines(lost))
            release = client.submit_claim_release(signing.sign(_to_release(lost, signing)))
        else:
            release = lost.release
    first = "ALREADY RELEASED" if lost.release else "RELEASED"
    lines = [(f"{first}  a lost claim on {release.table}", "green"), *_release_lines(release)]
    say_result({"applied": "before" if lost.release else "now", "release": view_json(release)}, lines)


def _to_release(lost: LostClaimView, signing: Signing) -> ClaimRelease:
    """The claim release to sign: the facts of the lost claim, and the signer's fields."""
    return ClaimRelease(
        table=TableRef(lost.catalog, lost.table_uuid, lost.table),
        workload_id=lost.workload_id,
        receipt_id=lost.receipt_id,
        proof_ids=lost.proof_ids,
        restore_id=lost.restore_id,
        **signing.new_signer_fields(),
    )


def _lost_lines(view: LostClaimView) -> Iterator[Line]:
    """The lines that show a lost claim, or its release if it is released."""
    if view.release is not None:
        yield f"RELEASED  a lost claim on {view.table}", "green"
        yield from _release_lines(view.release)
        return
    yield f"LOST  a claim on {view.table}: no workload can claim rows of the table", "bold red"
    yield from _publication_lines(view)
    if view.parameters:
        values = ", ".join(f"{name}={'null' if value is None else value}" for name, value in view.parameters.items())
        yield f"  {'parameters':<14}{values}", None
    more = f", and {view.chunks_more:,} more" if view.chunks_more else ""
    yield f"  {'chunks':<14}{', '.join(view.chunk_ids) or 'unknown'}{more}", None
    yield f"  {'rows':<14}{'unknown' if view.rows is None else f'{view.rows:,}'}", None
    if view.snapshot_id is not None:
        at = "" if view.published_at is None else f", published at {utc(view.published_at)}"
        yield f"  {'snapshot':<14}{view.snapshot_id}{at}", None


def _release_lines(view: ClaimReleaseView) -> Iterator[Line]:
    yield from _publication_lines(view)
    yield f"  {'operator':<14}{view.operator}: {view.reason}", None
    yield f"  {'logged':<14}entry {view.log_index:,}, {view.release_id}", None


def _publication_lines(view: LostClaimView | ClaimReleaseView) -> Iterator[Line]:
    yield f"  {'workload':<14}{view.workload_id}", None
    if view.receipt_id is not None:
        yield f"  {'receipt':<14}{view.receipt_id}", None
    for proof_id in view.proof_ids:
        yield f"  {'proof':<14}{proof_id}", None
    yield f"  {'restore':<14}{view.restore_id}", None
