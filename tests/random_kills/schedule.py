"""Plans of rounds of random kills: pure functions of a seed."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from enum import Enum
from random import Random

from tests.support.fault import POINTS

TABLES = ("sales.copied", "sales.open", "sales.joined")
"""With storage `copied`, with storage `open`, and with three chunks that are published together."""
TOWNS = ("Bonn", "Kiel", "Ulm")
DAYS = 60
FIRST_DAY = datetime.date(2026, 9, 1)
STOP_MAX_SECONDS = 12.0
LONG_STOP_SECONDS = 66.0
"""Longer than every time-out of a default client and of the ledger's connections."""
KILL_SPANS_SECONDS = (0.5, 1.5, 3.0)
SPANS_SECONDS = (4.0, 8.0, 25.0)
"""A round's faults come within one of these spans. A slow machine needs a longer span than a fast machine."""
_LONG_STOP_CHANCE = 0.04

Row = tuple[int, str, str]


class Kind(Enum):
    """One kind of fault."""

    KILL_STEWARD = "kill Steward"
    END_STEWARD = "end Steward"
    STOP_STEWARD = "stop Steward"
    KILL_PRODUCER = "kill producer"
    STOP_PRODUCER = "stop producer"
    KILL_AT_POINT = "kill at a point"
    POWER_CUT = "power cut"
    RESTART_POSTGRESQL = "restart PostgreSQL"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, `at_seconds` after the producers began. Its victim is down for `seconds`.

    If it has a `point`, the first process that reaches the point after `at_seconds` kills itself.
    """

    at_seconds: float
    kind: Kind
    producer: int
    seconds: float
    point: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """One workload: a day of the source for one table."""

    workload_id: str
    table: str
    day: str

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows that the workload publishes."""
        return rows_of(self.day)


@dataclass(frozen=True, slots=True)
class Round:
    """The plan of a round, fixed before the round begins."""

    seed: int
    database: str
    producers: tuple[tuple[Work, ...], ...]
    faults: tuple[Fault, ...]

    @property
    def works(self) -> tuple[Work, ...]:
        """Every workload of the round."""
        return tuple(work for each in self.producers for work in each)

    @property
    def cuts_power(self) -> bool:
        """Whether the round needs a disk that can lose its power."""
        return any(fault.kind is Kind.POWER_CUT for fault in self.faults)


def round_of(seed: int) -> Round:
    """The round of this seed for tests/long/test_random_kills.py."""
    random = Random(f"random kills {seed}")
    database = random.choice(("sqlite", "postgresql"))
    days = random.sample(range(DAYS), 12)
    producers = []
    for number in range(random.randint(2, 3)):
        count = random.randint(2, 4)
        producers.append(tuple(_draw_work(seed, number, place, random, days) for place in range(count)))
    left_out = {Kind.KILL_AT_POINT} if database == "postgresql" else {Kind.KILL_AT_POINT, Kind.RESTART_POSTGRESQL}
    kinds = [each for each in Kind if each not in left_out]
    span = random.choice(SPANS_SECONDS)
    found = [_draw_fault(random, kinds, len(producers), span) for _ in range(random.randint(1, 6))]
    return Round(seed, database, tuple(producers), tuple(sorted(found, key=lambda each: each.at_seconds)))


def small_round(seed: int, database: str, kind: Kind) -> Round:
    """Two producers with two workloads each, and one fault of this kind that comes soon."""
    random = Random(f"small round {seed}")
    days = random.sample(range(DAYS), 4)
    producers = tuple(tuple(_draw_work(seed, number, place, random, days) for place in range(2)) for number in range(2))
    return Round(seed, database, producers, (Fault(round(random.uniform(0.5, 2), 3), kind, 0, 0.5),))


def kills_of(seed: int) -> Round:
    """The round of this seed for tests/long/test_kill_schedules.py: two workloads at once, and several kills."""
    random = Random(f"kills {seed}")
    days = random.sample(range(DAYS), 2)
    producers = tuple((_draw_work(seed, number, 0, random, days),) for number in range(2))
    span = random.choice(KILL_SPANS_SECONDS)
    kills = [_draw_kill(random, span) for _ in range(random.randint(2, 6))]
    database = random.choice(("sqlite", "postgresql"))
    return Round(seed, database, producers, tuple(sorted(kills, key=lambda each: each.at_seconds)))


def _draw_kill(random: Random, span: float) -> Fault:
    kind = random.choice((Kind.KILL_STEWARD, Kind.KILL_PRODUCER, Kind.KILL_AT_POINT))
    point = random.choice(sorted(POINTS)) if kind is Kind.KILL_AT_POINT else ""
    at, victim, down = random.uniform(0, span), random.randrange(2), random.uniform(0, 0.5)
    return Fault(round(at, 3), kind, victim, round(down, 3), point)


def _draw_work(seed: int, producer: int, place: int, random: Random, days: list[int]) -> Work:
    day = (FIRST_DAY + datetime.timedelta(days=days.pop())).isoformat()
    return Work(f"r{seed}-p{producer}-{place}", random.choice(TABLES), day)


def _draw_fault(random: Random, kinds: list[Kind], producers: int, span: float) -> Fault:
    kind = random.choice(kinds)
    at, victim, down, stop = random.uniform(0, span), random.randrange(producers), random.uniform(0, 2), random.random()
    seconds = random.uniform(3, STOP_MAX_SECONDS) if stop > _LONG_STOP_CHANCE else LONG_STOP_SECONDS
    stops = kind in (Kind.STOP_STEWARD, Kind.STOP_PRODUCER)
    return Fault(round(at, 3), kind, victim, round(seconds if stops else down, 3))


def rows_of(day: str) -> tuple[Row, ...]:
    """The source's rows of one day: two for each town."""
    number = (datetime.date.fromisoformat(day) - FIRST_DAY).days
    return tuple((number * 100 + place, day, TOWNS[place % 3]) for place in range(6))


def source_rows() -> tuple[Row, ...]:
    """All rows of the source."""
    days = ((FIRST_DAY + datetime.timedelta(days=number)).isoformat() for number in range(DAYS))
    return tuple(row for day in days for row in rows_of(day))
