"""The branches that the Steward makes, one for each attempt; nobody else's has such a name."""

from __future__ import annotations

from typing import Final

BRANCH_PREFIX: Final = "pvdm_"


def branch_of(attempt_id: str) -> str:
    """The branch of an attempt."""
    return f"{BRANCH_PREFIX}{attempt_id}"


def is_stewards(branch: str) -> bool:
    """Whether the name is one that only the Steward gives."""
    return branch.startswith(BRANCH_PREFIX)
