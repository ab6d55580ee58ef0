"""Locating against the naive way: every class, exact counts, keys, files and fields, in memory and beyond it."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pvdm.digest import Plan
from pvdm.errors import PvdmError, UnavailableError
from pvdm.model.projection import content, identity
from pvdm.model.schema import Field, Inner, Kind, ListType, PrimitiveType, Schema
from pvdm.verify.locate import KernelSearch, LocateLimits
from tests.support.oracles.located_rows import wrong

pytest.importorskip("pvdm_kernel")

# id may be null; amount may be NaN; parts is nested; stamp is left out of the content.
SCHEMA = Schema(
    (
        Field("id", PrimitiveType(Kind.LONG), False, 1),
        Field("amount", PrimitiveType(Kind.DOUBLE), False, 2),
        Field("note", PrimitiveType(Kind.STRING), False, 3),
        Field("parts", ListType(Inner(PrimitiveType(Kind.INT), False, 5)), False, 4),
        Field("stamp", PrimitiveType(Kind.LONG), False, 6),
    )
)
PLAN = Plan(SCHEMA, (identity(SCHEMA, ["id"]), content(SCHEMA, exclude={"stamp": "when it was written"})))
Row = tuple[Any, Any, Any, Any]
NAN = float("nan")
# Another sign: the same value, and the same `repr`.
NEGATIVE_NAN = math.copysign(NAN, -1.0)


def table(rows: Sequence[Row], stamp: int) -> pa.Table:
    parts = pa.list_(pa.field("element", pa.int32(), metadata=_id(5)))
    types: list[Any] = [pa.int64(), pa.float64(), pa.string(), parts, pa.int64()]
    columns = [[row[at] for row in rows] for at in range(4)] + [[stamp] * len(rows)]
    fields = [
        pa.field(field.name, kind, metadata=_id(field.field_id))
        for field, kind in zip(SCHEMA.fields, types, strict=True)
    ]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _id(number: int | None) -> dict[str, str]:
    return {"PARQUET:field_id": str(number)}


def intended(rows: Sequence[Row]) -> Iterator[pa.RecordBatch]:
    yield from table(rows, 1).to_batches(max_chunksize=3)


def staged_bytes(rows: Sequence[Row]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table(rows, 2), sink, row_group_size=4)
    return sink.getvalue()


def cut(rows: Sequence[Row], parts: int) -> list[Sequence[Row]]:
    return [rows[at::parts] for at in range(parts)]


def located(
    intent: Sequence[Row], staged: Sequence[Row], *, parts: int = 1, threads: int = 1, **limits: Any
) -> tuple[dict[str, Any], KernelSearch]:
    intents = [partial(intended, rows) for rows in cut(intent, parts)]
    files = [partial(staged_bytes, rows) for rows in cut(staged, parts)]
    found = KernelSearch(PLAN, intents, files, threads=threads, limits=LocateLimits(**limits))
    return found.run(len(intent), len(staged)), found


def pairs(rows: Sequence[Row]) -> list[tuple[Any, Any]]:
    """Keys with rows as the digest sees them: NaN is NaN, and nothing is rounded."""
    return [(row[0], repr(row)) for row in rows]


CLASSES = ("missing", "added", "duplicated", "modified")
rows_strategy = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 4)),
        st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, NAN, NEGATIVE_NAN])),
        st.one_of(st.none(), st.sampled_from(["", "a", "ä"])),
        st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(0, 1)), max_size=2)),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(intent=rows_strategy, staged=rows_strategy, kept=st.integers(0, 12), parts=st.integers(1, 3))
def test_counts_keys_and_files_are_those_of_the_naive_way(
    intent: list[Row], staged: list[Row], kept: int, parts: int
) -> None:
    staged = intent[:kept] + staged
    expected = wrong(pairs(intent), pairs(staged))
    if Counter(pairs(intent)) == Counter(pairs(staged)):
        return
    found, _ = located(intent, staged, parts=parts, threads=2)
    files = {False: cut(intent, parts), True: cut(staged, parts)}
    for name in CLASSES:
        counter: Counter[Any] = getattr(expected, name)
        told = found[name]
        assert told["rows"] == sum(counter.values()), name
        assert sum(rows for _, rows in told["files"]) == told["rows"]
        keys: Counter[Any] = Counter()
        for sample in told["samples"]:
            file, row = sample["at"]
            keys[files[name != "missing"][file][row][0]] += sample["rows"]
        assert keys == counter, name
    assert found["compared"] == found["modified"]["rows"]


@settings(max_examples=20, deadline=None)
@given(intent=rows_strategy, staged=rows_strategy)
def test_beyond_its_memory_the_same_is_told(intent: list[Row], staged: list[Row]) -> None:
    if Counter(pairs(intent)) == Counter(pairs(staged)):
        return
    whole, _ = located(intent, staged)
    spooled, _ = located(intent, staged, memory_bytes=100)
    assert {name: whole[name]["rows"] for name in CLASSES} == {name: spooled[name]["rows"] for name in CLASSES}


ROWS: list[Row] = [(at, at / 4, f"note {at}", [at]) for at in range(1_000)]


def test_each_class_is_told_with_its_places_and_the_fields_that_differ() -> None:
    staged = [row for row in ROWS if row[0] not in (3, 500)]
    staged[10] = (*staged[10][:1], NAN, "other", staged[10][3])
    staged[11] = (*staged[11][:2], None, staged[11][3])
    staged += [ROWS[7], ROWS[7], (5_000, 1.0, "new", None)]
    found, _ = located(ROWS, staged)
    assert {name: found[name]["rows"] for name in CLASSES} == {
        "missing": 2,
        "added": 1,
        "duplicated": 2,
        "modified": 2,
    }
    assert [sample["at"] for sample in found["missing"]["samples"]] == [[0, 3], [0, 500]]
    assert [(sample["at"], sample["rows"]) for sample in found["duplicated"]["samples"]] == [([0, 998], 2)]
    assert [sample["fields"] for sample in found["modified"]["samples"]] == [["amount", "note"], ["note"]]
    assert sorted(found["fields"]) == [["amount", 1], ["note", 2]]


def test_a_column_that_is_left_out_of_the_content_is_never_told() -> None:
    found, _ = located(ROWS, [*ROWS[1:], (0, 9.0, "note 0", [0])])
    assert found["fields"] == [["amount", 1]]


def test_nans_of_other_bits_are_one_key() -> None:
    plan = Plan(SCHEMA, (identity(SCHEMA, ["amount"]), content(SCHEMA, exclude={"stamp": "when it was written"})))
    intent, staged = [(1, NAN, "a", None), (2, 0.0, "b", None)], [(1, NEGATIVE_NAN, "c", None), (2, -0.0, "b", None)]
    found = KernelSearch(plan, [partial(intended, intent)], [partial(staged_bytes, staged)]).run(2, 2)
    assert {name: found[name]["rows"] for name in CLASSES if found[name]["rows"]} == {
        "modified": 1,
        "missing": 1,
        "added": 1,
    }
    assert found["fields"] == [["note", 1]]


def test_a_changed_key_is_one_row_missing_and_one_added() -> None:
    found, _ = located(ROWS, [*ROWS[1:], (-1, *ROWS[0][1:])])
    assert {name: found[name]["rows"] for name in CLASSES if found[name]["rows"]} == {"missing": 1, "added": 1}


def test_as_many_samples_are_told_as_are_asked_for_and_they_are_the_first() -> None:
    found, _ = located(ROWS, ROWS[900:], samples=3)
    assert found["missing"]["rows"] == 900
    assert [sample["at"] for sample in found["missing"]["samples"]] == [[0, 0], [0, 1], [0, 2]]


def test_where_everything_differs_the_counts_are_exact_in_little_memory() -> None:
    changed = [(row[0], row[1], "x", row[3]) for row in ROWS]
    found, locating = located(ROWS, changed, parts=3, threads=2, memory_bytes=20_000)
    assert locating.spooled
    assert (found["modified"]["rows"], found["fields"], found["compared"]) == (1_000, [["note", 1_000]], 1_000)


def test_where_fields_find_no_room_in_the_spool_rows_are_told_without_them() -> None:
    changed = [(row[0], row[1], "x", row[3]) for row in ROWS]
    found, _ = located(ROWS, changed, spool_bytes=2_000 * 45, memory_bytes=10_000)
    assert (found["modified"]["rows"], found["fields"], found["compared"]) == (1_000, [], 0)
    assert found["modified"]["samples"][0]["fields"] is None


def test_a_spool_that_is_full_ends_the_locating() -> None:
    with pytest.raises(UnavailableError) as caught:
        located(ROWS, [(row[0], 0.5, None, None) for row in ROWS], spool_bytes=20_000, memory_bytes=1_000)
    assert caught.value.reason == "locate_spool_full"


def test_the_spool_is_gone_afterwards_and_was_nobodys_to_read(tmp_path: Path) -> None:
    located(ROWS, ROWS[:10], memory_bytes=1_000, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_one_key_with_very_many_rows_takes_no_more_memory_and_is_counted_exactly() -> None:
    """More rows than are held whole: what has no record any more is counted by its file."""
    intent = [(None, 1.0, "a", None)] * 500 + [(None, float(at), "b", None) for at in range(500)]
    found, _ = located(intent, [(None, 1.0, "a", None)] * 700, parts=2)
    assert {name: found[name]["rows"] for name in CLASSES if found[name]["rows"]} == {
        "missing": 500,
        "duplicated": 200,
    }
    assert [sample["rows"] for sample in found["missing"]["samples"]] == [500]


def test_locating_ends_when_its_time_is_over() -> None:
    with pytest.raises(UnavailableError) as caught:
        located(ROWS, ROWS[1:], seconds=-1)
    assert caught.value.reason == "locate_too_slow"


def test_what_is_located_must_explain_the_counts() -> None:
    locating = KernelSearch(PLAN, [partial(intended, ROWS)], [partial(staged_bytes, ROWS[1:])])
    with pytest.raises(PvdmError) as caught:
        locating.run(1_000, 998)
    assert caught.value.reason == "locate_inconsistent"
    with pytest.raises(PvdmError, match="do not explain"):
        KernelSearch(PLAN, [partial(intended, ROWS)], [partial(staged_bytes, ROWS)]).run(1_000, 1_000)
