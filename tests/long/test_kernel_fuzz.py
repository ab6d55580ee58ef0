"""A hundred thousand damaged Arrow batches to the kernel: rows, or a refusal, and never a crash."""

from __future__ import annotations

import os
from random import Random

import pytest

from pvdm.digest import kernel_engine, reference_engine
from tests.support.fuzz.kernel import corpus, fuzz

pytestmark = pytest.mark.long

BATCHES = int(os.environ.get("PVDM_FUZZ_BATCHES", "100_000"))
CORPUS_SIZE = 3_000


def test_a_hundred_thousand_damaged_batches_are_refused_or_encoded_as_the_reference_does() -> None:
    tally = fuzz(kernel_engine(), reference_engine(), corpus(CORPUS_SIZE), BATCHES, Random(BATCHES))
    assert tally.refused + tally.accepted == BATCHES
    assert tally.refused > BATCHES // 100
