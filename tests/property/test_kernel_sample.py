"""A sample of the damaged batches that the long tests feed the kernel, in every run of the tests."""

from __future__ import annotations

from random import Random

from pvdm.digest import Engine, reference_engine
from tests.support.fuzz.kernel import corpus, fuzz


def test_damaged_batches_are_refused_or_encoded_as_the_reference_does(kernel: Engine) -> None:
    tally = fuzz(kernel, reference_engine(), corpus(150), 600, Random(7))
    assert tally.refused + tally.accepted == 600
    assert tally.refused > 20
