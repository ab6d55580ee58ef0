"""Places of the warehouse: each namespace has a folder of its own, and each table one in it."""

from __future__ import annotations

import itertools

from pvdm.catalog.names import namespace_folder, new_place
from pvdm.lake.paths import parse_location
from pvdm.ledger.catalog.namespaces import Levels
from tests.support.for_each import for_each

WAREHOUSE = parse_location("file:///warehouse")
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
DOTTED = namespace_folder(WAREHOUSE, ("a.b",)).parts[-1]
# Namespaces whose folders would be equal if special characters were only replaced, or long names only cut.
ALIKE: list[Levels] = [
    ("a_b",), ("a.b",), ("a b",), ("a/b",), ("a", "b"), (DOTTED,), ("..",), (".",), ("__",), ("é",), ("è",),
    ("x" * 64,), ("x" * 65,), ("x" * 66,), ("x" * 255,),
]  # fmt: skip


@for_each(("one", "two"), [*itertools.combinations(ALIKE, 2)])
def test_no_two_namespaces_share_a_folder(one: Levels, two: Levels) -> None:
    assert not namespace_folder(WAREHOUSE, one).overlaps(namespace_folder(WAREHOUSE, two))


def test_a_plain_name_is_its_own_folder() -> None:
    assert namespace_folder(WAREHOUSE, ("Sales-2", "raw_1")) == WAREHOUSE.child("Sales-2", "raw_1")


@for_each("levels", ALIKE)
def test_a_table_lies_below_its_namespaces_folder_at_a_valid_location(levels: Levels) -> None:
    place = new_place(WAREHOUSE, levels, "orders/../x", UUID)
    home = namespace_folder(WAREHOUSE, levels)
    assert (place.parts[:-1], parse_location(str(place))) == (home.parts, place)
    assert max(len(part) for part in place.parts) < 128
