"""Responses about a table for one caller: the document that the role may see, its file, and its ETag."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pvdm.catalog.state import TableState
from pvdm.catalog.storage import Storage, TableFiles
from pvdm.catalog.visibility import published_view, sees_all
from pvdm.lake.files import MetadataFiles
from pvdm.lake.format.json_document import Json, dump_json
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.paths import Location, parse_location
from pvdm.ledger import Ledger
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work import attempts

DATA_PATH: Final = "write.data.path"
METADATA_PATH: Final = "write.metadata.path"
PUBLISHED_FILES_KEPT_MAX: Final = 100
PUBLISHED_VIEWS_KEPT_MAX: Final = 64


class SnapshotMode(StrEnum):
    """Which snapshots a response lists."""

    ALL = "all"
    REFS = "refs"


@dataclass(frozen=True, slots=True)
class TableResponse:
    """The body of a response. The ETag identifies what the role sees.

    A response with credentials is never "not modified": the client's own may have expired.
    """

    body: bytes
    etag: str
    vended: bool = False


@dataclass(frozen=True, slots=True)
class _Published:
    """What consumers see of one document, and the bytes of its file."""

    metadata: TableMetadata
    data: bytes

    @property
    def name(self) -> str:
        """Named by its own bytes, so the name changes exactly when the content does."""
        return f"{hashlib.sha256(self.data).hexdigest()}.metadata.json"


class TableResponses:
    """Makes responses. What a role may not see is neither in them nor in the file that they name."""

    def __init__(self, ledger: Ledger, published_files: MetadataFiles, storage: Storage | None = None) -> None:
        """`published_files` is a separate folder, so that readers can be given access to it only."""
        self._ledger = ledger
        self._storage = storage or Storage(ledger)
        self._files = published_files
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Published] = OrderedDict()

    def table(
        self, grant: Grant, state: TableState, mode: SnapshotMode = SnapshotMode.ALL, *, delegated: bool = False
    ) -> TableResponse:
        """A table of the catalog; with `delegated` also credentials for its files, if some are vended."""
        if sees_all(grant.role):
            view, metadata, location = "whole", state.metadata, state.row.pointer.location
        else:
            seen = self._published(state)
            view, metadata = "published", seen.metadata
            # The file is compared with each response, and written again if it was changed on disk.
            location = self._files.write_named(state.row.table_uuid, seen.name, seen.data).location
        vended = self._storage.credentials(grant, _files_of(state)) if delegated else {}
        return self._respond(f"{view} {mode}", self._document(grant, metadata, mode), location, vended)

    @property
    def defaults(self) -> dict[str, Json]:
        """The store's settings for clients, and that they ask for credentials."""
        config = _json(self._storage.config)
        return {**config, **({"header.X-Iceberg-Access-Delegation": "vended-credentials"} if config else {})}

    def places_of(self, state: TableState) -> tuple[Location, ...]:
        """Where the table's files may lie: its own place, and what the Steward keeps for its readers."""
        return (parse_location(state.metadata.location), *self._storage.kept_of(state.row.table_uuid))

    def credentials(self, grant: Grant, state: TableState) -> bytes:
        """The credentials only, for a client that has the table already."""
        return b'{"storage-credentials":' + _listed(self._storage.credentials(grant, _files_of(state))) + b"}"

    def staged(self, grant: Grant, metadata: TableMetadata, *, delegated: bool = False) -> TableResponse:
        """A table that is not created yet and has no file."""
        found = TableFiles(parse_location(metadata.location), str(metadata.table_uuid), protected=False)
        vended = self._storage.credentials(grant, found) if delegated else {}
        return self._respond("staged", self._document(grant, metadata, SnapshotMode.ALL), None, vended)

    def _published(self, state: TableState) -> _Published:
        """Made once for each document. A new one removes the oldest published files."""
        sha256 = state.row.pointer.sha256
        with self._lock:
            found = self._kept.get(sha256)
            if found is not None:
                self._kept.move_to_end(sha256)
                return found
        metadata = published_view(state.metadata)
        made = _Published(metadata, metadata.to_bytes())
        self._files.keep_newest(state.row.table_uuid, PUBLISHED_FILES_KEPT_MAX, besides=made.name)
        with self._lock:
            self._kept[sha256] = made
            while len(self._kept) > PUBLISHED_VIEWS_KEPT_MAX:
                self._kept.popitem(last=False)
        return made

    def _document(self, grant: Grant, metadata: TableMetadata, mode: SnapshotMode) -> bytes:
        if mode is SnapshotMode.ALL and grant.attempt_id is None:
            return metadata.to_bytes()
        instead: dict[str, Json] = {}
        if mode is SnapshotMode.REFS and isinstance(listed := metadata.raw.get("snapshots"), list):
            held = {ref.snapshot_id for ref in metadata.refs.values()}
            instead["snapshots"] = [each for each in listed if isinstance(each, dict) and each["snapshot-id"] in held]
        if grant.attempt_id is not None:
            with self._ledger.read() as unit:
                prefix = attempts.get(unit, grant.attempt_id).prefix.rstrip("/")
            own: dict[str, Json] = {DATA_PATH: f"{prefix}/data", METADATA_PATH: f"{prefix}/metadata"}
            instead["properties"] = {**metadata.properties, **own}
        return metadata.spelled(instead)

    def _respond(
        self,
        view: str,
        document: bytes,
        location: str | None = None,
        vended: Mapping[str, Mapping[str, str]] | None = None,
    ) -> TableResponse:
        place = b"" if location is None else b'"metadata-location":' + dump_json(location) + b","
        open_config = dict(self._storage.config)
        body = b"{" + place + b'"metadata":' + document + b',"config":'
        # The ETag covers what the table shows, not the credentials, which are renewed.
        etag = f'"{hashlib.sha256(f"{view} ".encode() + body + dump_json(_json(open_config)) + b"}").hexdigest()}"'
        if not vended:
            return TableResponse(body + dump_json(_json(open_config)) + b"}", etag)
        config = {**open_config, **next(iter(vended.values()))}
        with_credentials = body + dump_json(_json(config)) + b',"storage-credentials":' + _listed(vended) + b"}"
        return TableResponse(with_credentials, etag, vended=True)


def _files_of(state: TableState) -> TableFiles:
    return TableFiles(parse_location(state.metadata.location), state.row.table_uuid, state.row.protected)


def _json(texts: Mapping[str, str]) -> dict[str, Json]:
    return dict(texts)


def _listed(vended: Mapping[str, Mapping[str, str]]) -> bytes:
    listed: list[Json] = [{"prefix": prefix, "config": _json(config)} for prefix, config in vended.items()]
    return dump_json(listed)
