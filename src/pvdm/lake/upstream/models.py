"""Commits in PyIceberg's types. Raises if the types lose a part of the commit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pyiceberg.table.update import TableRequirement, TableUpdate

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.json_document import Json, dump_json
from pvdm.lake.format.table.main_state import structure_of, structure_sha256
from pvdm.lake.format.table.metadata import TableMetadata

Commit = tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]

_REQUIREMENTS: Final = TypeAdapter[tuple[TableRequirement, ...]](tuple[TableRequirement, ...])
_UPDATES: Final = TypeAdapter[tuple[TableUpdate, ...]](tuple[TableUpdate, ...])
# Old clients still send it, and every catalog computes it itself.
_DEPRECATED: Final = frozenset({"last-column-id"})


def as_models(requirements: Sequence[Json], updates: Sequence[Json]) -> Commit:
    """The commit in PyIceberg's types. Raises with the name of the first part that they would lose."""
    asked = _plain(requirements), _plain(updates)
    try:
        made = _REQUIREMENTS.validate_python(asked[0]), _UPDATES.validate_python(asked[1])
    except ValidationError as error:
        raise lossy("a commit that PyIceberg knows", str(error.errors(include_url=False)[0]["msg"])) from None
    for said, models in zip(asked, made, strict=True):
        for given, model in zip(said, models, strict=True):
            lost = _lost(given, json.loads(model.model_dump_json()), str(given.get("action") or given.get("type")))
            if lost is not None:
                raise lossy("all of it", lost)
    return made


def require_lossless(before: TableMetadata, after: TableMetadata) -> None:
    """Raise with the name of the first part of the table's document that is missing in `after`."""
    parts: tuple[tuple[str, Callable[[TableMetadata], Json]], ...] = (
        ("table", structure_of),
        ("snapshots", lambda found: [each.raw for each in found.snapshots]),
        ("refs", lambda found: {name: ref.raw for name, ref in found.refs.items()}),
        ("statistics", lambda found: [each.raw for each in found.statistics]),
        ("partition-statistics", lambda found: [each.raw for each in found.partition_statistics]),
    )
    for name, part in parts:
        given, kept = (json.loads(dump_json(part(each))) for each in (before, after))
        if (lost := _lost(given, kept, name)) is not None:
            raise lossy("all of the table's document", lost)
    if structure_sha256(before) != structure_sha256(after):
        raise lossy("all of the table's document", "the spelling of a part of its structure")


def _plain(values: Sequence[Json]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(dump_json(list(values)))
    return found


def _lost(given: Any, kept: Any, place: str) -> str | None:
    """The place of the first value that is not kept. Additions must be empty."""
    match given, kept:
        case Mapping(), Mapping():
            for key in given.keys() | kept.keys():
                if key in _DEPRECATED or (given.get(key) is None and not kept.get(key)):
                    continue
                if (found := _lost(given.get(key), kept.get(key), f"{place}.{key}")) is not None:
                    return found
            return None
        case list(), list() if len(given) == len(kept):
            each = (
                _lost(one, other, f"{place}[{at}]") for at, (one, other) in enumerate(zip(given, kept, strict=True))
            )
            return next((found for found in each if found is not None), None)
        case _:
            return None if type(given) is type(kept) and given == kept else place


def lossy(expected: str, lost: str) -> PvdmError:
    """The error of a commit or document that PyIceberg's types do not hold completely."""
    got = ascii(lost[:200])[1:-1]
    return Code.UPSTREAM_REFUSED(reason="upstream_commit_lossy", expected=expected, got=got)
