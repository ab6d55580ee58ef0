"""The verdict from counts, digests and findings, with each of its classes."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from pvdm.digest import Plan, digest, reference_engine
from pvdm.errors import InputError
from pvdm.model.projection import ProjectionName, content, identity
from pvdm.model.schema import Field, Kind, PrimitiveType, Schema
from pvdm.model.secret import DigestKey
from pvdm.model.statements.verdict import FailureClass, Outcome
from pvdm.verify.findings import Finding, Partials, classify_rows, decide_verdict
from tests.support.for_each import for_each

SCHEMA = Schema((Field("id", PrimitiveType(Kind.LONG), True, 1), Field("note", PrimitiveType(Kind.STRING), False, 2)))
PLAN = Plan(SCHEMA, (identity(SCHEMA, ["id"]), content(SCHEMA)))
KEYS = {name: DigestKey(bytes([at]) * 32, epoch=1) for at, name in enumerate(ProjectionName)}
ROWS = [(1, "a"), (2, "b"), (3, None)]


def digests_of(rows: Sequence[tuple[int, str | None]]) -> Partials:
    columns = [pa.array([row[0] for row in rows], pa.int64()), pa.array([row[1] for row in rows], pa.string())]
    return digest(pa.table(columns, names=["id", "note"]), PLAN, KEYS, engine=reference_engine())


@for_each(
    ("staged", "expected"),
    [
        (ROWS, None),
        (ROWS[::-1], None),
        (ROWS[:2], FailureClass.MISSING),
        ([], FailureClass.MISSING),
        ([(1, "a"), (9, "x")], FailureClass.MISSING),
        ([*ROWS, (4, "d")], FailureClass.ADDED),
        ([*ROWS, ROWS[0]], FailureClass.ADDED),
        ([*ROWS, *ROWS], FailureClass.DUPLICATED),
        ([*ROWS, *ROWS, *ROWS], FailureClass.DUPLICATED),
        ([*ROWS, *ROWS[:2], (3, "changed")], FailureClass.ADDED),
        ([*ROWS[:2], (3, "changed")], FailureClass.MODIFIED),
        ([*ROWS[:2], (4, None)], FailureClass.MODIFIED),
        ([ROWS[0], ROWS[0], ROWS[1]], FailureClass.MODIFIED),
    ],
)
def test_counts_and_digests_determine_the_class(
    staged: list[tuple[int, str | None]], expected: FailureClass | None
) -> None:
    assert classify_rows(digests_of(ROWS), digests_of(staged)) is expected


def test_staged_rows_without_intended_ones_are_added() -> None:
    assert classify_rows(digests_of([]), digests_of(ROWS)) is FailureClass.ADDED


def test_nothing_intended_and_nothing_staged_is_a_pass() -> None:
    assert decide_verdict(digests_of([]), digests_of([]), ()).outcome is Outcome.PASS


def test_a_finding_fails_rows_with_equal_digests() -> None:
    found = Finding(FailureClass.METADATA, "record_count_lies", "it lies")
    assert decide_verdict(digests_of(ROWS), digests_of(ROWS), [found]).classes == (FailureClass.METADATA,)


def test_the_classes_of_findings_and_of_rows_are_combined() -> None:
    found = Finding(FailureClass.METADATA, "record_count_lies", "it lies")
    verdict = decide_verdict(digests_of(ROWS), digests_of(ROWS[:1]), [found])
    assert verdict.classes == (FailureClass.METADATA, FailureClass.MISSING)


def test_without_a_digest_the_findings_determine_the_verdict() -> None:
    found = Finding(FailureClass.PHYSICAL, "file_changed", "it changed")
    assert decide_verdict(digests_of(ROWS), None, [found]).classes == (FailureClass.PHYSICAL,)


def test_no_digest_and_no_finding_is_refused() -> None:
    for intent, staged in ((None, None), (digests_of(ROWS), None), (None, digests_of(ROWS))):
        with pytest.raises(InputError) as caught:
            decide_verdict(intent, staged, ())
        assert caught.value.reason == "digest_missing"


@pytest.mark.parametrize("left_out", list(ProjectionName))
def test_a_projection_that_one_side_lacks_is_refused(left_out: ProjectionName) -> None:
    whole = digests_of(ROWS)
    with pytest.raises(InputError):
        decide_verdict(whole, {name: each for name, each in whole.items() if name is not left_out}, ())


def test_rows_with_equal_keys_and_other_content_are_modified() -> None:
    """The keys are equal, so a comparison of the identity projection alone would pass."""
    staged = digests_of([(1, "a"), (2, "b"), (3, "new")])
    intent = digests_of(ROWS)
    assert intent[ProjectionName.IDENTITY].matches(staged[ProjectionName.IDENTITY])
    assert decide_verdict(intent, staged, ()).classes == (FailureClass.MODIFIED,)
