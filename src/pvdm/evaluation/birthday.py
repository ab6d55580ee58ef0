"""Truncated element hashes against the exact birthday prediction (paper, section 7.6)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal, localcontext
from typing import Final

import pyarrow as pa

from pvdm.digest import Engine, Plan
from pvdm.evaluation.record import OnProgress, ignore_progress
from pvdm.evaluation.rows import contributions, random_keys
from pvdm.model.projection import content
from pvdm.model.schema import Field, Kind, PrimitiveType, Schema

BITS_MIN: Final = 12
BITS_MAX: Final = 28
_Z_95: Final = 1.959963984540054
# Chance exceeds five standard deviations in one run of two million, so a larger deviation is a fault of the hash.
_Z_BROKEN: Final = 5.0
_DIGITS: Final = 60
# Elements between two reports of progress.
_SLICE: Final = 2_000
_SCHEMA: Final = Schema((Field("element", PrimitiveType(Kind.LONG), required=True),))


@dataclass(frozen=True, slots=True)
class Birthday:
    """The collisions (elements minus distinct values) of hashes of one width: observed, and expected by chance."""

    bits: int
    elements: int
    observed: int
    expected: float
    standard_deviation: float

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval around the expectation."""
        half_width = _Z_95 * self.standard_deviation
        return self.expected - half_width, self.expected + half_width

    @property
    def inside(self) -> bool:
        """Whether the observation lies in the 95 % interval; by chance, one run in twenty does not."""
        low, high = self.interval
        return low <= self.observed <= high

    @property
    def holds(self) -> bool:
        """Whether chance can explain the observation."""
        return abs(self.observed - self.expected) <= _Z_BROKEN * self.standard_deviation

    def to_json(self) -> dict[str, object]:
        """The figures, rounded."""
        return {
            **{name: round(value, 3) for name, value in asdict(self).items()},
            "interval_95": [round(each, 3) for each in self.interval],
            "inside_interval_95": self.inside,
        }


def birthday_study(
    *, seed: int, bits: Sequence[int], engine: Engine, report: OnProgress = ignore_progress
) -> tuple[Birthday, ...]:
    """For each width, hash distinct elements under a fresh key and count the collisions of the leading bits."""
    rng = random.Random(f"birthday {seed}")
    return tuple(_measure_width(width, rng, engine, report) for width in bits)


def elements_for(bits: int) -> int:
    """The number of elements for a width: 20,000 up to 19 bits, 40,000 from 20 bits on, 80,000 from 24 bits on."""
    return 20_000 << min(max((bits - 16) // 4, 0), 2)


def predict_collisions(elements: int, bits: int) -> tuple[float, float]:
    """Mean and standard deviation of the collisions of uniform hashes.

    With m = 2^bits bins and n elements a bin stays empty with p1 = (1 - 1/m)^n, two given bins with p2 = (1 - 2/m)^n.
    The number E of empty bins has mean m p1 and, summing the covariances, variance m p1 + m (m - 1) p2 - (m p1)^2.
    Collisions are n - (m - E), so their mean is n - m (1 - p1) and their variance is that of E. The terms nearly
    cancel, hence the long decimals.
    """
    with localcontext() as context:
        context.prec = _DIGITS
        bins = Decimal(1 << bits)
        one_empty = (1 - 1 / bins) ** elements
        two_empty = (1 - 2 / bins) ** elements
        mean = elements - bins * (1 - one_empty)
        variance = bins * one_empty + bins * (bins - 1) * two_empty - (bins * one_empty) ** 2
        return float(mean), float(variance.sqrt())


def _measure_width(bits: int, rng: random.Random, engine: Engine, report: OnProgress) -> Birthday:
    plan = Plan(_SCHEMA, (content(_SCHEMA),))
    count = elements_for(bits)
    first = rng.getrandbits(48)
    batch = pa.RecordBatch.from_pydict({"element": pa.array(range(first, first + count), pa.int64())})
    keys = random_keys(rng, plan)
    truncated: set[int] = set()
    for done in range(0, count, _SLICE):
        report(f"hashes of {bits} bits", done, count)
        hashes = contributions(batch.slice(done, _SLICE), plan, keys, engine)
        truncated.update(each >> (256 - bits) for each in hashes)
    report(f"hashes of {bits} bits", count, count)
    return Birthday(bits, count, count - len(truncated), *predict_collisions(count, bits))
