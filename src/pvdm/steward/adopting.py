"""Branches that somebody staged by themselves: which of them may be published."""

from __future__ import annotations

from typing import Final

from pvdm.errors import InputError, NotAllowedError
from pvdm.lake.format.metadata import TableMetadata
from pvdm.lake.format.snapshots import MAIN, RefType
from pvdm.model.branch import BRANCH_PREFIX, is_stewards

_OWN_CREDENTIALS: Final = "a job that stages a branch of its own in an object store needs credentials of its own there"


def require_adoptable(metadata: TableMetadata, branch: str) -> None:
    """A branch that somebody staged by themselves: not main, no tag, and not one that the Steward made."""
    ref = metadata.refs.get(branch)
    if ref is None or ref.type is not RefType.BRANCH:
        raise InputError(
            "branch_unknown",
            "the table has no such branch",
            expected="a branch with staged data (`spark.wap.branch`)",
            got=ascii(branch[:80]),
            hint=_OWN_CREDENTIALS if metadata.location.startswith("s3") else None,
        )
    if branch == MAIN or is_stewards(branch):
        raise NotAllowedError(
            "branch_reserved",
            "this branch is not published so",
            expected=f"a branch of your own, neither {MAIN} nor {BRANCH_PREFIX}…",
            got=ascii(branch[:80]),
        )
