"""AWS Glue as an upstream, for format 2: documents are read raw, commits go by PyIceberg's `commit_table`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, cast

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import ValidationError
from pyiceberg.catalog.glue import GlueCatalog, _register_glue_catalog_id_with_glue_client
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.locations import SimpleLocationProvider
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import EMPTY_DICT, Properties

from pvdm.errors import Code
from pvdm.lake.format.json_document import METADATA_SIZE_MAX_BYTES, Json
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN
from pvdm.lake.stores.s3_client import (
    S3Settings,
    credential_config,
    hide_bodies,
    limit_tries,
    open_config,
)
from pvdm.lake.upstream import (
    CommitRequest,
    TableIdentifier,
    UpstreamState,
    answer_wrong,
    moved,
    no_table,
    rejected,
    unavailable,
    unknown,
)
from pvdm.lake.upstream.models import as_models, lossy, require_lossless

GLUE_FORMAT_MAX: Final = 2
_ICEBERG: Final = "ICEBERG"
# The calls that only read. An update is sent even if the server was silent before.
_ASKS: Final = ("glue.GetDatabase", "glue.GetTable", "glue.GetTables")
# The clock skew that Iceberg's readers accept.
_CLOCKS_MS: Final = 60_000
_SESSIONS: Final = threading.Lock()
_DENIED: Final = frozenset({"AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException"})


@dataclass(frozen=True, slots=True)
class GlueSettings:
    """The Glue catalog and the store of its files; credentials come from AWS's own chain.

    Without a store the files are local or in AWS's own, which PyIceberg finds by itself.
    """

    region: str
    endpoint: str | None = None
    catalog_id: str | None = None
    timeout_seconds: int = 30
    store: S3Settings | None = None


class GlueUpstream:
    """One Glue catalog; its databases are namespaces of one level."""

    def __init__(
        self, name: str, settings: GlueSettings, session: boto3.Session | None = None, *, ignores_breaker: bool = False
    ) -> None:
        """A Glue that was silent just now is not called again at once, unless with `ignores_breaker`."""
        self._name = name
        self._settings = settings
        limits = Config(
            connect_timeout=settings.timeout_seconds,
            read_timeout=settings.timeout_seconds,
            # A commit that the library sends twice would lose against itself.
            retries={"mode": "standard", "total_max_attempts": 1},
        )
        # A session holds the description of the service, which takes long to read. Connections belong to the client.
        hide_bodies()
        self._session = session or boto3.Session(region_name=settings.region)
        with _SESSIONS:
            self._client = self._session.client("glue", endpoint_url=settings.endpoint, config=limits)
        if settings.catalog_id is not None:
            _register_glue_catalog_id_with_glue_client(self._client, settings.catalog_id)
        for each in _ASKS:
            # Each call has one try, and one broken connection does not mean that the server is silent.
            limit_tries(self._client, each, None if ignores_breaker else 1, broken=False)
        self._catalog = OwnGlue(name, client=self._client, **self._properties())

    def load(self, place: TableIdentifier) -> UpstreamState:
        """The document of the file that Glue names. Raises for a later format than 2."""
        location = self._location(place)
        try:
            with self._catalog._load_file_io(location=location).new_input(location).open() as file:
                data = file.read(METADATA_SIZE_MAX_BYTES + 1)
        except Exception as error:
            raise unavailable(self._name, f"the metadata file of {place}", _kind(error)) from error
        metadata = TableMetadata.parse(data)
        if metadata.format_version > GLUE_FORMAT_MAX:
            words, most = f"{place} is of a format that is not served from Glue", f"format {GLUE_FORMAT_MAX} at most"
            got = str(metadata.format_version)
            raise Code.UPSTREAM_REFUSED(words, reason="upstream_format_refused", expected=most, got=got)
        return UpstreamState(location, metadata)

    def commit(self, place: TableIdentifier, asked: CommitRequest) -> None:
        """Commit with PyIceberg's `commit_table` on exactly the file that was read; Glue compares versions."""
        self._require_times(place, asked)
        self.require_lossless(asked.seen)
        requirements, updates = as_models(_judgeable(asked), asked.updates)
        pinned = Pinned(self._name, self._client, asked.seen.location, self._properties())
        named = SimpleNamespace(name=lambda: (*place.levels, place.name), config={})
        try:
            pinned.commit_table(cast(Table, named), requirements, updates)
        except (CommitFailedException, NoSuchTableError) as error:
            raise moved(self._name, place, str(error)) from None
        except ValueError as error:
            # PyIceberg writes the next document itself: a commit that it does not accept was not sent.
            raise rejected(self._name, place, str(error)) from None
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _DENIED:
                raise unavailable(self._name, f"a commit to {place}", _kind(error)) from error
            raise unknown(self._name, place, _kind(error)) from error
        except Exception as error:
            raise unknown(self._name, place, _kind(error)) from error

    def require_lossless(self, seen: UpstreamState) -> None:
        """PyIceberg writes the next document from its own types, so these must hold all of this one."""
        try:
            known = TableMetadataUtil.parse_raw(seen.metadata.to_bytes().decode())
        except ValidationError as error:
            raise lossy("a document that PyIceberg knows", str(error.errors(include_url=False)[0]["msg"])) from None
        require_lossless(seen.metadata, TableMetadata.parse(known.model_dump_json(exclude_none=True).encode()))

    def names(self, levels: tuple[str, ...]) -> list[str]:
        """The Iceberg tables of a database."""
        with self._asking("a database"), contextlib.suppress(NoSuchNamespaceError):
            return sorted(str(each[-1]) for each in self._catalog.list_tables(levels))
        return []

    def has_namespace(self, levels: tuple[str, ...]) -> bool:
        """Whether the database exists."""
        if len(levels) != 1:
            return False
        with self._asking("a database"), contextlib.suppress(NoSuchNamespaceError):
            self._catalog.load_namespace_properties(levels)
            return True
        return False

    def reconnect(self) -> GlueUpstream:
        """The same catalog with new connections. It is called even if others found it silent."""
        return GlueUpstream(self._name, self._settings, self._session, ignores_breaker=True)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _location(self, place: TableIdentifier) -> str:
        if len(place.levels) != 1:
            raise no_table(place)
        with self._asking(f"the table {place}"):
            try:
                found = self._client.get_table(DatabaseName=place.levels[0], Name=place.name)["Table"]
            except self._client.exceptions.EntityNotFoundException:
                raise no_table(place) from None
        # Glue ignores the case of names; here a table has one name.
        if found.get("Name") != place.name:
            raise no_table(place)
        parameters = found.get("Parameters", {})
        if parameters.get("table_type", "").upper() != _ICEBERG:
            raise no_table(place)
        location = parameters.get(LOCATION)
        if not location:
            raise answer_wrong(self._name, place)
        return str(location)

    @contextlib.contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError, TimeoutError) as error:
            raise unavailable(self._name, what, _kind(error)) from error

    def _require_times(self, place: TableIdentifier, asked: CommitRequest) -> None:
        """Raise for a snapshot that is older than the table: PyIceberg takes its time as the table's last update."""
        least = asked.seen.metadata.last_updated_ms - _CLOCKS_MS
        for update in asked.updates:
            snapshot = update.get("snapshot") if isinstance(update, dict) else None
            made = snapshot.get("timestamp-ms") if isinstance(snapshot, dict) else None
            if isinstance(made, int) and made < least:
                last = least + _CLOCKS_MS
                raise rejected(self._name, place, f"a snapshot of {made}, before the table's last change at {last}")

    def _properties(self) -> dict[str, str]:
        store = self._settings.store
        found = {} if store is None else open_config(store)
        if store is not None and store.credentials is not None:
            found |= credential_config(store.credentials)
        return found | {"glue.region": self._settings.region}


def _kind(error: Exception) -> str | Exception:
    """AWS's code of the error, or the error itself; its text has addresses."""
    return str(error.response.get("Error", {}).get("Code")) if isinstance(error, ClientError) else error


def _judgeable(asked: CommitRequest) -> list[Json]:
    """The requirements that PyIceberg accepts. For a table without snapshots it refuses those on refs other than main.

    They hold: such a table has no ref, and the commit is on exactly this file.
    """
    if asked.seen.metadata.snapshots:
        return list(asked.requirements)
    return [each for each in asked.requirements if not (isinstance(each, dict) and each.get("ref", MAIN) != MAIN)]


LOCATION: Final = "metadata_location"


class OwnGlue(GlueCatalog):
    """A Glue catalog that ignores the properties of tables, which every writer of a table can set.

    With them PyIceberg would load classes, send the Steward's credential to another address, and write anywhere.
    """

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:  # noqa: ARG002
        return super()._load_file_io(location=location)


class Pinned(OwnGlue):
    """A catalog that commits only on the state with this metadata file.

    Glue compares versions from the time when PyIceberg reads the table again.
    """

    def __init__(self, name: str, client: Any, location: str, properties: dict[str, str]) -> None:
        super().__init__(name, client=client, **properties)
        self._pinned = location

    def _get_glue_table(self, database_name: str, table_name: str) -> Any:
        found = super()._get_glue_table(database_name, table_name)
        if found.get("Parameters", {}).get(LOCATION) != self._pinned:
            raise CommitFailedException("the table has another metadata file by now")
        return found

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: tuple[str, ...],
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        """As in PyIceberg, but the next file is always in the table's own folder."""
        if current_table is None:
            raise CommitFailedException("the table is gone")
        before, file = current_table.metadata, current_table.metadata_location
        for requirement in requirements:
            requirement.validate(before)
        after = update_table_metadata(before, updates, enforce_validation=False, metadata_location=file)
        places = SimpleLocationProvider(after.location.rstrip("/"), EMPTY_DICT)
        location = places.new_table_metadata_file_location(self._parse_metadata_version(file) + 1)
        return StagedTable(table_identifier, after, location, self._load_file_io(location=location), self)
