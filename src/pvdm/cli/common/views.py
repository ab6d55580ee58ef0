"""What a Steward tells of proofs, overrides and the like, in lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pvdm.cli.common.times import utc
from pvdm.cli.proof.text import LOUD, Line
from pvdm.model.statements.verdict import Outcome
from pvdm.model.states import NonceState

if TYPE_CHECKING:
    from pvdm.client import OverrideView, ProofView


def override_view_lines(view: OverrideView) -> Iterator[Line]:
    """An override, loudly."""
    became = {
        NonceState.RESERVED: "not used yet",
        NonceState.COMMITTED: "USED: the rows that failed were published",
        NonceState.ABORTED: "given up: nothing was published with it",
    }
    yield f"*** BREAK-GLASS: {view.operator} waived a FAIL verdict of {view.table} ***", LOUD
    yield f"  {'reason':<14}{view.reason}", "red"
    yield f"  {'state':<14}{became[view.state]}", "red" if view.state is NonceState.COMMITTED else None
    yield f"  {'FAIL proof':<14}{view.fail_proof_id}", None
    yield f"  {'override':<14}{view.override_id}, log entry {view.log_index:,}", None
    yield f"  {'issued':<14}{utc(view.issued_at)}, good until {utc(view.expires_at)}", None


def proof_view_line(view: ProofView) -> Line:
    """One proof in one line; what was overridden cannot be overlooked."""
    where = f"{view.workload_id} chunk {view.chunk_id}"
    when = f"{utc(view.issued_at)}  log entry {view.log_index:,}  {view.proof_id}"
    if view.verdict is Outcome.PASS:
        return f"PASS  {where}  {_rows(view)}{when}", "green"
    classes = ", ".join(found.value for found in view.classes)
    if view.overridden:
        return f"*** FAIL ({classes}), OVERRIDDEN by break-glass ***  {where}  {_rows(view)}{when}", LOUD
    return f"*** FAIL ({classes}) ***  {where}  {_rows(view)}{when}", "bold red"


def _rows(view: ProofView) -> str:
    if view.rows_intent is None or view.rows_staged is None:
        return ""
    return f"{view.rows_staged:,} of {view.rows_intent:,} rows  "
