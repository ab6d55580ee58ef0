"""Chunk plans over random tables: each row of the filtered source is in exactly one chunk."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pvdm.model.chunk import ChunkDefinition, ChunkPlan
from pvdm.model.contract import Chunking, ChunkingBy
from pvdm.model.filter.expression import Expression
from pvdm.model.filter.literal import literal_text
from pvdm.model.schema import Field, Kind, PrimitiveType, Schema
from pvdm.verify.chunk_files import chunk_filter
from pvdm.verify.filtering import filter_rows
from pvdm.verify.planning import plan_chunks
from tests.support.oracles.filters import Table, filters, keeps, tables, typed_literals

pytestmark = pytest.mark.property

CHUNKS_MAX = 10_000
UNORDERED = (PrimitiveType(Kind.BOOLEAN), PrimitiveType(Kind.UUID))


@st.composite
def by_values(draw: st.DrawFn, table: Table) -> ChunkPlan:
    """Some of the combinations that the table has, in any order and twice: a scan that missed some is covered too."""
    columns = tuple(draw(st.lists(st.sampled_from(table.schema.names), min_size=1, max_size=3, unique=True)))
    seen = [tuple(row[name] for name in columns) for row in table.rows]
    values = draw(st.lists(st.sampled_from(seen), max_size=8)) if seen else []
    return plan_chunks(
        Chunking(ChunkingBy.PARTITION, columns, None, None, ()), table.schema, values=values, most=CHUNKS_MAX
    )


@st.composite
def by_ranges(draw: st.DrawFn, table: Table) -> ChunkPlan:
    ordered = [field for field in table.schema.fields if field.type not in UNORDERED]
    if not ordered:
        return plan_chunks(Chunking(ChunkingBy.NONE, (), None, None, ()), table.schema, most=CHUNKS_MAX)
    field = draw(st.sampled_from(ordered))
    order: Any = lambda literal: literal.value.encode() if isinstance(literal.value, str) else literal.value  # noqa: E731
    found = draw(st.lists(typed_literals(field.type), min_size=1, max_size=4, unique_by=order))
    bounds = tuple(str(literal_text(each.value, field.type)) for each in sorted(found, key=order))
    return plan_chunks(Chunking(ChunkingBy.RANGE, (), None, field.name, bounds), table.schema, most=CHUNKS_MAX)


def ids_of(table: Table, where: Expression, plan: ChunkPlan) -> list[list[Any]]:
    """The numbers of the rows in each chunk, found with the real filters on Arrow data."""
    numbered = table.batch.append_column("row", pa.array(range(len(table.rows)), pa.int64()))
    return [
        filter_rows(numbered, chunk_filter(where, chunk.expression, table.schema)).column("row").to_pylist()
        for chunk in plan
    ]


@pytest.mark.parametrize("plans", [by_values, by_ranges], ids=["partition", "range"])
@given(data=st.data())
def test_each_row_of_the_filtered_source_is_in_just_one_chunk(plans: Any, data: st.DataObject) -> None:
    table = data.draw(tables())
    plan = data.draw(plans(table))
    where = data.draw(filters(table.schema, depth=1))
    wanted = [at for at, row in enumerate(table.rows) if keeps(where, row)]
    found = ids_of(table, where, plan)
    assert sorted(at for chunk in found for at in chunk) == wanted
    by_oracle = [
        [at for at, row in enumerate(table.rows) if keeps(chunk_filter(where, chunk.expression, table.schema), row)]
        for chunk in plan
    ]
    assert found == by_oracle


@pytest.mark.parametrize("plans", [by_values, by_ranges], ids=["partition", "range"])
@given(data=st.data())
def test_a_chunk_plan_is_read_back_from_its_bytes(plans: Any, data: st.DataObject) -> None:
    plan = data.draw(plans(data.draw(tables(rows_max=6))))
    again = ChunkPlan(tuple(ChunkDefinition.from_bytes(chunk.to_bytes()) for chunk in plan))
    assert again == plan
    assert again.sha256 == plan.sha256


@given(st.lists(st.integers(0, 100), max_size=40), st.integers(1, 250), st.randoms(use_true_random=False))
def test_each_file_is_in_just_one_chunk_and_chunks_keep_their_size(sizes: list[int], most: int, rnd: Any) -> None:
    files = [(f"file:/lake/é-{at}.parquet", size) for at, size in enumerate(sizes)]
    chunking = Chunking(ChunkingBy.FILES, (), most, None, ())
    schema = Schema((Field("c", PrimitiveType(Kind.INT)),))
    plan = plan_chunks(chunking, schema, files=files, most=CHUNKS_MAX)
    listed = [location for chunk in plan for location in chunk.files or ()]
    assert sorted(listed) == sorted(location for location, _ in files)
    size = dict(files)
    for chunk in plan:
        together = [size[location] for location in chunk.files or ()]
        assert sum(together) <= most or len(together) == 1
    rnd.shuffle(files)
    assert plan_chunks(chunking, schema, files=files, most=CHUNKS_MAX).sha256 == plan.sha256
