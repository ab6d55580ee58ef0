"""What a Steward tells of proofs, overrides and the like: for programs as JSON, for people as lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from pvdm.cli.proof_words import LOUD, Line
from pvdm.cli.times import utc
from pvdm.model.states import NonceState
from pvdm.model.verdict import Outcome

if TYPE_CHECKING:
    from pvdm.client import OverrideView, ProofView


def view_json(view: Any) -> dict[str, object]:
    """A view's fields: times as numbers of microseconds, all other numbers as decimal strings, as the service does."""
    return {field.name: _plain(field.name, getattr(view, field.name)) for field in fields(view)}


def _plain(name: str, value: object) -> object:
    match value:
        case Enum():
            return value.value
        case bool() | None | str():
            return value
        case int():
            return value if name.endswith("_at") else str(value)
        case tuple() if value and all(isinstance(each, tuple) for each in value):
            return {str(key): _plain(str(key), inner) for key, inner in value}
        case tuple():
            return [_plain(name, each) for each in value]
        case _ if is_dataclass(value):
            return view_json(value)
        case _:
            raise TypeError(f"{name} has no place in a result")


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
