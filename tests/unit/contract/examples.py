"""Contracts for tests: a small valid one, and functions that change it in some places."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from pvdm.errors import InputError
from pvdm.model.contract import DataProductContract, parse_contract

SMALL: dict[str, Any] = {
    "apiVersion": "pvdm/v1",
    "kind": "DataProduct",
    "metadata": {"domain": "sales", "product": "orders", "owner": "me"},
    "boundary": {"source": {"table": "raw.orders"}, "target": "curated.orders", "operation": "append"},
    "projections": {"identity": ["id"]},
}


class _Gone:
    """A mark with the same `repr` in every process: the ids of parametrized tests contain it."""

    def __repr__(self) -> str:
        return "gone"


GONE = _Gone()


def document_with(*changes: tuple[str, Any]) -> dict[str, Any]:
    """The small contract with other values at paths like `boundary/where`; GONE removes the key."""
    document = copy.deepcopy(SMALL)
    for path, value in changes:
        *above, last = path.split("/")
        place = document
        for key in above:
            place = place.setdefault(key, {})
        if value is GONE:
            del place[last]
        else:
            place[last] = copy.deepcopy(value)
    return document


def to_yaml(document: Any) -> bytes:
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True)).encode()


def contract_with(*changes: tuple[str, Any]) -> DataProductContract:
    """The parsed contract of `document_with`."""
    return parse_contract(to_yaml(document_with(*changes)), "c.yaml")


def refusal_of(data: bytes | str) -> InputError:
    """The error with which this contract is refused."""
    with pytest.raises(InputError) as caught:
        parse_contract(data.encode() if isinstance(data, str) else data, "c.yaml")
    return caught.value
