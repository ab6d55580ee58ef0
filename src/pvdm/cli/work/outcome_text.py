"""What was published, and by what, in lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pvdm.cli.proof.text import LOUD, Line
from pvdm.model.printable import counted as counted  # noqa: PLC0414 - others have it from here

if TYPE_CHECKING:
    from pvdm.client import AttemptView
    from pvdm.durable.outcome import Committed

_NOTHING: Final = "0 rows: the source has no row for these parameters"
_NOTHING_THEN: Final = "0 rows: the source had no row for these parameters when they were published"


def committed_lines(outcome: Committed) -> Iterator[Line]:
    """The whole of it first; what was not published now, what no proof carries and what has no row is loud."""
    from pvdm.durable.outcome import Published

    extent = outcome.extent
    yield str(outcome), "green"
    yield from _not_now(outcome)
    for chunk in outcome.overridden:
        yield f"*** chunk {chunk.chunk_id}: {override_words(chunk.attempt)} ***", LOUD
    if extent is not None and not extent.rows_added and not outcome.overridden:
        before = outcome.published is Published.BEFORE
        stays = "" if outcome.note is None else f"; {outcome.note}"
        yield f"*** {_NOTHING_THEN if before else _NOTHING}{stays} ***", LOUD
    for chunk in outcome.chunks:
        found = chunk.attempt
        added = "" if found.extent is None else f"  {found.extent.added}"
        proof = "FAIL proof" if found.overridden else "proof"
        yield f"  {chunk.chunk_id}{added}  snapshot {found.snapshot_id}  {proof} {found.proof_id}", None


def _not_now(outcome: Committed) -> Iterator[Line]:
    """What an earlier run published, and whether the source has moved since then."""
    from pvdm.durable.outcome import Published

    if outcome.published is Published.BEFORE:
        yield "*** nothing was published now: an earlier run of this workload id did it ***", LOUD
    elif outcome.published is Published.PARTLY_NOW:
        before = sum(1 for each in outcome.chunks if each.before)
        yield f"  {counted(before, 'chunk')} of them had been published by an earlier run", None
    moved = outcome.source_moved
    if moved is not None:
        yield f"*** {moved} ***", LOUD


def override_words(attempt: AttemptView) -> str:
    """By what a FAIL was published."""
    classes = ", ".join(each.value for each in attempt.classes)
    by = "override" if attempt.override_id is None else f"override {attempt.override_id}"
    return f"published by {by}, not by proof: its verdict is FAIL ({classes})"
