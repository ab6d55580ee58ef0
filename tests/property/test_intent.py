"""Intent of random tables: the chunks of every plan add up to the filtered source."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pvdm.digest import combine, digest
from pvdm.model.contract import BoundContract
from pvdm.model.filter.expression import Expression
from pvdm.model.filter.literal import literal_text
from pvdm.model.projection import ProjectionName
from pvdm.model.schema import DecimalType, Field, Kind, PrimitiveType, Schema
from pvdm.verify.intent import digest_plan
from pvdm.verify.source import PinnedSource
from tests.support.examples import examples
from tests.support.lake.scans import KEYS, Lake, fetch, identity_spec, pinned, table_of, to_doc
from tests.support.oracles.filters import SAMPLES, Row, filters, keeps, typed_literals
from tests.support.verify.intents import digest_intent
from tests.support.verify.plans import plan_with_rows
from tests.unit.contract.examples import contract_with

pytestmark = [pytest.mark.property, pytest.mark.usefixtures("kernel")]

UNORDERED = (PrimitiveType(Kind.BOOLEAN), PrimitiveType(Kind.UUID))
TYPES = [kind for kind in SAMPLES if kind not in (PrimitiveType(Kind.TIME_NS), DecimalType(76, 0))]


@st.composite
def sources(draw: st.DrawFn) -> tuple[Schema, list[list[Row]]]:
    """A few columns, and the rows of a few files."""
    kinds = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
    columns = Schema(tuple(Field(f"c{at}", kind, field_id=at + 1) for at, kind in enumerate(kinds)))
    row = st.fixed_dictionaries({each.name: st.none() | st.sampled_from(SAMPLES[each.type]) for each in columns.fields})
    return columns, draw(st.lists(st.lists(row, max_size=6), min_size=0, max_size=3))


@st.composite
def chunkings(draw: st.DrawFn, columns: Schema) -> dict[str, Any]:
    ordered = [each for each in columns.fields if each.type not in UNORDERED]
    by = draw(st.sampled_from(["none", "partition", "files", "range"] if ordered else ["none", "partition", "files"]))
    if by == "partition":
        names = draw(st.lists(st.sampled_from(columns.names), min_size=1, max_size=2, unique=True))
        return {"by": by, "columns": names}
    if by == "files":
        return {"by": by, "max-size": draw(st.sampled_from([1, 2_000, 10**9]))}
    if by == "range":
        column = draw(st.sampled_from(ordered))
        order: Any = lambda one: one.value.encode() if isinstance(one.value, str) else one.value  # noqa: E731
        found = draw(st.lists(typed_literals(column.type), min_size=1, max_size=3, unique_by=order))
        bounds = [str(literal_text(each.value, column.type)) for each in sorted(found, key=order)]
        return {"by": by, "column": column.name, "bounds": bounds}
    return {"by": by}


def contract(columns: Schema, where: Expression, chunking: dict[str, Any]) -> BoundContract:
    changes = (("boundary/where", str(where)), ("chunking", chunking), ("projections/identity", [columns.names[0]]))
    made = contract_with(*changes)
    return made.bind({})


def source_of(folder: Path, columns: Schema, files: list[list[Row]], *, partitioned: bool) -> PinnedSource:
    """A table of these files. If `partitioned`, a file with one value of the first column is partitioned by it."""
    first = columns.fields[0]
    lake = Lake(folder, (to_doc(columns),), version=3, specs={0: [], 1: identity_spec(1, first.name)})
    for rows in files:
        values = {repr(row[first.name]) for row in rows}
        if partitioned and len(values) == 1:
            lake.data(table_of(columns, rows), spec=1, partition={1000: rows[0][first.name]})
        else:
            lake.data(table_of(columns, rows))
    return pinned(lake)


@examples(150)
@given(data=st.data(), partitioned=st.booleans(), threads=st.integers(1, 2))
def test_the_chunks_of_every_plan_add_up_to_the_filtered_source(
    data: st.DataObject, partitioned: bool, threads: int
) -> None:
    columns, files = data.draw(sources())
    where = data.draw(filters(columns, depth=1))
    bound = contract(columns, where, data.draw(chunkings(columns)))
    plan = digest_plan(bound.contract, columns)
    wanted = [row for rows in files for row in rows if keeps(where, row)]
    with tempfile.TemporaryDirectory() as folder:
        source = source_of(Path(folder), columns, files, partitioned=partitioned)
        chunks = plan_with_rows(bound, source, fetch)
        parts = [digest_intent(bound, source, chunk, plan, KEYS, fetch, threads=threads) for chunk in chunks]
    whole = digest(table_of(columns, wanted), plan, KEYS)
    for name in ProjectionName:
        total = combine(part[name] for part in parts)
        assert total.rows == len(wanted)
        assert total.matches(whole[name])


@examples(60)
@given(data=st.data())
def test_a_chunk_by_values_holds_rows_of_its_values_only(data: st.DataObject) -> None:
    columns, files = data.draw(sources())
    name = columns.names[0]
    bound = contract(columns, data.draw(filters(columns, depth=0)), {"by": "partition", "columns": [name]})
    plan = digest_plan(bound.contract, columns)
    with tempfile.TemporaryDirectory() as folder:
        source = source_of(Path(folder), columns, files, partitioned=True)
        chunks = plan_with_rows(bound, source, fetch)
        assert chunks == plan_with_rows(bound, source, fetch)
        rows = {
            chunk.chunk_id: digest_intent(bound, source, chunk, plan, KEYS, fetch)[ProjectionName.IDENTITY].rows
            for chunk in chunks
        }
    # The chunk `~other` has the values that have no literal. Each chunk was planned because a row has its value.
    assert all(count > 0 for count in rows.values()) or list(rows) == [f"{name}=~other"]
