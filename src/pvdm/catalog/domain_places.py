"""Which places a domain may use: inside the warehouse only folders of its own namespaces, by name and by links."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from pvdm.catalog.places import home_of
from pvdm.errors import NotAllowedError
from pvdm.lake.paths import Location, parse_location
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.record.tokens import EVERY_DOMAIN, Grant

# Where engines put a table's files, if not below its location.
WRITE_PATHS: Final = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


def require_of_domain(grant: Grant, place: Location, warehouse: Location, owners: Sequence[tuple[Levels, str]]) -> None:
    """Neither in a folder of another domain's namespace nor around one; a token of every domain may use each.

    What lies in the warehouse and in no namespace's folder may become another domain's: that is refused too.
    """
    if grant.domain == EVERY_DOMAIN:
        return
    homes = [(name, domain) for levels, domain in owners for name in _names(home_of(warehouse, levels))]
    for name in _names(place):
        above = [(home, domain) for home, domain in homes if name.is_under(home) and name != home]
        _, owner = max(above, key=lambda pair: len(pair[0].parts), default=(None, None))
        inside = any(name.overlaps(root) for root in _names(warehouse))
        around = any(home.is_under(name) and domain != grant.domain for home, domain in homes)
        if around or (inside and owner is None) or (owner is not None and owner != grant.domain):
            raise NotAllowedError(
                "location_of_other_domain",
                "the place is not one of the token's domain",
                expected=f"a place in a namespace's folder of the domain {grant.domain}, or outside the warehouse",
                got=str(place)[:200],
                hint="leave it out, and the table gets a place of its own; or ask an operator of every domain",
            )


def changed_write_paths(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Location]:
    """The places that properties send files to, and did not before; InputError where one is no location."""
    for key in WRITE_PATHS:
        if key in after and after[key] != before.get(key):
            yield parse_location(after[key])


def _names(place: Location) -> set[Location]:
    """The place by its name and, on this machine, by where links lead it."""
    if place.scheme != "file":
        return {place}
    return {place, Location("file", "", Path(os.path.realpath(place.local)).parts[1:])}
