"""Plans of chunks: their ids and filters for each kind of chunking, and plans that are refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from pvdm.errors import InputError
from pvdm.model.chunk import CHUNK_DEFINITION_MAX_BYTES, CHUNK_ID_MAX_CHARACTERS, ChunkDefinition, ChunkPlan
from pvdm.model.contract import Chunking, ChunkingBy
from pvdm.model.filter.bind import bind
from pvdm.model.filter.expression import Always
from pvdm.model.filter.text import parse_expression
from pvdm.model.schema import Field, Inner, Kind, ListType, PrimitiveType, Schema, type_from_json
from pvdm.model.statements.proof import CHUNKS_MAX
from pvdm.verify.chunk_files import chunk_filter
from pvdm.verify.planning import plan_chunks
from tests.support.for_each import for_each

SCHEMA = Schema(
    (
        Field("day", type_from_json("date")),
        Field("region", type_from_json("string")),
        Field("amount", type_from_json("double")),
        Field("paid", type_from_json("boolean")),
        Field("ref", type_from_json("uuid")),
        Field("l", ListType(Inner(PrimitiveType(Kind.INT)))),
    )
)


def chunks_by_values(columns: tuple[str, ...], values: list[tuple[Any, ...]], most: int = 100) -> ChunkPlan:
    chunking = Chunking(ChunkingBy.PARTITION, columns, None, None, ())
    return plan_chunks(chunking, SCHEMA, values=values, most=most)


def chunks_by_range(column: str, *bounds: str, most: int = 100) -> ChunkPlan:
    return plan_chunks(Chunking(ChunkingBy.RANGE, (), None, column, bounds), SCHEMA, most=most)


def chunks_by_files(files: list[tuple[str, int]], max_bytes: int = 100, most: int = 100) -> ChunkPlan:
    return plan_chunks(Chunking(ChunkingBy.FILES, (), max_bytes, None, ()), SCHEMA, files=files, most=most)


def filters_by_id(plan: ChunkPlan) -> dict[str, str | None]:
    return {chunk.chunk_id: chunk.where for chunk in plan}


def refusal_of(make: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        make()
    return caught.value


def test_without_chunking_one_chunk_has_every_row() -> None:
    plan = plan_chunks(Chunking(ChunkingBy.NONE, (), None, None, ()), SCHEMA, most=1)
    assert filters_by_id(plan) == {"all": "true"}


def test_each_value_has_a_chunk_and_all_other_rows_have_one() -> None:
    assert filters_by_id(chunks_by_values(("region",), [("eu",), ("us",)])) == {
        "region=eu": "region = 'eu'",
        "region=us": "region = 'us'",
        "region=~other": "region is null or (region is not null and region not in ('eu', 'us'))",
    }


def test_each_combination_of_values_has_a_chunk_and_all_others_have_one() -> None:
    assert filters_by_id(chunks_by_values(("day", "region"), [(0, "eu"), (0, None), (1, "eu")])) == {
        "day=1970-01-01,region=eu": "day = '1970-01-01' and region = 'eu'",
        "day=1970-01-01,region=~null": "day = '1970-01-01' and region is null",
        "day=1970-01-02,region=eu": "day = '1970-01-02' and region = 'eu'",
        "day=~other,region=~other": "(day is null or (day is not null and day not in ('1970-01-01', '1970-01-02')))"
        " or (day = '1970-01-01' and (region is not null and region not in ('eu')))"
        " or (day = '1970-01-02' and (region is null or (region is not null and region not in ('eu'))))",
    }


def test_null_and_nan_have_chunks_if_the_values_have_them() -> None:
    assert filters_by_id(chunks_by_values(("amount",), [(None,), (math.nan,), (-0.0,), (0.0,)])) == {
        "amount=0.0": "amount = 0.0",
        "amount=~nan": "amount is nan",
        "amount=~null": "amount is null",
        "amount=~other": "amount is not null and amount not in (0.0) and amount is not nan",
    }


def test_a_value_without_a_literal_is_in_the_chunk_of_all_other_rows() -> None:
    assert filters_by_id(chunks_by_values(("amount",), [(math.inf,)])) == {"amount=~other": "true"}
    plan = chunks_by_values(("day", "region"), [(2**31 - 1, "eu")])
    assert filters_by_id(plan) == {"day=~other,region=~other": "true"}


def test_values_that_look_alike_have_different_ids() -> None:
    plan = chunks_by_values(("region",), [("null",), (None,), ("~null",), ("a=b,c/d é",), ("",)])
    ids = [chunk.chunk_id for chunk in plan]
    assert ids == [
        "region=",
        "region=a%3Db%2Cc%2Fd%20%C3%A9",
        "region=null",
        "region=%7Enull",
        "region=~null",
        "region=~other",
    ]


def test_long_ids_are_cut_and_stay_different() -> None:
    ids = [chunk.chunk_id for chunk in chunks_by_values(("region",), [("x" * 500 + "1",), ("x" * 500 + "2",)])]
    assert len(set(ids)) == 3
    assert max(map(len, ids)) == CHUNK_ID_MAX_CHARACTERS


def test_the_plan_does_not_depend_on_the_order_of_the_values() -> None:
    one = chunks_by_values(("day", "region"), [(0, "eu"), (1, None)])
    other = chunks_by_values(("day", "region"), [(1, None), (0, "eu"), (0, "eu")])
    assert one.sha256 == other.sha256
    assert one.sha256 != chunks_by_values(("day", "region"), [(0, "eu")]).sha256


def test_columns_of_booleans_and_uuids_can_be_chunked_by_values() -> None:
    assert chunks_by_values(("paid", "ref"), [(True, UUID(int=0))]).chunks[0].where == (
        "paid = true and ref = '00000000-0000-0000-0000-000000000000'"
    )


def test_ranges_are_half_open_and_null_has_its_own_chunk() -> None:
    assert filters_by_id(chunks_by_range("amount", "0", "1e1")) == {
        "amount=(,0.0)": "amount < 0.0",
        "amount=[0.0,10.0)": "amount >= 0.0 and amount < 10.0",
        "amount=[10.0,)": "amount >= 10.0",
        "amount=~null": "amount is null",
    }


def test_ranges_with_the_empty_text_as_a_bound_have_different_ids() -> None:
    ids = [chunk.chunk_id for chunk in chunks_by_range("region", "", "null")]
    assert ids == ["region=(,)", "region=[,null)", "region=[null,)", "region=~null"]


def test_bounds_of_text_are_ordered_by_their_bytes() -> None:
    chunks_by_range("region", "\uffff", "\U00010000")
    assert refusal_of(lambda: chunks_by_range("region", "\U00010000", "\uffff")).reason == "chunk_bounds_unordered"


@pytest.mark.parametrize("bounds", [("1", "0"), ("0", "-0.0"), ("1", "1.0")])
def test_bounds_that_are_not_ascending_are_refused(bounds: tuple[str, ...]) -> None:
    assert refusal_of(lambda: chunks_by_range("amount", *bounds)).reason == "chunk_bounds_unordered"


def test_a_bound_of_another_type_is_refused() -> None:
    assert refusal_of(lambda: chunks_by_range("day", "today")).reason == "literal_invalid"


@pytest.mark.parametrize("column", ["paid", "ref", "l"])
def test_ranges_of_a_column_that_engines_order_differently_or_not_at_all_are_refused(column: str) -> None:
    assert refusal_of(lambda: chunks_by_range(column, "true")).reason == "predicate_unsuited"


def test_chunking_by_values_of_a_column_without_literals_is_refused() -> None:
    assert refusal_of(lambda: chunks_by_values(("l",), [])).reason == "predicate_unsuited"


@pytest.mark.parametrize("make", [lambda: chunks_by_values(("x",), []), lambda: chunks_by_range("x", "1")])
def test_an_unknown_column_is_refused(make: Any) -> None:
    assert refusal_of(make).reason == "filter_column_unknown"


def test_files_are_grouped_up_to_the_size_and_a_larger_one_is_alone() -> None:
    files = [(f"f{at}", size) for at, size in enumerate((60, 40, 1, 500, 10, 10))]
    plan = chunks_by_files(files)
    assert [chunk.files for chunk in plan] == [("f0", "f1"), ("f2",), ("f3",), ("f4", "f5")]
    assert [chunk.chunk_id[:12] for chunk in plan] == ["files-00001-", "files-00002-", "files-00003-", "files-00004-"]


def test_a_source_without_files_has_one_empty_chunk() -> None:
    assert [chunk.files for chunk in chunks_by_files([])] == [()]


def test_a_repeated_file_is_refused() -> None:
    assert refusal_of(lambda: chunks_by_files([("f", 1), ("f", 1)])).reason == "source_file_repeated"


def test_a_group_ends_before_its_definition_is_too_large() -> None:
    files = [(f"{at:04d}" + "x" * 8_000, 0) for at in range(20)]
    plan = chunks_by_files(files)
    assert len(plan.chunks) == 3
    assert max(len(chunk.to_bytes()) for chunk in plan) <= CHUNK_DEFINITION_MAX_BYTES


def test_a_plan_with_more_chunks_than_the_contract_allows_is_refused() -> None:
    days = [(day,) for day in range(5)]
    plans: list[Callable[[int], ChunkPlan]] = [
        lambda most: chunks_by_values(("day",), days, most),
        lambda most: chunks_by_range("day", "1970-01-01", "1970-01-02", "1970-01-03", "1970-01-04", most=most),
        lambda most: chunks_by_files([(str(at), 100) for at in range(6)], most=most),
    ]
    for make in plans:
        assert len(make(6).chunks) == 6
        assert refusal_of(partial(make, 5)).reason == "chunks_too_many"


def test_a_plan_without_chunks_or_with_too_many_or_repeated_ones_is_refused() -> None:
    one = ChunkDefinition("a", "true", None)
    assert refusal_of(lambda: ChunkPlan(())).reason == "chunks_too_many"  # one reason for a wrong number of chunks
    assert refusal_of(lambda: ChunkPlan((one, one))).reason == "chunk_repeated"
    many = tuple(ChunkDefinition(str(at), "true", None) for at in range(CHUNKS_MAX + 1))
    assert refusal_of(lambda: ChunkPlan(many)).reason == "chunks_too_many"


def test_more_values_than_a_definition_can_hold_are_refused_with_a_hint() -> None:
    error = refusal_of(lambda: chunks_by_values(("region",), [(f"{at:060d}",) for at in range(1_500)], most=10_000))
    assert error.reason == "chunk_definition_too_large"
    assert "ranges" in (error.hint or "")


@for_each(
    ("where", "files"),
    [
        (None, None),
        ("true", ()),
        ("a = ${p}", None),
        ("a  =  1", None),
        ("a =", None),
        (None, ("b", "a")),
        (None, ("a", "a")),
    ],
)
def test_a_definition_that_is_not_canonical_is_refused(where: str | None, files: tuple[str, ...] | None) -> None:
    with pytest.raises(InputError):
        ChunkDefinition("a", where, files)


@for_each("chunk_id", ["", " ", "a\nb", "x" * (CHUNK_ID_MAX_CHARACTERS + 1)])
def test_an_id_that_is_not_one_short_line_is_refused(chunk_id: str) -> None:
    with pytest.raises(InputError):
        ChunkDefinition(chunk_id, "true", None)


@for_each(
    "data",
    [
        b"{}",
        b'{"id":"a"}',
        b'{"id":"a","where":"true"}',
        b'{"files":[],"id":"a","source":null,"where":"true"}',
        b'{"id":"a","source":null,"where":1}',
        b'{"id":"a","source":"ab","where":"true"}',
        b'{"files":[1],"id":"a","source":null}',
        b'{"where":"true","source":null,"id":"a"}',
        b"[]",
    ],
)
def test_bytes_that_are_no_definition_are_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        ChunkDefinition.from_bytes(data)


def test_a_chunk_definition_has_these_bytes() -> None:
    assert (
        ChunkDefinition("region=eu", "region = 'eu'", None).to_bytes()
        == b'{"id":"region=eu","source":null,"where":"region = \'eu\'"}'
    )
    source = "ab" * 32
    assert (
        ChunkDefinition("files-1", None, ("f1", "f2"), source).to_bytes()
        == b'{"files":["f1","f2"],"id":"files-1","source":"%s"}' % source.encode()
    )


def test_the_filter_of_a_chunk_is_combined_with_the_contracts_filter() -> None:
    where = bind(parse_expression("amount > 5 or paid = true"), SCHEMA, {})
    part = ChunkDefinition("region=eu", "region = 'eu'", None)
    assert str(chunk_filter(where, part.expression, SCHEMA)) == "(amount > 5.0 or paid = true) and region = 'eu'"
    assert str(chunk_filter(Always(), part.expression, SCHEMA)) == "region = 'eu'"
    assert chunk_filter(where, ChunkDefinition("files-1", None, ()).expression, SCHEMA) == where
