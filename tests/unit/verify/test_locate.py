"""Locating wrong rows, compared with a naive search: classes, counts, keys, files and fields, also with a spool."""

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
from tests.support.oracles.located_rows import count_wrong_rows

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
# A NaN with another sign: it counts as the same value, and has the same `repr`.
NEGATIVE_NAN = math.copysign(NAN, -1.0)


def table(rows: Sequence[Row], stamp: int) -> pa.Table:
    parts = pa.list_(pa.field("element", pa.int32(), metadata=field_id_metadata(5)))
    types: list[Any] = [pa.int64(), pa.float64(), pa.string(), parts, pa.int64()]
    columns = [[row[at] for row in rows] for at in range(4)] + [[stamp] * len(rows)]
    fields = [
        pa.field(field.name, kind, metadata=field_id_metadata(field.field_id))
        for field, kind in zip(SCHEMA.fields, types, strict=True)
    ]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def field_id_metadata(number: int | None) -> dict[str, str]:
    return {"PARQUET:field_id": str(number)}


def intent_batches(rows: Sequence[Row]) -> Iterator[pa.RecordBatch]:
    yield from table(rows, 1).to_batches(max_chunksize=3)


def staged_file(rows: Sequence[Row]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table(rows, 2), sink, row_group_size=4)
    return sink.getvalue()


def split_rows(rows: Sequence[Row], parts: int) -> list[Sequence[Row]]:
    return [rows[at::parts] for at in range(parts)]


def locate(
    intent: Sequence[Row], staged: Sequence[Row], *, parts: int = 1, threads: int = 1, **limits: Any
) -> tuple[dict[str, Any], KernelSearch]:
    intents = [partial(intent_batches, rows) for rows in split_rows(intent, parts)]
    files = [partial(staged_file, rows) for rows in split_rows(staged, parts)]
    found = KernelSearch(PLAN, intents, files, threads=threads, limits=LocateLimits(**limits))
    return found.run(len(intent), len(staged)), found


def keys_and_rows(rows: Sequence[Row]) -> list[tuple[Any, Any]]:
    """The key and the text of each row; texts are equal where digests are: NaN equals NaN, and nothing is rounded."""
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
def test_counts_keys_and_files_equal_those_of_the_naive_way(
    intent: list[Row], staged: list[Row], kept: int, parts: int
) -> None:
    staged = intent[:kept] + staged
    expected = count_wrong_rows(keys_and_rows(intent), keys_and_rows(staged))
    if Counter(keys_and_rows(intent)) == Counter(keys_and_rows(staged)):
        return
    found, _ = locate(intent, staged, parts=parts, threads=2)
    files = {False: split_rows(intent, parts), True: split_rows(staged, parts)}
    for name in CLASSES:
        counter: Counter[Any] = getattr(expected, name)
        result = found[name]
        assert result["rows"] == sum(counter.values()), name
        assert sum(rows for _, rows in result["files"]) == result["rows"]
        keys: Counter[Any] = Counter()
        for sample in result["samples"]:
            file, row = sample["at"]
            keys[files[name != "missing"][file][row][0]] += sample["rows"]
        assert keys == counter, name
    assert found["compared"] == found["modified"]["rows"]


@settings(max_examples=20, deadline=None)
@given(intent=rows_strategy, staged=rows_strategy)
def test_the_counts_are_the_same_with_a_spool(intent: list[Row], staged: list[Row]) -> None:
    if Counter(keys_and_rows(intent)) == Counter(keys_and_rows(staged)):
        return
    whole, _ = locate(intent, staged)
    spooled, _ = locate(intent, staged, memory_bytes=100)
    assert {name: whole[name]["rows"] for name in CLASSES} == {name: spooled[name]["rows"] for name in CLASSES}


ROWS: list[Row] = [(at, at / 4, f"note {at}", [at]) for at in range(1_000)]


def test_each_class_has_its_rows_positions_and_differing_fields() -> None:
    staged = [row for row in ROWS if row[0] not in (3, 500)]
    staged[10] = (*staged[10][:1], NAN, "other", staged[10][3])
    staged[11] = (*staged[11][:2], None, staged[11][3])
    staged += [ROWS[7], ROWS[7], (5_000, 1.0, "new", None)]
    found, _ = locate(ROWS, staged)
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


def test_a_column_that_is_left_out_of_the_content_is_no_difference() -> None:
    found, _ = locate(ROWS, [*ROWS[1:], (0, 9.0, "note 0", [0])])
    assert found["fields"] == [["amount", 1]]


def test_nans_of_other_bits_are_one_key() -> None:
    plan = Plan(SCHEMA, (identity(SCHEMA, ["amount"]), content(SCHEMA, exclude={"stamp": "when it was written"})))
    intent, staged = [(1, NAN, "a", None), (2, 0.0, "b", None)], [(1, NEGATIVE_NAN, "c", None), (2, -0.0, "b", None)]
    found = KernelSearch(plan, [partial(intent_batches, intent)], [partial(staged_file, staged)]).run(2, 2)
    assert {name: found[name]["rows"] for name in CLASSES if found[name]["rows"]} == {
        "modified": 1,
        "missing": 1,
        "added": 1,
    }
    assert found["fields"] == [["note", 1]]


def test_a_changed_key_is_one_row_missing_and_one_added() -> None:
    found, _ = locate(ROWS, [*ROWS[1:], (-1, *ROWS[0][1:])])
    assert {name: found[name]["rows"] for name in CLASSES if found[name]["rows"]} == {"missing": 1, "added": 1}


def test_the_samples_are_the_first_rows_up_to_the_limit() -> None:
    found, _ = locate(ROWS, ROWS[900:], samples=3)
    assert found["missing"]["rows"] == 900
    assert [sample["at"] for sample in found["missing"]["samples"]] == [[0, 0], [0, 1], [0, 2]]


def test_counts_are_exact_with_little_memory_if_every_row_differs() -> None:
    changed = [(row[0], row[1], "x", row[3]) for row in ROWS]
    found, search = locate(ROWS, changed, parts=3, threads=2, memory_bytes=20_000)
    assert search.spooled
    assert (found["modified"]["rows"], found["fields"], found["compared"]) == (1_000, [["note", 1_000]], 1_000)


def test_rows_are_located_without_fields_if_the_spool_is_too_small_for_these() -> None:
    changed = [(row[0], row[1], "x", row[3]) for row in ROWS]
    found, _ = locate(ROWS, changed, spool_bytes=2_000 * 45, memory_bytes=10_000)
    assert (found["modified"]["rows"], found["fields"], found["compared"]) == (1_000, [], 0)
    assert found["modified"]["samples"][0]["fields"] is None


def test_a_full_spool_is_an_error() -> None:
    with pytest.raises(UnavailableError) as caught:
        locate(ROWS, [(row[0], 0.5, None, None) for row in ROWS], spool_bytes=20_000, memory_bytes=1_000)
    assert caught.value.reason == "locate_spool_full"


def test_the_spool_is_removed_afterwards(tmp_path: Path) -> None:
    locate(ROWS, ROWS[:10], memory_bytes=1_000, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_very_many_rows_of_one_key_are_counted_exactly() -> None:
    """There are more rows than records are kept for; the others are counted by file only."""
    intent = [(None, 1.0, "a", None)] * 500 + [(None, float(at), "b", None) for at in range(500)]
    found, _ = locate(intent, [(None, 1.0, "a", None)] * 700, parts=2)
    assert {name: found[name]["rows"] for name in CLASSES if found[name]["rows"]} == {
        "missing": 500,
        "duplicated": 200,
    }
    assert [sample["rows"] for sample in found["missing"]["samples"]] == [500]


def test_locating_beyond_its_time_is_an_error() -> None:
    with pytest.raises(UnavailableError) as caught:
        locate(ROWS, ROWS[1:], seconds=-1)
    assert caught.value.reason == "locate_too_slow"


def test_located_rows_that_do_not_explain_the_counts_are_an_error() -> None:
    search = KernelSearch(PLAN, [partial(intent_batches, ROWS)], [partial(staged_file, ROWS[1:])])
    with pytest.raises(PvdmError) as caught:
        search.run(1_000, 998)
    assert caught.value.reason == "locate_inconsistent"
    with pytest.raises(PvdmError, match="do not explain"):
        KernelSearch(PLAN, [partial(intent_batches, ROWS)], [partial(staged_file, ROWS)]).run(1_000, 1_000)
