"""A contract's file with any content is read, or refused with a line and column in the file."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pvdm.errors import InputError
from pvdm.model.contract import parse_contract
from tests.unit.contract.examples import to_yaml

pytestmark = pytest.mark.property

EXAMPLE = (Path(__file__).parents[2] / "examples" / "orders.yaml").read_bytes()
WHOLE: dict[str, Any] = {
    "apiVersion": "pvdm/v1",
    "kind": "DataProduct",
    "metadata": {"domain": "d", "product": "p", "owner": "o", "description": ""},
    "parameters": {"p": {"type": "int", "description": ""}},
    "boundary": {
        "source": {"table": "a.b"},
        "where": "a = ${p}",
        "columns": ["id", {"from": "a", "to": "b", "type": "long"}],
        "target": "a.b",
        "operation": "append",
        "partition": {"x": 1},
        "claim": {"column": "a"},
    },
    "chunking": {"by": "range", "column": "a", "bounds": [1]},
    "projections": {"identity": ["id"], "content": {"exclude": [{"column": "b", "reason": "r"}]}},
    "governance": {"sample-keys": ["auditor"], "proof-lifetime": "1h", "repair": {"automatic": 1}},
    "limits": {"chunks": 1, "size": "1KiB"},
}
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.text(max_size=8)
    | st.sampled_from(["${p}", "a.b", "(text)", "[key]"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def key_paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of keys to the value itself, and to each value inside it."""
    found = [path]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        found += key_paths(each, (*path, key))
    return found


def require_read_or_refused_with_place(data: bytes) -> None:
    # At most so many lines (CRLF counts twice).
    lines = sum(each in "\n\r\x85\u2028\u2029" for each in data.decode("utf-8", "replace")) + 2
    place = (1, 1)
    try:
        parse_contract(data, "c.yaml")
    except InputError as error:
        place = (int(error.details["line"]), int(error.details["column"]))
        assert error.message.startswith(f"c.yaml:{place[0]}:{place[1]}: ")  # noqa: PT017 - the other outcome is good too
        assert str(error).isprintable()  # noqa: PT017
    assert 1 <= place[0] <= lines
    assert place[1] >= 1


@given(st.sampled_from(key_paths(WHOLE)[1:]), anything)
def test_any_value_in_any_place_is_read_or_refused_with_its_place(path: tuple[Any, ...], value: Any) -> None:
    made = copy.deepcopy(WHOLE)
    place = made
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    require_read_or_refused_with_place(to_yaml(made))


@given(
    st.sampled_from([path for path in key_paths(WHOLE) if path]), st.text(max_size=6) | st.just("(mapping)"), anything
)
def test_any_key_in_any_mapping_is_read_or_refused_with_its_place(path: tuple[Any, ...], key: str, value: Any) -> None:
    made = copy.deepcopy(WHOLE)
    place: Any = made
    for part in path:
        place = place[part]
    if isinstance(place, dict):
        place[key] = value
    else:
        made[key] = value
    require_read_or_refused_with_place(to_yaml(made))


@given(st.integers(0, len(EXAMPLE)), st.integers(0, 40), st.binary(max_size=6) | st.text(max_size=4).map(str.encode))
def test_any_bytes_in_any_place_are_read_or_refused_with_their_place(start: int, length: int, data: bytes) -> None:
    require_read_or_refused_with_place(EXAMPLE[:start] + data + EXAMPLE[start + length :])


def test_the_whole_contract_is_good() -> None:
    assert parse_contract(to_yaml(WHOLE)).limits.bytes == 1024
