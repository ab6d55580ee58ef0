"""A million hostile rows to the decoder: each is refused, or is canonical."""

from __future__ import annotations

import os
from random import Random

import pytest

from pvdm.digest import reference_engine
from tests.support.fuzz.decoder import corpus, fuzz

pytestmark = pytest.mark.long

INPUTS = int(os.environ.get("PVDM_FUZZ_INPUTS", "1_000_000"))
CORPUS_SIZE = 1_000


def test_a_million_hostile_rows_are_refused_or_canonical() -> None:
    engine = reference_engine()
    tally = fuzz(engine, corpus(engine, CORPUS_SIZE), INPUTS, Random(INPUTS))
    assert tally.refused + tally.accepted == INPUTS
