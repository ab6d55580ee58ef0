"""The contract that a workload was opened under, with its parameters, as the ledger has both."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from pvdm.ledger import Unit
from pvdm.ledger.record import protections
from pvdm.ledger.work.workloads import PARAMETERS_MAX_BYTES, Workload
from pvdm.model import canonical_json
from pvdm.model.contract import BoundContract, DataProductContract, parse_contract


def bound_contract(unit: Unit, workload: Workload) -> BoundContract:
    """The contract that a workload was opened under, with the workload's parameters."""
    return contract_of(unit, workload.opening.contract_hash).bind(parameters_of(workload))


def contract_of(unit: Unit, sha256: str) -> DataProductContract:
    """A contract of the ledger, read as it was judged when it was taken in."""
    return _read_before(protections.contract(unit, sha256))


@functools.lru_cache(maxsize=64)
def _read_before(data: bytes) -> DataProductContract:
    """Every step of every chunk asks for it, and the same bytes are the same contract."""
    return parse_contract(data)


def parameters_of(workload: Workload) -> dict[str, str]:
    """The workload's parameters by name."""
    found = canonical_json.parse(workload.opening.parameters, size_max_bytes=PARAMETERS_MAX_BYTES)
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, Mapping) else {}
