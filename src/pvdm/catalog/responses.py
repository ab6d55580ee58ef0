"""Responses about a table for one caller: the document that the role may see, its file and ETag, and credentials."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from pvdm.catalog.state import TableState
from pvdm.lake.files import MetadataFiles
from pvdm.lake.format.json_document import Json, dump_json
from pvdm.lake.format.manifest.cache import SizedCache
from pvdm.lake.format.table.draft import Draft
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN, RefType, Snapshot
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores import s3_client
from pvdm.lake.stores.roles import Role as StoreRole
from pvdm.lake.stores.roles import Sts, VendedCredentials, VendingSettings, session_policy
from pvdm.lake.stores.s3_client import S3Settings
from pvdm.ledger import Ledger
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work import attempts
from pvdm.model.role import Role
from pvdm.model.states import AttemptState

DATA_PATH: Final = "write.data.path"
METADATA_PATH: Final = "write.metadata.path"
# Paths of staged files without partition values: Spark would escape a `/` in a value, and the Steward refuses that.
_PLAIN_PATHS: Final = {"write.object-storage.enabled": "true", "write.object-storage.partitioned-paths": "false"}
PUBLISHED_FILES_KEPT_MAX: Final = 100
PUBLISHED_VIEWS_KEPT_MAX: Final = 64
CREDENTIALS_KEPT_MAX: Final = 1_000
_ROLES_THAT_SEE_ALL: Final = frozenset({Role.PRODUCER, Role.OPERATOR, Role.AUDITOR, Role.STEWARD})
_WRITING_ROLES: Final = frozenset({Role.PRODUCER, Role.OPERATOR})


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The facts of a table on which access to its files depends."""

    place: Location
    table_uuid: str
    protected: bool


@dataclass(frozen=True, slots=True)
class SessionAccess:
    """The places below which a session with vended credentials may write and read. `name` is the session's name."""

    name: str
    write: tuple[Location, ...]
    read: tuple[Location, ...]


@dataclass(eq=False)
class ClientStorage:
    """The object store for clients, and the short-lived credentials that are vended for it.

    Without `vending`, clients bring credentials of their own. `readable_folders` returns, for a table's UUID, the
    Steward's folders with files that the table's readers need.
    """

    ledger: Ledger
    settings: S3Settings | None
    vending: VendingSettings | None
    readable_folders: Callable[[str], tuple[Location, ...]]
    sts: Sts | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _sessions: SizedCache[SessionAccess, VendedCredentials] = field(
        default_factory=lambda: SizedCache(CREDENTIALS_KEPT_MAX), init=False
    )

    @property
    def config(self) -> Mapping[str, str]:
        """The store's address and settings; never a credential."""
        return {} if self.settings is None else s3_client.store_properties(self.settings)

    def credentials(self, grant: Grant, table: TableFiles) -> dict[str, dict[str, str]]:
        """Credentials as the protocol's properties, by bucket. Empty if none are vended, or the table is on a disk."""
        if self.settings is None or self.vending is None or table.place.scheme != "s3":
            return {}
        access = self.access(grant, table)
        session = self._session(access)
        ends = {s3_client.ENDS_MS: str(session.ends_seconds * 1_000)}
        config = s3_client.credential_properties(session.credentials) | ends
        buckets = {each.authority for each in (*access.write, *access.read)}
        return {f"s3://{bucket}/": config for bucket in sorted(buckets)}

    def access(self, grant: Grant, table: TableFiles) -> SessionAccess:
        """Where the grant may write and read the table's files.

        An attempt's token writes below the attempt's prefix (its folder) while the attempt is STAGING. No other token
        writes to a protected table. Every token reads the table's whole place.
        """
        read = (table.place, *self.readable_folders(table.table_uuid))
        if grant.attempt_id is not None:
            with self.ledger.read() as unit:
                attempt = attempts.get(unit, grant.attempt_id)
            staging = attempt.state is AttemptState.STAGING and parse_location(attempt.prefix).is_under(table.place)
            write = (parse_location(attempt.prefix),) if staging else ()
            return SessionAccess(f"pvdm-{attempt.attempt_id}", write, read)
        write = (table.place,) if grant.role in _WRITING_ROLES and not table.protected else ()
        return SessionAccess(f"pvdm-{grant.role}-{table.table_uuid[:8]}", write, read)

    def _session(self, access: SessionAccess) -> VendedCredentials:
        """A session of the store with at least half of its lifetime left. Grants with the same access share it."""
        if self.settings is None or self.vending is None:
            raise AssertionError("called for a response without credentials")
        lifetime, found = self.vending.lifetime_seconds, self._sessions.get(access)
        if found is not None and found.ends_seconds - time.time() > lifetime / 2:
            return found
        with self._lock:
            if self.sts is None:
                self.sts = Sts(self.settings, self.vending.sts_endpoint)
        role = StoreRole(self.vending.producer_role if access.write else self.vending.consumer_role)
        policy = session_policy(role, write=access.write, read=access.read)
        session = self.sts.assume(role, name=access.name[:64], policy=policy, seconds=lifetime)
        self._sessions.put(access, session, 1)
        return session


class SnapshotMode(StrEnum):
    """Which snapshots a response lists."""

    ALL = "all"
    REFS = "refs"  # only those that a branch or tag points to


@dataclass(frozen=True, slots=True)
class TableResponse:
    """The body of a response. The ETag identifies what the role sees."""

    body: bytes
    etag: str
    has_credentials: bool = False  # if so, the whole body is always sent: the client's credentials may have expired


@dataclass(frozen=True, slots=True)
class _Published:
    """What consumers see of one metadata document, and the bytes of the file for them."""

    metadata: TableMetadata
    data: bytes

    @property
    def name(self) -> str:
        """The file's name: the hash of its bytes, so the name changes exactly when the content does."""
        return f"{hashlib.sha256(self.data).hexdigest()}.metadata.json"


class TableResponses:
    """Makes responses. What a role may not see is neither in them nor in the file that they name."""

    def __init__(self, ledger: Ledger, published_files: MetadataFiles, storage: ClientStorage) -> None:
        """`published_files` are in a folder of their own, so that readers can be given access to that folder only."""
        self._ledger = ledger
        self._storage = storage
        self._files = published_files
        self._views: SizedCache[str, _Published] = SizedCache(PUBLISHED_VIEWS_KEPT_MAX)

    def table(
        self, grant: Grant, state: TableState, mode: SnapshotMode = SnapshotMode.ALL, *, with_credentials: bool = False
    ) -> TableResponse:
        """The response about a table; with `with_credentials`, also credentials for its files if some are vended."""
        if sees_all(grant.role):
            view, metadata, location = "whole", state.metadata, state.row.pointer.location
        else:
            seen = self._published(state)
            view, metadata = "published", seen.metadata
            # At each response the file is compared, and written again if it was changed on disk.
            location = self._files.write_named(state.row.table_uuid, seen.name, seen.data).location
        vended = self._storage.credentials(grant, _files_of(state)) if with_credentials else {}
        return self._respond(f"{view} {mode}", self._document(grant, metadata, mode), location, vended)

    @property
    def defaults(self) -> dict[str, Json]:
        """The store's settings for clients, and the header by which they ask for credentials."""
        config = _as_json(self._storage.config)
        return {**config, **({"header.X-Iceberg-Access-Delegation": "vended-credentials"} if config else {})}

    def places_of(self, state: TableState) -> tuple[Location, ...]:
        """Where the table's files may lie: in its own place, or in the Steward's folders for its readers."""
        return (parse_location(state.metadata.location), *self._storage.readable_folders(state.row.table_uuid))

    def credentials(self, grant: Grant, state: TableState) -> bytes:
        """The credentials only, for a client that has the table already."""
        return b'{"storage-credentials":' + _dump_credentials(self._storage.credentials(grant, _files_of(state))) + b"}"

    def stage_create(self, grant: Grant, metadata: TableMetadata, *, with_credentials: bool = False) -> TableResponse:
        """The response about a table that is not created yet and has no file."""
        found = TableFiles(parse_location(metadata.location), str(metadata.table_uuid), protected=False)
        vended = self._storage.credentials(grant, found) if with_credentials else {}
        return self._respond("staged", self._document(grant, metadata, SnapshotMode.ALL), None, vended)

    def _published(self, state: TableState) -> _Published:
        """What consumers see of the document, cached by hash. If it is not cached, old published files are deleted."""
        sha256 = state.row.pointer.sha256
        found = self._views.get(sha256)
        if found is not None:
            return found
        metadata = published_view(state.metadata)
        published = _Published(metadata, metadata.to_bytes())
        self._files.keep_newest(state.row.table_uuid, PUBLISHED_FILES_KEPT_MAX, besides=published.name)
        self._views.put(sha256, published, 1)
        return published

    def _document(self, grant: Grant, metadata: TableMetadata, mode: SnapshotMode) -> bytes:
        """The document's bytes. For an attempt's token, properties send the job's files to the attempt's folder."""
        if mode is SnapshotMode.ALL and grant.attempt_id is None:
            return metadata.to_bytes()
        replaced: dict[str, Json] = {}
        if mode is SnapshotMode.REFS and isinstance(listed := metadata.raw.get("snapshots"), list):
            heads = {ref.snapshot_id for ref in metadata.refs.values()}
            replaced["snapshots"] = [each for each in listed if isinstance(each, dict) and each["snapshot-id"] in heads]
        if grant.attempt_id is not None:
            with self._ledger.read() as unit:
                prefix = attempts.get(unit, grant.attempt_id).prefix.rstrip("/")
            own: dict[str, Json] = {DATA_PATH: f"{prefix}/data", METADATA_PATH: f"{prefix}/metadata"}
            replaced["properties"] = {**metadata.properties, **_PLAIN_PATHS, **own}
        return metadata.dump(replaced)

    def _respond(
        self, view: str, document: bytes, location: str | None, vended: Mapping[str, Mapping[str, str]]
    ) -> TableResponse:
        place = b"" if location is None else b'"metadata-location":' + dump_json(location) + b","
        public_config = dict(self._storage.config)
        head = b"{" + place + b'"metadata":' + document + b',"config":'
        body = head + dump_json(_as_json(public_config)) + b"}"
        # The ETag covers what the table shows, not the credentials, which are renewed.
        etag = f'"{hashlib.sha256(f"{view} ".encode() + body).hexdigest()}"'
        if not vended:
            return TableResponse(body, etag)
        config = {**public_config, **next(iter(vended.values()))}
        credentials = b',"storage-credentials":' + _dump_credentials(vended)
        return TableResponse(head + dump_json(_as_json(config)) + credentials + b"}", etag, has_credentials=True)


def _files_of(state: TableState) -> TableFiles:
    return TableFiles(parse_location(state.metadata.location), state.row.table_uuid, state.row.protected)


def _as_json(texts: Mapping[str, str]) -> dict[str, Json]:
    return dict(texts)


def _dump_credentials(vended: Mapping[str, Mapping[str, str]]) -> bytes:
    listed: list[Json] = [{"prefix": prefix, "config": _as_json(config)} for prefix, config in vended.items()]
    return dump_json(listed)


def sees_all(role: Role) -> bool:
    """Whether the role sees the whole document."""
    return role in _ROLES_THAT_SEE_ALL


def published_view(metadata: TableMetadata) -> TableMetadata:
    """The table as consumers see it: `main`'s history, the tags that point into it, and what these snapshots use.

    A commit to a branch does not change the bytes of this view.
    """
    return _draft_published_view(metadata).finish(None)


def shows_same(before: TableMetadata, after: TableMetadata, *, ignore_refs: bool) -> bool:
    """Whether consumers get the same bytes before and after; with `ignore_refs`, apart from the refs.

    The values are compared, not their bytes: a commit keeps the same objects for what it does not change.
    """
    old, new = (_draft_published_view(metadata).document(None) for metadata in (before, after))
    if ignore_refs:
        old, new = ({**raw, "refs": None} for raw in (old, new))
    return _equal_spelling(old, new)


def _equal_spelling(old: Json, new: Json) -> bool:
    """Whether two JSON values are equal, including the order of keys and the types of numbers."""
    if old is new:
        return True
    match old, new:
        case Mapping(), Mapping():
            return list(old) == list(new) and all(_equal_spelling(old[key], new[key]) for key in old)
        case list() | tuple(), list() | tuple():
            return len(old) == len(new) and all(map(_equal_spelling, old, new))
        case _:
            return type(old) is type(new) and old == new


def list_main_history(metadata: TableMetadata) -> list[Snapshot]:
    """The snapshots of `main`, newest first, as far back as the table has them."""
    current = metadata.current_snapshot_id
    return [] if current is None else list(metadata.ancestry(current))


def _draft_published_view(metadata: TableMetadata) -> Draft:
    ancestry = list_main_history(metadata)
    shown = {snapshot.snapshot_id for snapshot in ancestry}
    schemas = {metadata.current_schema_id} | {snapshot.schema_id for snapshot in ancestry}
    # Older metadata files hold what was staged at their time, so their names are not disclosed.
    unlogged = replace(metadata, raw={key: [] if key == "metadata-log" else part for key, part in metadata.raw.items()})
    draft = Draft(unlogged, now_ms=_last_shown_ms(metadata, ancestry))
    draft.changed, draft.last_updated_ms = True, draft.now_ms  # else `finish` returns the old document
    draft.snapshots = {key: snapshot for key, snapshot in draft.snapshots.items() if key in shown}
    draft.snapshot_log = [entry for entry in draft.snapshot_log if entry.get("snapshot-id") in shown]
    for statistics in (draft.statistics, draft.partition_statistics):
        for key, files in statistics.items():
            statistics[key] = [file for file in files if _named_snapshots(file.raw) <= shown]
    for key in draft.schemas.keys() - schemas:
        del draft.schemas[key]
    draft.refs = {
        name: ref
        for name, ref in draft.refs.items()
        if name == MAIN or (ref.type is RefType.TAG and ref.snapshot_id in shown)
    }
    _hide_staged_counts(draft, ancestry)
    return draft


def _last_shown_ms(metadata: TableMetadata, ancestry: Sequence[Snapshot]) -> int:
    """When `main` last changed; 0 if it never did. Times of staging are not disclosed."""
    times = [each.timestamp_ms for each in ancestry] + [each.timestamp_ms for each in metadata.snapshot_log]
    return max(times, default=0)


def _hide_staged_counts(draft: Draft, ancestry: Sequence[Snapshot]) -> None:
    """Set the counters as if nothing had been staged: otherwise they would disclose hidden snapshots."""
    draft.last_column_id = max((schema.highest_field_id for schema in draft.schemas.values()), default=0)
    draft.last_sequence_number = max((each.sequence_number for each in ancestry), default=0)
    draft.next_row_id = max([(each.first_row_id or 0) + (each.added_rows or 0) for each in ancestry], default=0)


def _named_snapshots(file: Mapping[str, Json]) -> set[Json]:
    """The ids of the snapshots that a statistics file names, in its blobs too."""
    blobs = file.get("blob-metadata")
    found = [blob.get("snapshot-id") for blob in blobs if isinstance(blob, Mapping)] if isinstance(blobs, list) else []
    return {file.get("snapshot-id"), *found}
