"""Columns that are digested from their stored form have the same digests and refusals as decoded columns."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pvdm.digest import Plan, digest, kernel_engine
from pvdm.digest.parquet import read_batches
from pvdm.errors import PvdmError
from pvdm.lake.read.deletes import ScanFile
from pvdm.lake.read.scan import Scan, scan_batches
from pvdm.model.chunk import ChunkDefinition
from pvdm.model.contract import BoundContract
from pvdm.model.filter.expression import Always, BoundLiteral, Compare, Expression, Operator
from pvdm.model.filter.literal import canonical_literal
from pvdm.model.projection import ProjectionName, content
from pvdm.model.schema import DecimalType, Field, Kind, PrimitiveType, Schema, Type
from pvdm.verify.chunk_files import files_of_chunk
from pvdm.verify.intent import Intent, IntentDigest, digest_plan
from tests.support.examples import examples
from tests.support.lake.scans import KEYS, Lake, fetch, identity_spec, pinned, table_of, to_doc
from tests.support.oracles.filters import SAMPLES, Row, filters, keeps
from tests.unit.contract.examples import contract_with

pytestmark = [pytest.mark.property, pytest.mark.usefixtures("kernel")]

LONG, STRING, PRICE = PrimitiveType(Kind.LONG), PrimitiveType(Kind.STRING), DecimalType(15, 2)
COLUMNS = Schema(
    (
        Field("k", LONG, field_id=1),
        Field("town", STRING, field_id=2),
        Field("note", STRING, field_id=3),
        Field("price", PRICE, field_id=4),
        Field("tax", DecimalType(18, 0), field_id=5),
        Field("day", PrimitiveType(Kind.DATE), field_id=6),
        Field("pieces", LONG, field_id=7),
        Field("weight", PrimitiveType(Kind.DOUBLE), field_id=8),
        Field("sent", PrimitiveType(Kind.TIMESTAMPTZ), field_id=9),
    )
)
INT, FLOAT = PrimitiveType(Kind.INT), PrimitiveType(Kind.FLOAT)
_FEWER: dict[str, Type] = {"price": DecimalType(11, 2), "pieces": INT, "weight": FLOAT}
OLDER = Schema(tuple(replace(each, type=_FEWER.get(each.name, each.type)) for each in COLUMNS.fields))
RENAMED = {each.name: each.name for each in COLUMNS.fields} | {"town": "place", "price": "amount", "day": "date"}
PRICES = tuple(map(Decimal, ("-999999999.99", "-0.01", "0.00", "12.30", "999999999.99")))
TAXES = (Decimal(-(10**18) + 1), Decimal(0), Decimal(7), Decimal(10**18 - 1))
ALL = ChunkDefinition("all", "true", None)


def rows_of(town: st.SearchStrategy[str | None]) -> st.SearchStrategy[Row]:
    return st.fixed_dictionaries(
        {
            "k": st.none() | st.sampled_from(SAMPLES[LONG]),
            "town": town,
            "note": st.none() | st.integers(0, 30).map("note {:09d}".format),
            "price": st.none() | st.sampled_from(PRICES),
            "tax": st.none() | st.sampled_from(TAXES),
            "day": st.none() | st.sampled_from(SAMPLES[PrimitiveType(Kind.DATE)]),
            "pieces": st.none() | st.sampled_from(SAMPLES[INT]),
            "weight": st.none() | st.sampled_from(SAMPLES[FLOAT]),
            "sent": st.none() | st.sampled_from(SAMPLES[PrimitiveType(Kind.TIMESTAMPTZ)]),
        }
    )


TOWNS = st.none() | st.sampled_from(SAMPLES[STRING])
WRITTEN: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "row_group_size": st.sampled_from([1, 4, 1_000]),
        "use_dictionary": st.sampled_from([True, True, False, ["town"]]),
        # With 20 bytes a column chunk begins with dictionary pages and continues with plain ones.
        "dictionary_pagesize_limit": st.sampled_from([20, 1 << 20]),
        "write_batch_size": st.sampled_from([1, 1_000]),
        "data_page_size": st.sampled_from([1, 1 << 20]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "store_decimal_as_integer": st.booleans(),
        "compression": st.sampled_from(["none", "none", "zstd"]),
    }
)
CONDITIONS = st.one_of(
    st.just(Always()),
    filters(Schema(COLUMNS.fields[:3]), depth=1),
    st.builds(
        lambda operator, value: Compare("price", operator, BoundLiteral(value, _literal_text(value), PRICE)),
        st.sampled_from(Operator),
        st.sampled_from(PRICES),
    ),
)


def _literal_text(value: Decimal) -> Any:
    return canonical_literal(value, PRICE)


@dataclass(frozen=True)
class File:
    rows: tuple[Row, ...]
    older: bool
    """whether it has the narrower types of `OLDER`"""
    partitioned: bool
    options: Mapping[str, Any]
    places: frozenset[int]
    """positions that a delete file removes"""


@st.composite
def files(draw: st.DrawFn) -> File:
    partitioned = draw(st.booleans())
    town = st.just(draw(TOWNS)) if partitioned else TOWNS
    found = draw(st.lists(rows_of(town), min_size=1, max_size=25))
    places = draw(st.frozensets(st.integers(0, 24), max_size=3))
    return File(tuple(found), draw(st.booleans()), partitioned, draw(WRITTEN), places)


@dataclass(frozen=True)
class Source:
    files: tuple[File, ...]
    gone: tuple[Row, ...]
    """Keys of equality deletes over town and price."""

    def write_lake(self, folder: Path) -> Lake:
        lake = Lake(folder, (to_doc(COLUMNS),), specs={0: [], 1: identity_spec(2, "town")})
        for file in self.files:
            table = table_of(OLDER if file.older else COLUMNS, file.rows)
            where: dict[str, Any] = {}
            if file.partitioned:
                where = {"spec": 1, "partition": {1000: file.rows[0]["town"]}}
            location = lake.data(table, **where, **file.options)
            if file.places:
                lake.positions([(location, at) for at in file.places], **where)
            if self.gone:
                lake.equalities(table_of(COLUMNS.select(["town", "price"]), self.gone), [2, 4], **where)
        return lake

    def expected_rows(self, where: Expression) -> list[Row]:
        keys = [(row["town"], row["price"]) for row in self.gone]
        return [
            row
            for file in self.files
            for at, row in enumerate(file.rows)
            if at not in file.places and (row["town"], row["price"]) not in keys and keeps(where, row)
        ]


SOURCES = st.builds(
    Source,
    st.lists(files(), min_size=1, max_size=2).map(tuple),
    st.just(()) | st.lists(rows_of(TOWNS), max_size=2).map(tuple),
)


def contract(where: Expression, widened: bool) -> tuple[BoundContract, Schema]:
    """A contract that renames some columns; `widened` gives prices more digits. Also its target's schema."""
    mapped: list[dict[str, str]] = [{"from": given, "to": made} for given, made in RENAMED.items()]
    kinds = {each.name: each.type for each in COLUMNS.fields}
    if widened:
        kinds["price"] = DecimalType(17, 2)
        mapped[COLUMNS.names.index("price")]["type"] = "decimal(17, 2)"
    fields = [Field(made, kinds[given], field_id=at) for at, (given, made) in enumerate(RENAMED.items(), 1)]
    changes = (("boundary/columns", mapped), ("boundary/where", str(where)), ("projections/identity", ["k", "place"]))
    return contract_with(*changes).bind({}), Schema(tuple(fields))


@examples(150)
@given(source=SOURCES, where=CONDITIONS, widened=st.booleans())
def test_the_intent_of_columns_as_they_are_stored_is_that_of_their_rows(
    source: Source, where: Expression, widened: bool
) -> None:
    bound, target = contract(where, widened)
    plan = digest_plan(bound.contract, target)
    wanted = [{RENAMED[name]: value for name, value in row.items()} for row in source.expected_rows(where)]
    with tempfile.TemporaryDirectory() as folder:
        given = pinned(source.write_lake(Path(folder)))
        intent = IntentDigest(Intent(bound, given, ALL, plan), plan, KEYS)
        for file in files_of_chunk(bound, given, ALL):
            intent.file_adder(fetch)(file)
    whole = digest(table_of(target, wanted), plan, KEYS)
    for name, partial in intent.partials().items():
        assert partial.rows == len(wanted)
        assert partial.matches(whole[name])


def outcome(scan: Scan, file: ScanFile, data: bytes) -> object:
    """The canonical rows of a file, or how it is refused."""
    plan, engine = Plan(COLUMNS, (content(COLUMNS),)), kernel_engine()
    try:
        batches = scan_batches(scan, file, lambda _: data, read_batches)
        return [row for batch in batches for row in engine.encode(plan, ProjectionName.CONTENT, batch)]
    except PvdmError as error:
        return error.reason, error.message, error.expected, error.got


@examples(150)
@given(file=files(), data=st.data())
def test_a_broken_file_is_refused_as_one_that_is_read_plainly(file: File, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plain = Source((replace(file, places=frozenset()),), ()).write_lake(Path(folder)).scan()
        (listed,) = plain.files
        whole = fetch(listed.location)
    stored = replace(plain, stored=frozenset(range(1, len(COLUMNS.fields) + 1)))
    assert outcome(stored, listed, whole) == outcome(plain, listed, whole)
    for _ in range(20):
        broken = bytearray(whole)
        broken[data.draw(st.integers(4, len(whole) - 9))] = data.draw(st.integers(0, 255))
        assert outcome(stored, listed, bytes(broken)) == outcome(plain, listed, bytes(broken))
