"""Checks for branches that a producer staged itself (`pvdm publish`)."""

from __future__ import annotations

from typing import Final

from pvdm.errors import Code
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN, RefType
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.chunks import Chunk
from pvdm.model.chunk import BRANCH_PREFIX, is_stewards
from pvdm.model.states import needs_reason
from pvdm.steward.work.attempt_views import decode_refusal

_OWN_CREDENTIALS: Final = "a job that stages a branch of its own in an object store needs credentials of its own there"


def require_adoptable(metadata: TableMetadata, branch: str) -> None:
    """Refuse a branch that cannot be adopted: unknown, a tag, `main`, or one that the Steward made."""
    ref = metadata.refs.get(branch)
    if ref is None or ref.type is not RefType.BRANCH:
        raise Code.BRANCH_UNKNOWN(
            got=ascii(branch[:80]), hint=_OWN_CREDENTIALS if metadata.location.startswith("s3") else None
        )
    if branch == MAIN or is_stewards(branch):
        raise Code.BRANCH_RESERVED(
            "this branch cannot be adopted",
            expected=f"a branch of your own, neither {MAIN} nor {BRANCH_PREFIX}…",
            got=ascii(branch[:80]),
        )


def require_one_chunk(planned: list[Chunk]) -> Chunk:
    """The only chunk of a plan; a staged branch cannot be one chunk of several."""
    if len(planned) != 1:
        raise Code.WORKLOAD_PARAMETERS_DIFFER(
            "the workload was opened to be staged chunk by chunk",
            expected="another workload id",
            got=f"a plan of {len(planned)} chunks",
        )
    return planned[0]


def require_same_branch(found: Attempt, branch: str) -> None:
    """Refuse another branch than the one that the attempt adopted."""
    if found.branch != branch:
        raise Code.WORKLOAD_PARAMETERS_DIFFER(
            f"workload {found.workload_id} publishes another branch",
            expected=found.branch,
            got=ascii(branch[:80]),
            hint="use another workload id",
            workload_id=found.workload_id,
        )


def retry_needs_reason(ended: Attempt) -> bool:
    """Whether another attempt after this one needs a reason."""
    return needs_reason(ended.state, refused=decode_refusal(ended.reason) is not None)


def require_same_failed_branch(found: Attempt, branch: str) -> None:
    """Refuse another branch without a reason after one that failed."""
    if found.branch != branch:
        raise Code.REASON_MISSING(
            f"branch {found.branch[:80]} failed under this workload id, and another one is published in its place",
            expected="the reason: what was corrected (--reason)",
            got="none",
            workload_id=found.workload_id,
        )
