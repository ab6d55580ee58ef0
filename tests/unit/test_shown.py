"""Counts and times as readable text, also in errors about keys."""

from __future__ import annotations

import pytest

from pvdm.errors import VerificationError
from pvdm.model.printable import counted, iso_time
from pvdm.trust.root import RootRole, TrustedKey
from pvdm.trust.verify import require_not_revoked, require_valid_at
from tests.support.for_each import for_each
from tools.proof_kit import SECOND, SIGNERS

REVOKED = 1_794_928_448_640_817
REVOKED_TEXT = "2026-11-17T15:14:08.640817Z"


@for_each(
    ("count", "words", "text"),
    [
        (0, ("data file",), "0 data files"),
        (1, ("data file",), "1 data file"),
        (2_000, ("row",), "2,000 rows"),
        (1, ("try", "tries"), "1 try"),
        (3, ("try", "tries"), "3 tries"),
    ],
)
def test_a_count_has_the_singular_or_plural(count: int, words: tuple[str, ...], text: str) -> None:
    assert counted(count, *words) == text


def test_a_time_has_its_fraction_of_a_second_if_any() -> None:
    assert iso_time(REVOKED) == REVOKED_TEXT
    assert iso_time(1_794_928_448_000_000) == "2026-11-17T15:14:08Z"


def test_the_error_of_a_refused_key_has_times_as_text() -> None:
    public = SIGNERS["operator-ruth"].public
    key = TrustedKey(public, "ruth", (RootRole.OPERATOR,), (), REVOKED - SECOND, REVOKED + SECOND, REVOKED)
    with pytest.raises(VerificationError) as revoked:
        require_not_revoked(key, REVOKED)
    assert revoked.value.got == f"revoked at {REVOKED_TEXT}"
    with pytest.raises(VerificationError) as expired:
        require_valid_at(key, REVOKED + SECOND)
    assert (expired.value.expected, expired.value.got) == (
        "before 2026-11-17T15:14:09.640817Z",
        "2026-11-17T15:14:09.640817Z",
    )
