"""Every engine gives the bytes that were derived by hand, and refuses what the specification refuses."""

from __future__ import annotations

import json
import re

import pytest

from pvdm.digest import Engine
from pvdm.errors import PvdmError
from tests.support.for_each import for_each
from tests.vectors.loader import VECTORS, Vector, load

# Names with an underscore on the page that are types, columns, fields and limits; every other one is an error code.
NOT_ERRORS = {
    "batch_rows_max",
    "batch_too_large",  # a property of an Arrow batch, not of values: tests/unit/test_hostile_arrow.py
    "columns_max",
    "name_max_bytes",
    "nesting_depth_max",
    "payment_id",
    "row_size_max_bytes",
    "time_ns",
    "timestamp_ns",
    "timestamptz_ns",
    "typed_value",
}
SPEC = VECTORS.parent / "spec" / "canonical.md"
VALUES = load("hand.json")
ROWS = load("hand.json", "rows")
REFUSED = load("refused.json")


def _named(vector: Vector) -> str:
    return vector.name.encode("ascii", "backslashreplace").decode()


@for_each("vector", VALUES, ids=_named)
def test_a_hand_derived_cell_is_reproduced(engine: Engine, vector: Vector) -> None:
    encoded = engine.encode(vector.plan(), vector.projection, vector.batch())
    assert [row.hex() for row in encoded] == [vector.entry["cell"]], vector.entry["why"]


@for_each("vector", ROWS, ids=_named)
def test_hand_derived_rows_are_reproduced(engine: Engine, vector: Vector) -> None:
    encoded = engine.encode(vector.plan(), vector.projection, vector.batch())
    assert [row.hex() for row in encoded] == vector.entry["rows"], vector.entry["why"]


@for_each("vector", [vector for vector in REFUSED if vector.has_rows], ids=_named)
def test_an_input_that_breaks_a_rule_is_refused_with_its_code(engine: Engine, vector: Vector) -> None:
    batch = vector.batch()
    with pytest.raises(PvdmError) as refusal:
        engine.encode(vector.plan(), vector.projection, batch)
    assert refusal.value.reason in {vector.entry["error"], *vector.entry.get("also", ())}, vector.entry["why"]


@for_each("vector", [vector for vector in REFUSED if not vector.has_rows], ids=_named)
def test_a_schema_or_projection_that_breaks_a_rule_is_refused_with_its_code(vector: Vector) -> None:
    with pytest.raises(PvdmError) as refusal:
        vector.plan()
    assert refusal.value.reason == vector.entry["error"], vector.entry["why"]


def test_every_error_code_of_the_specification_has_a_refused_input() -> None:
    named = set(re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+)+)`", SPEC.read_text("utf-8")))
    assert named - NOT_ERRORS == {vector.entry["error"] for vector in REFUSED}


@pytest.mark.parametrize("file", ["hand.json", "refused.json"])
def test_a_vector_file_begins_with_a_note_on_how_it_was_made(file: str) -> None:
    held = json.loads((VECTORS / file).read_text("utf-8"))
    assert list(held)[:2] == ["note", "spec"]


@pytest.mark.parametrize("vectors", [VALUES + ROWS, REFUSED], ids=["hand", "refused"])
def test_vector_names_are_distinct(vectors: list[Vector]) -> None:
    assert len({vector.name for vector in vectors}) == len(vectors)
