"""Names that Java takes for one are one for `protectable`, too: Spark resolves columns by `equalsIgnoreCase`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pvdm.lake.format.table.protectable import _ignore_case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODE_POINTS = [chr(point) for point in range(0x80, 0x10000) if not 0xD800 <= point < 0xE000]
CASED = [each for each in CODE_POINTS if {each.upper(), each.lower()} != {each}]


def test_characters_that_java_takes_for_one_share_a_name_without_case(spark: SparkSession) -> None:
    java: Any = spark._jvm.java.lang.Character  # type: ignore[union-attr]
    folded: dict[int, list[str]] = {}
    letters = [*CASED, *"abcdefghijklmnopqrstuvwxyz"]
    for each in letters:
        folded.setdefault(java.toLowerCase(java.toUpperCase(ord(each))), []).append(each)
    apart = [
        (first, other)
        for first, *others in folded.values()
        for other in others
        if _ignore_case(first).isdisjoint(_ignore_case(other))
    ]
    assert len(CASED) > 2_000
    assert apart == []
