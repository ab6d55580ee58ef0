"""The verdict: what counts and digests of identity and content tell about intent and staged, and rows once located."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from pvdm.digest import Partial
from pvdm.errors import Code
from pvdm.model.located import Located
from pvdm.model.projection import ProjectionName
from pvdm.model.statements.verdict import FailureClass, Outcome, Verdict
from pvdm.verify.findings import Finding

Partials: TypeAlias = Mapping[ProjectionName, Partial]
_MODULUS = 1 << 256


def compare(
    intent: Partials | None, staged: Partials | None, findings: Iterable[Finding], located: Located | None = None
) -> Verdict:
    """PASS if every digest matches and nothing was found; a side that is None could not be digested, for a finding.

    Whether rows are wrong is for the digests alone to say; where rows were located, these say in which ways.
    """
    classes = {found.failure for found in findings}
    if intent is not None and staged is not None:
        rows = rows_class(intent, staged)
        if rows is not None:
            classes |= (located.failures if located is not None else None) or {rows}
    elif not classes:
        raise Code.DIGEST_MISSING(got="one")
    return Verdict.failed(*classes) if classes else Verdict(Outcome.PASS)


def rows_class(intent: Partials, staged: Partials) -> FailureClass | None:
    """How the staged rows differ from the intended ones; None if they do not.

    Fewer rows: some are missing. More: if every sum is that of all intended rows taken so many times, they were
    written so often; of any other surplus digests cannot tell whether its rows are new, and it counts as added. As many
    rows, and other sums: something was changed. Rows that are located tell more.
    """
    if intent.keys() != staged.keys() or not intent:
        raise Code.PARTIAL_MISMATCH(
            "intent and staged were not digested alike", reason="partial_missing", expected="the same", got="not"
        )
    if all(intent[name].matches(staged[name]) for name in intent):
        return None
    wanted, got = rows_of(intent), rows_of(staged)
    if got < wanted:
        return FailureClass.MISSING
    if got > wanted:
        return FailureClass.DUPLICATED if _repeated(intent, staged, wanted, got) else FailureClass.ADDED
    return FailureClass.MODIFIED


def _repeated(intent: Partials, staged: Partials, wanted: int, got: int) -> bool:
    return wanted > 0 and all(_times(intent[name], got // wanted).matches(staged[name]) for name in intent)


def _times(partial: Partial, times: int) -> Partial:
    """The digest of the same rows, each taken so many times."""
    return Partial(
        partial.epoch,
        partial.construction,
        partial.mode,
        partial.projection,
        partial.fingerprint,
        partial.key_check,
        partial.rows * times,
        partial.total * times % _MODULUS,
    )


def rows_of(partials: Partials) -> int:
    """How many rows were seen. One pass over the rows fed every projection: their counts are one."""
    counts = {partial.rows for partial in partials.values()}
    if len(counts) != 1:
        raise Code.PARTIAL_MISMATCH(
            "the projections saw different numbers of rows", reason="partial_missing", expected="one", got="two"
        )
    return counts.pop()
