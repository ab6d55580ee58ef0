"""Which columns of the intended rows keep the types in which they are stored: those whose values are only digested.

The others are converted to the types of the schema.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pvdm.digest import Plan
from pvdm.digest.parquet import read_batches
from pvdm.errors import VerificationError
from pvdm.lake.read.resolve import Resolution
from pvdm.model.chunk import ChunkDefinition
from pvdm.model.contract import BoundContract
from pvdm.model.projection import ProjectionName
from pvdm.model.schema import DecimalType, Field, Kind, PrimitiveType, Schema
from pvdm.verify.intent import Intent, digest_plan
from tests.support.lake.scans import Lake, fetch, identity_spec, pinned, table_of, to_doc
from tests.unit.contract.examples import contract_with

pytestmark = pytest.mark.usefixtures("kernel")

LONG, STRING = PrimitiveType(Kind.LONG), PrimitiveType(Kind.STRING)
PRICE = DecimalType(12, 2)
COLUMNS = Schema(
    (
        Field("id", LONG, field_id=1),
        Field("town", STRING, field_id=2),
        Field("price", PRICE, field_id=3),
        Field("note", STRING, field_id=4),
    )
)
ALL = ChunkDefinition("all", "true", None)
DICTIONARY: pa.DataType = pa.dictionary(pa.int32(), pa.string())
DECIMAL64: Any = getattr(pa, "decimal64")(12, 2)  # noqa: B009  PyArrow's stubs do not know it
OPTIONS: dict[str, Any] = {"use_dictionary": ["town"], "store_decimal_as_integer": True}


def town_rows(count: int = 9) -> list[dict[str, Any]]:
    return [{"id": at, "town": f"t{at % 2}", "price": Decimal(at), "note": f"n{at}"} for at in range(count)]


def lake_at(folder: Path) -> Lake:
    return Lake(folder, (to_doc(COLUMNS),), specs={0: [], 1: identity_spec(2, "town")})


def bound_contract(*changes: tuple[str, Any]) -> BoundContract:
    return contract_with(("projections/identity", ["id"]), *changes).bind({})


def batch_types(
    lake: Lake, contract: BoundContract, target: Schema = COLUMNS, chunk: ChunkDefinition = ALL
) -> dict[str, Any]:
    """The types of the first batch of intended rows, by column of the target."""
    source = pinned(lake)
    intent = Intent(contract, source, chunk, digest_plan(contract.contract, target))
    batch = next(intent.rows(source.scan.files[0], fetch))
    return dict(zip(batch.schema.names, batch.schema.types, strict=True))


def test_strings_of_a_dictionary_and_short_decimals_keep_their_stored_types(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    lake.data(table_of(COLUMNS, town_rows()), **OPTIONS)
    assert batch_types(lake, bound_contract()) == {
        "id": pa.int64(),
        "town": DICTIONARY,
        "price": DECIMAL64,
        "note": pa.string(),
    }


def test_numbers_of_a_dictionary_keep_it_unless_a_filter_or_a_wider_type_needs_their_values(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    lake.data(table_of(COLUMNS, town_rows()), use_dictionary=True, store_decimal_as_integer=True)
    found = batch_types(lake, bound_contract())
    assert (found["id"], found["price"]) == (
        pa.dictionary(pa.int32(), pa.int64()),
        pa.dictionary(pa.int32(), DECIMAL64),
    )
    assert batch_types(lake, bound_contract(("boundary/where", "id > 2")))["id"] == pa.int64()
    wider = Schema(
        tuple(replace(each, type=DecimalType(14, 2)) if each.name == "price" else each for each in COLUMNS.fields)
    )
    columns = [{"from": each.name, "to": each.name} for each in COLUMNS.fields]
    columns[2]["type"] = "decimal(14, 2)"
    assert batch_types(lake, bound_contract(("boundary/columns", columns)), wider)["price"] == pa.decimal128(14, 2)


def test_a_number_stored_in_fewer_bits_than_the_schema_says_has_the_schemas_type(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    narrow = Schema(
        tuple(replace(each, type=PrimitiveType(Kind.INT)) if each.name == "id" else each for each in COLUMNS.fields)
    )
    lake.data(table_of(narrow, town_rows()), use_dictionary=True)
    assert batch_types(lake, bound_contract())["id"] == pa.int64()


def test_each_row_group_keeps_its_own_stored_type(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    many = [{**row, "town": "x" * 50_000} if row["id"] < 2 else row for row in town_rows()]
    lake.data(table_of(COLUMNS, many), row_group_size=3, **OPTIONS)
    source = pinned(lake)
    intent = Intent(bound_contract(), source, ALL, digest_plan(bound_contract().contract, COLUMNS))
    found = [batch.column("town").type for batch in intent.rows(source.scan.files[0], fetch)]
    assert found == [pa.string(), DICTIONARY, DICTIONARY]


@pytest.mark.parametrize(
    ("where", "chunk", "decoded"),
    [("town = 't1'", "true", "town"), ("true", "price > 3", "price"), ("town = 't1'", "price > 3", "town price")],
)
def test_columns_of_the_filter_and_of_the_chunk_have_the_schemas_type(
    tmp_path: Path, where: str, chunk: str, decoded: str
) -> None:
    lake = lake_at(tmp_path)
    lake.data(table_of(COLUMNS, town_rows()), **OPTIONS)
    found = batch_types(lake, bound_contract(("boundary/where", where)), chunk=ChunkDefinition("c", chunk, None))
    assert found["town"] == (pa.string() if "town" in decoded else DICTIONARY)
    assert found["price"] == (pa.decimal128(12, 2) if "price" in decoded else DECIMAL64)


def test_a_column_that_the_mapping_widens_does_not_keep_its_stored_type(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    lake.data(table_of(COLUMNS, town_rows()), **OPTIONS)
    mapping = [{"from": "id", "to": "id"}, {"from": "price", "to": "amount", "type": "decimal(18, 2)"}]
    mapping.append({"from": "price", "to": "price"})
    target = Schema((COLUMNS.fields[0], Field("amount", DecimalType(18, 2), field_id=5), COLUMNS.fields[2]))
    found = batch_types(lake, bound_contract(("boundary/columns", mapping)), target)
    assert (found["amount"], found["price"]) == (pa.decimal128(18, 2), pa.decimal128(12, 2))


def test_a_column_promoted_after_its_file_was_written_has_the_schemas_type(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    older = [replace(each, type=DecimalType(11, 2)) if each.name == "price" else each for each in COLUMNS.fields]
    location = lake.data(table_of(Schema(tuple(older)), town_rows()), **OPTIONS)
    (batch,) = read_batches(fetch(location), COLUMNS, stored=[1, 2, 3, 4])
    assert (batch.column("town").type, batch.column("price").type) == (DICTIONARY, pa.decimal128(11, 2))
    assert batch_types(lake, bound_contract())["price"] == pa.decimal128(12, 2)


def test_each_batch_is_brought_to_the_schema_whatever_types_the_batch_before_had() -> None:
    resolution = Resolution(COLUMNS, {}, {})
    wide = table_of(COLUMNS, town_rows(2)).to_batches()[0]
    narrow = wide.set_column(0, "id", wide.column("id").cast(pa.int32()))
    reordered, fewer = wide.select(["town", "id", "note", "price"]), wide.select(["id", "town", "price"])
    for batch in (wide, wide, narrow, narrow, reordered, reordered, fewer, fewer, wide):
        found = resolution.apply(batch)
        assert found.schema.names == list(COLUMNS.names)
        assert found.column("id").type == pa.int64()
        assert found.column("town").to_pylist() == ["t0", "t1"]


def test_a_column_is_compared_with_its_partition_in_every_batch(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    one_town = [{**row, "town": "t"} for row in town_rows()]
    lake.data(table_of(COLUMNS, one_town), spec=1, partition={1000: "t"}, **OPTIONS)
    found = batch_types(lake, bound_contract())
    assert (found["town"], found["price"]) == (pa.string(), DECIMAL64)
    # Only the last batch has another town.
    false_lake = lake_at(tmp_path)
    two_towns = table_of(COLUMNS, [*one_town, *town_rows(1)])
    false_lake.data(two_towns, spec=1, partition={1000: "t"}, row_group_size=3, **OPTIONS)
    source = pinned(false_lake)
    intent = Intent(bound_contract(), source, ALL, digest_plan(bound_contract().contract, COLUMNS))
    batches = intent.rows(source.scan.files[0], fetch)
    assert [next(batches).num_rows for _ in range(3)] == [3, 3, 3]
    with pytest.raises(VerificationError) as caught:
        next(batches)
    assert caught.value.reason == "source_partition_lies"


def test_columns_that_are_asked_for_by_name_have_the_schemas_type(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    lake.data(table_of(COLUMNS, town_rows()), **OPTIONS)
    contract = contract_with(("projections/identity", ["id", "town", "price"])).bind({})
    whole, source = digest_plan(contract.contract, COLUMNS), pinned(lake)
    plan = Plan(COLUMNS, (whole.projection(ProjectionName.IDENTITY),))
    intent = Intent(contract, source, ALL, plan, ["id", "town", "price"])
    (batch,) = intent.rows(source.scan.files[0], fetch)
    assert batch.column("town").type == pa.string()
    assert batch.column("price").type == pa.decimal128(12, 2)


def test_each_batch_is_mapped_whatever_types_the_batch_before_had(tmp_path: Path) -> None:
    """The mapping found for the types of one batch is not used for a batch of other types."""
    lake = lake_at(tmp_path)
    lake.data(table_of(COLUMNS, town_rows()), **OPTIONS)
    target = Schema((Field("key", LONG, field_id=1), *COLUMNS.fields[1:]))
    mapping = [{"from": each, "to": "key" if each == "id" else each} for each in ("note", "id", "town", "price")]
    contract = contract_with(("projections/identity", ["key"]), ("boundary/columns", mapping)).bind({})
    intent = Intent(contract, pinned(lake), ALL, digest_plan(contract.contract, target))
    wide = table_of(COLUMNS, town_rows(2)).select(["town", "id", "note", "price"]).to_batches()[0]
    narrow = wide.set_column(1, "id", wide.column("id").cast(pa.int32()))
    reordered = wide.select(["id", "town", "price", "note"])
    for batch in (wide, wide, narrow, narrow, reordered, reordered, wide):
        found = intent.map_batch(batch)
        assert found.schema.names == ["note", "key", "town", "price"]
        assert found.column("key").type == pa.int64()
        assert found.column("key").to_pylist() == [0, 1]
        assert found.column("note").to_pylist() == ["n0", "n1"]
