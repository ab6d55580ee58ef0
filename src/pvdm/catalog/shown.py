"""A table as it is told to one caller: the document of its sight, the file that holds just that, and its tag."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pvdm.catalog.sight import published, sees_all
from pvdm.catalog.state import TableState
from pvdm.lake.files import MetadataFiles
from pvdm.lake.format.document import Json, dump_json
from pvdm.lake.format.metadata import TableMetadata
from pvdm.store import Ledger, attempts
from pvdm.store.tokens import Grant

DATA_PATH: Final = "write.data.path"
METADATA_PATH: Final = "write.metadata.path"


class SnapshotMode(StrEnum):
    """Which snapshots an answer lists."""

    ALL = "all"
    REFS = "refs"


@dataclass(frozen=True, slots=True)
class Told:
    """The body of an answer; the tag stands for exactly these bytes under this sight."""

    body: bytes
    etag: str


class Shown:
    """Makes answers; what a role may not see is neither in them nor in the file that they name."""

    def __init__(self, ledger: Ledger, files: MetadataFiles) -> None:
        self._ledger = ledger
        self._files = files

    def table(self, grant: Grant, state: TableState, mode: SnapshotMode = SnapshotMode.ALL) -> Told:
        """A table of the catalog."""
        if sees_all(grant.role):
            sight, metadata, location = "whole", state.metadata, state.row.pointer.location
        else:
            sight, metadata = "published", published(state.metadata)
            location = self._file(state, metadata, sight)
        document = self._document(grant, metadata, mode)
        return _told(f"{sight} {mode}", {"metadata-location": location, "metadata": document, "config": {}})

    def staged(self, grant: Grant, metadata: TableMetadata) -> Told:
        """A table that is not made yet, and has no file."""
        return _told("staged", {"metadata": self._document(grant, metadata, SnapshotMode.ALL), "config": {}})

    def _file(self, state: TableState, metadata: TableMetadata, sight: str) -> str:
        """A file with what this sight holds; its name tells nobody the name of the whole one."""
        name = hashlib.sha256(f"{sight} {state.row.pointer.sha256}".encode()).hexdigest()
        return self._files.write_named(
            state.row.table_uuid, f"{sight}-{name}.metadata.json", metadata.to_bytes()
        ).location

    def _document(self, grant: Grant, metadata: TableMetadata, mode: SnapshotMode) -> Mapping[str, Json]:
        raw = dict(metadata.raw)
        if mode is SnapshotMode.REFS and isinstance(listed := raw.get("snapshots"), list):
            held = {ref.snapshot_id for ref in metadata.refs.values()}
            raw["snapshots"] = [each for each in listed if isinstance(each, dict) and each["snapshot-id"] in held]
        if grant.attempt_id is not None:
            with self._ledger.read() as unit:
                prefix = attempts.get(unit, grant.attempt_id).prefix.rstrip("/")
            own: dict[str, Json] = {DATA_PATH: f"{prefix}/data", METADATA_PATH: f"{prefix}/metadata"}
            raw["properties"] = {**metadata.properties, **own}
        return raw


def _told(sight: str, answer: Mapping[str, Json]) -> Told:
    body = dump_json(answer)
    return Told(body, f'"{hashlib.sha256(f"{sight} ".encode() + body).hexdigest()}"')
