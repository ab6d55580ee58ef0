"""Contracts for tests: a small good one, and the same with something else in one place."""

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
    """A mark with one name in every process: tests are named by it."""

    def __repr__(self) -> str:
        return "gone"


GONE = _Gone()


def changed(*changes: tuple[str, Any]) -> dict[str, Any]:
    """The small contract with values put in at dotted paths; GONE takes a key away."""
    made = copy.deepcopy(SMALL)
    for path, value in changes:
        *above, last = path.split("/")
        place = made
        for key in above:
            place = place.setdefault(key, {})
        if value is GONE:
            del place[last]
        else:
            place[last] = copy.deepcopy(value)
    return made


def written(document: Any) -> bytes:
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True)).encode()


def read(*changes: tuple[str, Any]) -> DataProductContract:
    return parse_contract(written(changed(*changes)), "c.yaml")


def refused(data: bytes | str) -> InputError:
    with pytest.raises(InputError) as caught:
        parse_contract(data.encode() if isinstance(data, str) else data, "c.yaml")
    return caught.value
