"""Arguments of a Coordinator and times of `pvdm run`: an error about a wrong value shows the value. Without a JVM."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from pvdm import Coordinator
from pvdm.cli.common.options import Service
from pvdm.cli.work.jobs import Job
from pvdm.cli.work.segments import SegmentOfCommand, SegmentTimes
from pvdm.durable.segment import Segment, elapsed_seconds
from pvdm.errors import InputError, RolledBackError
from pvdm.model.role import Role
from tests.support.for_each import for_each
from tests.support.steward.shop import Shop, shop_at

WRONG_ARGUMENTS: list[tuple[str, Any, str, str]] = [
    ("segment_timeout", "15m", "segment_invalid", "'15m'"),
    ("segment_timeout", 0, "segment_invalid", "0 seconds"),
    ("segment_timeout", math.inf, "segment_invalid", "inf"),
    ("segment_timeout", 10**400, "segment_invalid", "1000"),
    ("rollback_threshold", "5s", "segment_invalid", "'5s'"),
    ("rollback_threshold", 5, "segment_invalid", "a rollback threshold only"),
    ("max_chunks", 1.5, "segment_invalid", "1.5"),
    ("max_chunks", math.nan, "segment_invalid", "nan"),
    ("max_chunks", True, "segment_invalid", "True"),
    ("parallel", 2.5, "usage", "2.5"),
    ("parallel", 1.5, "usage", "1.5"),
    ("parallel", "2", "usage", "'2'"),
    ("workload_timeout", -1, "usage", "-1"),
    ("workload_timeout", math.nan, "usage", "nan"),
    ("workload_timeout", math.inf, "usage", "inf"),
    ("workload_timeout", 400 * 86_400, "usage", "34560000"),
    ("lease_seconds", 0, "usage", "0"),
    ("lease_seconds", math.nan, "usage", "nan"),
    ("lease_seconds", 3.5, "usage", "3.5"),
    ("lease_seconds", 10**30, "usage", "1000"),
    ("take_over", "no", "usage", "'no'"),
]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


@for_each("name, value, code, got", WRONG_ARGUMENTS)
def test_a_wrong_argument_of_a_coordinator_is_refused_with_its_value(
    shop: Shop, name: str, value: Any, code: str, got: str
) -> None:
    with pytest.raises(InputError) as caught:
        Coordinator(shop.steward, **{name: value})
    error = caught.value
    assert error.code == code
    assert error.expected
    assert got in str(error.got)
    if code == "usage":
        assert name in error.message


@for_each(
    "option, value, text",
    [
        ("--rollback-threshold", "5s", "expected a segment time-out, got a rollback threshold only"),
        ("--segment-timeout", "0s", "'--segment-timeout': expected a time above zero, got 0s"),
        ("--segment-timeout", "-3s", "'--segment-timeout': expected a time above zero, got -3s"),
        ("--workload-timeout", "400d", "'--workload-timeout': expected at most 365d, got 400d"),
    ],
)
def test_a_wrong_time_option_is_refused_with_expected_and_got(shop: Shop, option: str, value: str, text: str) -> None:
    words = ["run", "sales.times", "--workload-id", "times-1", "--small", "--job", f"{__name__}:build"]
    code, output = shop.command([*words, option, value])
    assert (code, text in output) == (2, True), output


def test_the_end_of_a_segment_names_the_time_that_the_user_gave(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Segment] = []
    real = Segment.start

    def start(*given: Any, **named: Any) -> Segment:
        started.append(real(*given, **named))
        return started[-1]

    monkeypatch.setattr(Segment, "start", start)
    monkeypatch.setattr(Coordinator, "resume_workload", lambda *_: None)
    monkeypatch.setenv("PVDM_TOKEN", shop.steward.token_for(Role.PRODUCER, "sales").text)
    job = Job(f"{__name__}:build", small=True, master=None, conf=())
    times = SegmentTimes(9_000_000, 1_000_000)
    SegmentOfCommand("times-1", Service(shop.steward.url, None, None), job, times, json=False).run(
        elapsed_seconds() + 3
    )
    (segment,) = started
    assert 1.0 < segment.remaining_seconds <= 2.0  # six of nine seconds have passed, one is the threshold
    monkeypatch.setattr("pvdm.durable.segment.elapsed_seconds", lambda: segment.stops_at)
    with pytest.raises(RolledBackError) as caught:
        segment.require_time()
    assert caught.value.expected == "an end within a segment of 9 seconds"


def build(_spark: object, _chunk: object) -> None:
    """A job that no test calls."""
