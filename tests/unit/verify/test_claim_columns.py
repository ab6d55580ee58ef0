"""The column of a claim: a field id of the target if proofs cover the column, else the source's own column."""

from __future__ import annotations

from pvdm.model.contract import BoundContract, parse_contract
from pvdm.model.filter.claim import Claim
from pvdm.model.schema import Field, Kind, PrimitiveType, Schema
from pvdm.verify.planning import with_source_column, with_target_column
from tests.support.for_each import for_each
from tests.support.steward.pipeline import contract

DAY = Claim.value("day", "date", 20_000)
WHERE = {"where": "day = '2026-11-13'", "claim": "{column: day}"}
UUID = "0b6c1d8e-52b1-4c55-8a1f-6a1c0a7d4e22"


def schema_of(**ids: int | None) -> Schema:
    return Schema(tuple(Field(name, PrimitiveType(Kind.DATE), field_id=number) for name, number in ids.items()))


def bind_contract(text: str) -> BoundContract:
    return parse_contract(text.encode()).bind({})


@for_each(
    ("columns", "target", "expected"),
    [
        (None, {"id": 1, "day": 7}, "target field 7"),
        ("[id, day]", {"id": 1, "day": 7}, "target field 7"),
        ("[id, {from: day, to: on_day}]", {"id": 1, "on_day": 7}, "target field 7"),
        ("[id, {from: day, to: on_day}, day]", {"id": 1, "day": 7, "on_day": 5}, "target field 5"),
        ("[id, {from: id, to: day}]", {"id": 1, "day": 7}, "day"),
        ("[id]", {"id": 1, "day": 7}, "day"),
    ],
    ids=["all", "listed", "renamed", "twice", "another source column", "left out"],
)
def test_a_claim_is_on_the_target_column_that_its_column_fills(
    columns: str | None, target: dict[str, int], expected: str
) -> None:
    text = contract(**WHERE) if columns is None else contract(columns=columns, **WHERE)
    assert with_target_column(bind_contract(text), DAY, schema_of(**target)) == DAY.of_column(expected)


def test_a_claim_column_that_no_proof_covers_keeps_its_name() -> None:
    without_day = "  identity: [id]\n  content: {exclude: [{column: day, reason: nobody reads it}]}\n"
    text = contract(**WHERE).replace("  identity: [id]\n", without_day)
    assert with_target_column(bind_contract(text), DAY, schema_of(id=1, day=7)) == DAY


def test_a_claim_column_of_a_table_is_identified_by_its_field_id() -> None:
    found = with_source_column(bind_contract(contract(**WHERE)), DAY, UUID, schema_of(id=1, day=7))
    assert found == DAY.of_column(f"source {UUID} field 7")


def test_a_claim_column_of_a_source_of_files_is_identified_by_its_name() -> None:
    text = contract(**WHERE).replace("table: raw.orders", "files: {manifest: /data/orders.json}")
    found = with_source_column(bind_contract(text), DAY, UUID, schema_of(id=1, day=7))
    assert found == DAY.of_column(f"source {UUID} column day")


def test_a_claim_on_everything_has_no_column() -> None:
    everything, text = Claim.everything(), bind_contract(contract())
    assert with_source_column(text, everything, UUID, schema_of(id=1)) == everything
    assert with_target_column(text, everything, schema_of(id=1)) == everything
