"""Kernel and reference are one function: the same bytes, the same digests, on generated schemas and layouts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from pvdm.digest import Construction, Digester, Engine, Mode, Plan, reference_engine
from pvdm.model.projection import ProjectionName, content, identity
from pvdm.model.secret import DigestKey
from tests.support.rows.strategies import Case, cases

pytestmark = pytest.mark.property

# Five times as many examples as other properties have: 25,000 for each of the two tests in `make test-long`.
EXAMPLES = settings(max_examples=5 * settings().max_examples)
KEY = bytes(range(32))


def totals(engine: Engine, plan: Plan, case: Case) -> dict[ProjectionName, tuple[int, int]]:
    digester = Digester(plan, {p.name: DigestKey(KEY, epoch=1) for p in plan.projections}, engine=engine)
    digester.update(case.batch)
    return {name: (partial.rows, partial.total) for name, partial in digester.partials().items()}


def require_agreement(kernel: Engine, case: Case) -> None:
    reference = reference_engine()
    assert kernel.encode(case.plan, ProjectionName.CONTENT, case.batch) == reference.encode(
        case.plan, ProjectionName.CONTENT, case.batch
    )
    projections = (identity(case.schema, case.schema.names[:1]), content(case.schema))
    for construction in Construction:
        plan = Plan(case.schema, projections, case.mode, construction)
        assert totals(kernel, plan, case) == totals(reference, plan, case)


@EXAMPLES
@given(case=cases(Mode.STORED))
def test_kernel_and_reference_agree_in_stored_mode(kernel: Engine, case: Case) -> None:
    require_agreement(kernel, case)


@EXAMPLES
@given(case=cases(Mode.PORTABLE))
def test_kernel_and_reference_agree_in_portable_mode(kernel: Engine, case: Case) -> None:
    require_agreement(kernel, case)
