"""Which columns of the intended rows come as they are stored: those of which only a digest looks at the values."""

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
from tests.unit.contract.examples import read

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
DECIMAL64: Any = getattr(pa, "decimal64")(12, 2)  # noqa: B009  its stubs do not know it
OPTIONS: dict[str, Any] = {"use_dictionary": ["town"], "store_decimal_as_integer": True}


def rows(count: int = 9) -> list[dict[str, Any]]:
    return [{"id": at, "town": f"t{at % 2}", "price": Decimal(at), "note": f"n{at}"} for at in range(count)]


def lake_at(folder: Path) -> Lake:
    return Lake(folder, (to_doc(COLUMNS),), specs={0: [], 1: identity_spec(2, "town")})


def bound(*changes: tuple[str, Any]) -> BoundContract:
    return read(("projections/identity", ["id"]), *changes).bind({})


def types(
    lake: Lake, contract: BoundContract, target: Schema = COLUMNS, chunk: ChunkDefinition = ALL
) -> dict[str, Any]:
    """The types of the first batch, by the target's columns."""
    source = pinned(lake)
    intent = Intent(contract, source, chunk, digest_plan(contract.contract, target))
    batch = next(intent.rows(source.scan.files[0], fetch))
    return dict(zip(batch.schema.names, batch.schema.types, strict=True))


def test_strings_of_a_dictionary_and_short_decimals_come_as_they_are_stored(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    lake.data(table_of(COLUMNS, rows()), **OPTIONS)
    assert types(lake, bound()) == {"id": pa.int64(), "town": DICTIONARY, "price": DECIMAL64, "note": pa.string()}


def test_numbers_of_a_dictionary_come_by_it_unless_somebody_looks_at_them(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    lake.data(table_of(COLUMNS, rows()), use_dictionary=True, store_decimal_as_integer=True)
    found = types(lake, bound())
    assert (found["id"], found["price"]) == (
        pa.dictionary(pa.int32(), pa.int64()),
        pa.dictionary(pa.int32(), DECIMAL64),
    )
    assert types(lake, bound(("boundary/where", "id > 2")))["id"] == pa.int64()
    wider = Schema(
        tuple(replace(each, type=DecimalType(14, 2)) if each.name == "price" else each for each in COLUMNS.fields)
    )
    columns = [{"from": each.name, "to": each.name} for each in COLUMNS.fields]
    columns[2]["type"] = "decimal(14, 2)"
    assert types(lake, bound(("boundary/columns", columns)), wider)["price"] == pa.decimal128(14, 2)


def test_a_number_of_fewer_bits_than_the_schema_says_comes_plainly(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    narrow = Schema(
        tuple(replace(each, type=PrimitiveType(Kind.INT)) if each.name == "id" else each for each in COLUMNS.fields)
    )
    lake.data(table_of(narrow, rows()), use_dictionary=True)
    assert types(lake, bound())["id"] == pa.int64()


def test_row_groups_come_each_as_it_is_stored(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    many = [{**row, "town": "x" * 50_000} if row["id"] < 2 else row for row in rows()]
    lake.data(table_of(COLUMNS, many), row_group_size=3, **OPTIONS)
    source = pinned(lake)
    intent = Intent(bound(), source, ALL, digest_plan(bound().contract, COLUMNS))
    found = [batch.column("town").type for batch in intent.rows(source.scan.files[0], fetch)]
    assert found == [pa.string(), DICTIONARY, DICTIONARY]


@pytest.mark.parametrize(
    ("where", "chunk", "plain"),
    [("town = 't1'", "true", "town"), ("true", "price > 3", "price"), ("town = 't1'", "price > 3", "town price")],
)
def test_columns_of_the_filter_and_of_the_chunk_come_plainly(
    tmp_path: Path, where: str, chunk: str, plain: str
) -> None:
    lake = lake_at(tmp_path)
    lake.data(table_of(COLUMNS, rows()), **OPTIONS)
    found = types(lake, bound(("boundary/where", where)), chunk=ChunkDefinition("c", chunk, None))
    assert found["town"] == (pa.string() if "town" in plain else DICTIONARY)
    assert found["price"] == (pa.decimal128(12, 2) if "price" in plain else DECIMAL64)


def test_a_column_that_the_mapping_widens_comes_plainly(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    lake.data(table_of(COLUMNS, rows()), **OPTIONS)
    mapping = [{"from": "id", "to": "id"}, {"from": "price", "to": "amount", "type": "decimal(18, 2)"}]
    mapping.append({"from": "price", "to": "price"})
    target = Schema((COLUMNS.fields[0], Field("amount", DecimalType(18, 2), field_id=5), COLUMNS.fields[2]))
    found = types(lake, bound(("boundary/columns", mapping)), target)
    assert (found["amount"], found["price"]) == (pa.decimal128(18, 2), pa.decimal128(12, 2))


def test_a_column_that_was_promoted_since_comes_plainly(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    older = [replace(each, type=DecimalType(11, 2)) if each.name == "price" else each for each in COLUMNS.fields]
    location = lake.data(table_of(Schema(tuple(older)), rows()), **OPTIONS)
    (batch,) = read_batches(fetch(location), COLUMNS, stored=[1, 2, 3, 4])
    assert (batch.column("town").type, batch.column("price").type) == (DICTIONARY, pa.decimal128(11, 2))
    assert types(lake, bound())["price"] == pa.decimal128(12, 2)


def test_batches_of_other_types_are_brought_to_the_schema_anew() -> None:
    resolution = Resolution(COLUMNS, {}, {})
    wide = table_of(COLUMNS, rows(2)).to_batches()[0]
    narrow = wide.set_column(0, "id", wide.column("id").cast(pa.int32()))
    turned, fewer = wide.select(["town", "id", "note", "price"]), wide.select(["id", "town", "price"])
    for batch in (wide, wide, narrow, narrow, turned, turned, fewer, fewer, wide):
        found = resolution.apply(batch)
        assert found.schema.names == list(COLUMNS.names)
        assert found.column("id").type == pa.int64()
        assert found.column("town").to_pylist() == ["t0", "t1"]


def test_a_column_is_held_to_its_partition(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    one = [{**row, "town": "t"} for row in rows()]
    lake.data(table_of(COLUMNS, one), spec=1, partition={1000: "t"}, **OPTIONS)
    found = types(lake, bound())
    assert (found["town"], found["price"]) == (pa.string(), DECIMAL64)
    # Not the first batch alone.
    lies = lake_at(tmp_path)
    lies.data(table_of(COLUMNS, [*one, *rows(1)]), spec=1, partition={1000: "t"}, row_group_size=3, **OPTIONS)
    source = pinned(lies)
    batches = Intent(bound(), source, ALL, digest_plan(bound().contract, COLUMNS)).rows(source.scan.files[0], fetch)
    assert [next(batches).num_rows for _ in range(3)] == [3, 3, 3]
    with pytest.raises(VerificationError) as caught:
        next(batches)
    assert caught.value.reason == "source_partition_lies"


def test_columns_that_are_asked_for_by_name_are_shown_and_come_plainly(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    lake.data(table_of(COLUMNS, rows()), **OPTIONS)
    contract = read(("projections/identity", ["id", "town", "price"])).bind({})
    whole, source = digest_plan(contract.contract, COLUMNS), pinned(lake)
    plan = Plan(COLUMNS, (whole.projection(ProjectionName.IDENTITY),))
    intent = Intent(contract, source, ALL, plan, ["id", "town", "price"])
    (batch,) = intent.rows(source.scan.files[0], fetch)
    assert batch.column("town").type == pa.string()
    assert batch.column("price").type == pa.decimal128(12, 2)


def test_batches_of_other_types_are_mapped_anew(tmp_path: Path) -> None:
    """What was found of one batch's types says nothing of the next one's."""
    lake = lake_at(tmp_path)
    lake.data(table_of(COLUMNS, rows()), **OPTIONS)
    target = Schema((Field("key", LONG, field_id=1), *COLUMNS.fields[1:]))
    mapping = [{"from": each, "to": "key" if each == "id" else each} for each in ("note", "id", "town", "price")]
    contract = read(("projections/identity", ["key"]), ("boundary/columns", mapping)).bind({})
    intent = Intent(contract, pinned(lake), ALL, digest_plan(contract.contract, target))
    wide = table_of(COLUMNS, rows(2)).select(["town", "id", "note", "price"]).to_batches()[0]
    narrow = wide.set_column(1, "id", wide.column("id").cast(pa.int32()))
    turned = wide.select(["id", "town", "price", "note"])
    for batch in (wide, wide, narrow, narrow, turned, turned, wide):
        found = intent.of_batch(batch)
        assert found.schema.names == ["note", "key", "town", "price"]
        assert found.column("key").type == pa.int64()
        assert found.column("key").to_pylist() == [0, 1]
        assert found.column("note").to_pylist() == ["n0", "n1"]
