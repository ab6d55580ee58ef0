"""The coverage probe accepts an engine that hashes every planned column, and finds one that does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from pvdm.digest import Accumulator, Construction, Engine, Mode, Plan, reference_engine
from pvdm.digest.probe import ProbeResult, arrow_schema, probe_coverage
from pvdm.errors import VerificationError
from pvdm.model.projection import ProjectionName, content, identity
from pvdm.model.schema import (
    DecimalType,
    Field,
    FixedType,
    GeoType,
    Inner,
    Kind,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
    StructType,
    Type,
)
from tests.support.for_each import for_each

LONG = PrimitiveType(Kind.LONG)
STRING = PrimitiveType(Kind.STRING)
UNKNOWN = PrimitiveType(Kind.UNKNOWN)
BOTH = (ProjectionName.IDENTITY, ProjectionName.CONTENT)
LEAVES: list[Type] = [
    *(PrimitiveType(kind) for kind in Kind if kind is not Kind.UNKNOWN),
    DecimalType(9, 0),
    DecimalType(38, 38),
    DecimalType(76, 10),
    FixedType(1),
    FixedType(16),
    GeoType("OGC:CRS84"),
    GeoType("OGC:CRS84", "spherical"),
]
ADDRESS = StructType((Field("city", STRING), Field("zip", LONG, required=True)))
NESTED = Schema(
    (
        Field("id", LONG, required=True),
        Field("tags", ListType(Inner(STRING))),
        Field("address", ADDRESS),
        Field("offices", MapType(Inner(STRING, required=True), Inner(ListType(Inner(ADDRESS))))),
        Field("payload", PrimitiveType(Kind.VARIANT)),
        Field("loaded_at", PrimitiveType(Kind.TIMESTAMPTZ)),
    )
)


def nested_plan(construction: Construction = Construction.HMAC_SHA256) -> Plan:
    projections = identity(NESTED, ["id"]), content(NESTED, exclude={"loaded_at": "differs by run"})
    return Plan(NESTED, projections, construction=construction)


def one_column(kind: Type, *, required: bool = False) -> Plan:
    schema = Schema((Field("id", LONG, required=True), Field("x", kind, required=required)))
    return Plan(schema, (identity(schema, ["id"]), content(schema)))


def by_leaf(results: tuple[ProbeResult, ...]) -> dict[str, ProbeResult]:
    return {result.leaf: result for result in results}


@dataclass(frozen=True)
class BlindEngine:
    """An engine that changes each batch before it hashes it."""

    change: Callable[[pa.RecordBatch], pa.RecordBatch]
    name: str = "blinded"

    def encode(self, plan: Plan, projection: ProjectionName, batch: pa.RecordBatch) -> list[bytes]:
        return reference_engine().encode(plan, projection, self.change(batch))

    def start(self, plan: Plan, element_keys: Mapping[ProjectionName, bytes]) -> Accumulator:
        return BlindAccumulator(self.change, reference_engine().start(plan, element_keys))


@dataclass(frozen=True)
class BlindAccumulator:
    change: Callable[[pa.RecordBatch], pa.RecordBatch]
    inner: Accumulator

    def update(self, batch: pa.RecordBatch) -> None:
        self.inner.update(self.change(batch))

    def totals(self) -> Mapping[ProjectionName, tuple[int, int]]:
        return self.inner.totals()


def replace_column(batch: pa.RecordBatch, column: str, value: object) -> pa.RecordBatch:
    at = batch.schema.get_field_index(column)
    constant = pa.array([value] * batch.num_rows, batch.schema.field(at).type)
    arrays = [constant if index == at else array for index, array in enumerate(batch.columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


@for_each("kind", LEAVES, ids=str)
def test_a_change_of_a_leaf_of_every_type_is_noticed(kind: Type, engine: Engine) -> None:
    result = by_leaf(probe_coverage(one_column(kind), engine=engine))["x"]
    assert (result.changes, result.noticed_by) == (("value", "null"), (ProjectionName.CONTENT,))


def test_every_leaf_at_every_depth_is_probed(engine: Engine) -> None:
    assert [result.leaf for result in probe_coverage(nested_plan(), engine=engine)] == [
        "id",
        "tags.element",
        "address.city",
        "address.zip",
        "offices.key",
        "offices.value.element.city",
        "offices.value.element.zip",
        "payload",
        "loaded_at",
    ]


@pytest.mark.parametrize("construction", list(Construction))
def test_each_construction_is_probed(construction: Construction, engine: Engine) -> None:
    assert len(probe_coverage(nested_plan(construction), engine=engine)) == 9


def test_a_key_column_is_noticed_by_both_projections(engine: Engine) -> None:
    assert by_leaf(probe_coverage(nested_plan(), engine=engine))["id"].noticed_by == BOTH


def test_an_excluded_column_is_noticed_by_none(engine: Engine) -> None:
    result = by_leaf(probe_coverage(nested_plan(), engine=engine))["loaded_at"]
    assert (result.changes, result.noticed_by) == (("value", "null"), ())


def test_a_required_leaf_is_not_made_null(engine: Engine) -> None:
    assert by_leaf(probe_coverage(nested_plan(), engine=engine))["address.zip"].changes == ("value",)


def test_a_leaf_that_is_always_null_has_nothing_to_change(engine: Engine) -> None:
    assert by_leaf(probe_coverage(one_column(UNKNOWN), engine=engine))["x"] == ProbeResult("x", "unknown", (), ())


def test_an_empty_struct_is_probed_as_null_only(engine: Engine) -> None:
    assert by_leaf(probe_coverage(one_column(StructType(())), engine=engine))["x"].changes == ("null",)


@pytest.mark.parametrize(
    ("decimal", "changes"),
    [
        (DecimalType(10, 4, 2), ("value", "null")),
        (DecimalType(10, 2, 4), ("value", "null")),
        (DecimalType(2, 2, 0), ("null",)),
        (DecimalType(2, 0, 2), ("null",)),
    ],
    ids=str,
)
def test_a_portable_decimal_is_changed_by_a_step_that_both_scales_can_hold(
    decimal: DecimalType, changes: tuple[str, ...], engine: Engine
) -> None:
    schema = Schema((Field("d", decimal),))
    plan = Plan(schema, (content(schema),), Mode.PORTABLE)
    assert probe_coverage(plan, engine=engine)[0].changes == changes


def test_an_engine_that_skips_a_column_is_found() -> None:
    blind = BlindEngine(lambda batch: replace_column(batch, "tags", ["same"]))
    with pytest.raises(VerificationError) as caught:
        probe_coverage(nested_plan(), engine=blind)
    assert (caught.value.reason, caught.value.details) == (
        "coverage_probe_failed",
        {"leaf": "tags.element", "projection": "content"},
    )


def test_an_engine_that_skips_one_field_deep_inside_is_found() -> None:
    def forget_city(batch: pa.RecordBatch) -> pa.RecordBatch:
        offices = [
            None if each is None else [(key, [{**office, "city": "same"} for office in value]) for key, value in each]
            for each in batch["offices"].to_pylist()
        ]
        return replace_column(batch, "offices", offices[0])

    with pytest.raises(VerificationError) as caught:
        probe_coverage(nested_plan(), engine=BlindEngine(forget_city))
    assert caught.value.details["leaf"] == "offices.value.element.city"


def test_an_engine_that_replaces_null_by_a_value_is_found() -> None:
    def fill(batch: pa.RecordBatch) -> pa.RecordBatch:
        return replace_column(batch, "x", batch["x"].to_pylist()[0] or 0)

    with pytest.raises(VerificationError, match="changed null of 'x'"):
        probe_coverage(one_column(LONG), engine=BlindEngine(fill))


def test_an_engine_that_hashes_a_column_that_is_left_out_is_found() -> None:
    def leak(batch: pa.RecordBatch) -> pa.RecordBatch:
        row: dict[str, Any] = batch.to_pylist()[0]
        return replace_column(batch, "id", (row["x"] or 0) + 7 * row["id"])

    with pytest.raises(VerificationError) as caught:
        probe_coverage(one_column(LONG), engine=BlindEngine(leak))
    assert caught.value.details == {"leaf": "x", "projection": "identity"}


def test_the_arrow_schema_has_nullability_at_every_depth() -> None:
    offices = arrow_schema(NESTED).field("offices").type
    assert not offices.item_type.value_field.type.field("zip").nullable
