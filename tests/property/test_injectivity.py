"""Injectivity by decoding: independent code decodes what an engine encodes to the values it was given."""

from __future__ import annotations

import pytest
from hypothesis import given

from pvdm.digest import Engine, Mode
from pvdm.model.projection import ProjectionName
from tests.support.oracles.canonical_decoder import decode_row
from tests.support.rows.strategies import Case, cases, comparable

pytestmark = pytest.mark.property


def require_decodes_to_its_rows(engine: Engine, case: Case) -> None:
    encoded = engine.encode(case.plan, ProjectionName.CONTENT, case.batch)
    schema = case.plan.projected_schema(ProjectionName.CONTENT)
    # Mode.STORED does not normalize the decoded strings, so that a string that is not in NFC makes a difference.
    got = [
        {name: comparable(value, Mode.STORED) for name, value in decode_row(schema, case.mode, row).items()}
        for row in encoded
    ]
    expected = [{name: comparable(value, case.mode) for name, value in row.items()} for row in case.rows]
    assert got == expected


@given(case=cases(Mode.STORED))
def test_every_stored_encoding_decodes_to_the_values_it_came_from(engine: Engine, case: Case) -> None:
    require_decodes_to_its_rows(engine, case)


@given(case=cases(Mode.PORTABLE))
def test_every_portable_encoding_decodes_to_the_normalized_values_it_came_from(engine: Engine, case: Case) -> None:
    require_decodes_to_its_rows(engine, case)
