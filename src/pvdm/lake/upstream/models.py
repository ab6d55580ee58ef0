"""Converts commits to PyIceberg's types. Raises if the types would lose a part of a commit or of a table's document."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
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
# Old clients still send this key, but every catalog computes its value itself.
_DEPRECATED_KEYS: Final = frozenset({"last-column-id"})


def as_models(requirements: Sequence[Json], updates: Sequence[Json]) -> Commit:
    """The commit in PyIceberg's types. Raises with the name of the first part that the types would lose."""
    given_parts: list[list[dict[str, Any]]] = json.loads(dump_json([list(requirements), list(updates)]))
    given_requirements, given_updates = given_parts
    try:
        commit = _REQUIREMENTS.validate_python(given_requirements), _UPDATES.validate_python(given_updates)
    except ValidationError as error:
        raise lossy_error("a commit that PyIceberg knows", str(error.errors(include_url=False)[0]["msg"])) from None
    models: list[Any] = list(chain(*commit))
    for given, model in zip(chain(*given_parts), models, strict=True):
        lost = _find_lost(given, json.loads(model.model_dump_json()), str(given.get("action") or given.get("type")))
        if lost is not None:
            raise lossy_error("every part of the commit", lost)
    return commit


def require_lossless(before: TableMetadata, after: TableMetadata) -> None:
    """Raise with the name of the first part of the document `before` that the types lost, so that `after` lacks it."""
    parts: tuple[tuple[str, Callable[[TableMetadata], Json]], ...] = (
        ("table", structure_of),
        ("snapshots", lambda table: [each.raw for each in table.snapshots]),
        ("refs", lambda table: {name: ref.raw for name, ref in table.refs.items()}),
        ("statistics", lambda table: [each.raw for each in table.statistics]),
        ("partition-statistics", lambda table: [each.raw for each in table.partition_statistics]),
    )
    for name, part_of in parts:
        given, kept = (json.loads(dump_json(part_of(table))) for table in (before, after))
        if (lost := _find_lost(given, kept, name)) is not None:
            raise lossy_error("every part of the table's document", lost)
    if structure_sha256(before) != structure_sha256(after):
        raise lossy_error("the table's document unchanged", "another spelling of a part of its structure")


def _find_lost(given: Any, kept: Any, path: str) -> str | None:
    """The path of the first value that `kept` lacks or changes. A value that only `kept` has must be empty."""
    inside: list[tuple[Any, Any, str]] = []
    match given, kept:
        case Mapping(), Mapping():
            for key in given.keys() | kept.keys():
                if key not in _DEPRECATED_KEYS and (given.get(key) is not None or kept.get(key)):
                    inside.append((given.get(key), kept.get(key), f"{path}.{key}"))
        case list(), list() if len(given) == len(kept):
            inside = [(given[i], kept[i], f"{path}[{i}]") for i in range(len(given))]
        case _:
            return None if type(given) is type(kept) and given == kept else path
    lost_paths = (_find_lost(*part) for part in inside)
    return next((lost for lost in lost_paths if lost is not None), None)


def lossy_error(expected: str, lost: str) -> PvdmError:
    """The error of a commit or document that PyIceberg's types do not hold completely."""
    return Code.UPSTREAM_REFUSED(reason="upstream_commit_lossy", expected=expected, got=ascii(lost[:200])[1:-1])
