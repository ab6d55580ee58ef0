"""A sample of the hostile inputs of tests/long/test_decoder_fuzz.py, small enough for every run."""

from __future__ import annotations

from random import Random

import pytest

from pvdm.digest import reference_engine
from tests.support.fuzz.decoder import corpus, fuzz

pytestmark = pytest.mark.property


def test_five_thousand_hostile_rows_are_refused_or_canonical() -> None:
    engine = reference_engine()
    tally = fuzz(engine, corpus(engine, 100), 5_000, Random(3))
    assert min(tally.refused, tally.accepted) > 100
