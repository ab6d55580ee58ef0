"""AWS Glue as an upstream (a user's own catalog), up to format 2. Documents are read raw; PyIceberg sends commits."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
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
from pvdm.lake import upstream
from pvdm.lake.format.json_document import METADATA_SIZE_MAX_BYTES, Json
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN
from pvdm.lake.stores.s3_client import credential_properties, hide_bodies, limit_tries, store_properties
from pvdm.lake.upstream import GlueSettings
from pvdm.lake.upstream.models import as_models, lossy_error, require_lossless

GLUE_FORMAT_MAX: Final = 2
# The calls that the circuit breaker may refuse. An update is sent even if the server was silent before.
_READ_CALLS: Final = ("glue.GetDatabase", "glue.GetTable", "glue.GetTables")
# The clock skew that Iceberg's readers accept.
_CLOCK_SKEW_MS: Final = 60_000
_NEW_CLIENT_LOCK: Final = threading.Lock()  # a session of boto3 cannot make clients in several threads at once
_DENIED_CODES: Final = frozenset({"AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException"})
_LOCATION: Final = "metadata_location"


class GlueUpstream:
    """One Glue catalog; its databases are namespaces of one level."""

    def __init__(
        self, name: str, settings: GlueSettings, session: boto3.Session | None = None, *, ignores_breaker: bool = False
    ) -> None:
        """With `ignores_breaker` calls are sent even while the circuit breaker is open."""
        self._name = name
        self._settings = settings
        config = Config(
            connect_timeout=settings.timeout_seconds,
            read_timeout=settings.timeout_seconds,
            # If the library sent a commit twice, the second one would conflict with the first.
            retries={"mode": "standard", "total_max_attempts": 1},
        )
        hide_bodies()
        # `reconnect` passes the session on: a new one would read the description of the service, which takes long.
        self._session = session or boto3.Session(region_name=settings.region)
        with _NEW_CLIENT_LOCK:
            self._client = self._session.client("glue", endpoint_url=settings.endpoint, config=config)
        if settings.catalog_id is not None:
            _register_glue_catalog_id_with_glue_client(self._client, settings.catalog_id)
        for each in _READ_CALLS:
            # With one try for each call, a broken connection does not show that the server is silent.
            limit_tries(self._client, each, None if ignores_breaker else 1, counts_broken=False)
        self._catalog = GlueIgnoringProperties(name, client=self._client, **self._properties())

    def load(self, identifier: upstream.TableIdentifier) -> upstream.UpstreamState:
        """The document of the metadata file that Glue names. Raises for a later format than 2."""
        location, what = self._metadata_location(identifier), f"the metadata file of {identifier}"
        try:
            with self._catalog._load_file_io(location=location).new_input(location).open() as file:
                data = file.read(METADATA_SIZE_MAX_BYTES + 1)
        except Exception as error:
            raise upstream.unavailable_error(self._name, what, _aws_code(error)) from error
        metadata = TableMetadata.parse(data)
        if metadata.format_version > GLUE_FORMAT_MAX:
            words = f"{identifier} is of a format that is not served from Glue"
            expected, got = f"format {GLUE_FORMAT_MAX} at most", str(metadata.format_version)
            raise Code.UPSTREAM_REFUSED(words, reason="upstream_format_refused", expected=expected, got=got)
        return upstream.UpstreamState(location, metadata)

    def commit(self, identifier: upstream.TableIdentifier, request: upstream.CommitRequest) -> None:
        """Commit with PyIceberg's `commit_table` on exactly the metadata file that was read; Glue compares versions."""
        self._require_times(identifier, request)
        self.require_lossless(request.seen)
        requirements, updates = as_models(_accepted_requirements(request), request.updates)
        pinned = PinnedGlue(self._name, self._client, request.seen.metadata_location, self._properties())
        stub = SimpleNamespace(name=lambda: (*identifier.levels, identifier.name), config={})  # all that PyIceberg uses
        try:
            pinned.commit_table(cast(Table, stub), requirements, updates)
        except (CommitFailedException, NoSuchTableError) as error:
            raise upstream.moved_error(self._name, identifier, str(error)) from None
        except ValueError as error:
            # PyIceberg writes the next document itself: a commit that it does not accept was not sent.
            raise upstream.rejected_error(self._name, identifier, str(error)) from None
        except Exception as error:
            if _aws_code(error) in _DENIED_CODES:
                raise upstream.unavailable_error(self._name, f"a commit to {identifier}", _aws_code(error)) from error
            raise upstream.unknown_outcome_error(self._name, identifier, _aws_code(error)) from error

    def require_lossless(self, seen: upstream.UpstreamState) -> None:
        """Raise if PyIceberg's types lose a part of the document: PyIceberg writes the next document from them."""
        try:
            model = TableMetadataUtil.parse_raw(seen.metadata.to_bytes().decode())
        except ValidationError as error:
            message = str(error.errors(include_url=False)[0]["msg"])
            raise lossy_error("a document that PyIceberg knows", message) from None
        require_lossless(seen.metadata, TableMetadata.parse(model.model_dump_json(exclude_none=True).encode()))

    def names(self, levels: tuple[str, ...]) -> list[str]:
        """The names of the Iceberg tables of a database."""
        with self._translate_errors("a database"), contextlib.suppress(NoSuchNamespaceError):
            return sorted(str(each[-1]) for each in self._catalog.list_tables(levels))
        return []

    def has_namespace(self, levels: tuple[str, ...]) -> bool:
        """Whether the database exists."""
        if len(levels) != 1:
            return False
        with self._translate_errors("a database"), contextlib.suppress(NoSuchNamespaceError):
            self._catalog.load_namespace_properties(levels)
            return True
        return False

    def reconnect(self) -> GlueUpstream:
        """The same catalog with new connections, whose calls are sent even while the circuit breaker is open."""
        return GlueUpstream(self._name, self._settings, self._session, ignores_breaker=True)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _metadata_location(self, identifier: upstream.TableIdentifier) -> str:
        if len(identifier.levels) != 1:
            raise upstream.table_missing_error(identifier)
        with self._translate_errors(f"the table {identifier}"):
            try:
                found = self._client.get_table(DatabaseName=identifier.levels[0], Name=identifier.name)["Table"]
            except self._client.exceptions.EntityNotFoundException:
                raise upstream.table_missing_error(identifier) from None
        parameters = found.get("Parameters", {})
        # Glue ignores upper and lower case in names, but the Steward serves a table only under its exact name.
        if found.get("Name") != identifier.name or parameters.get("table_type", "").upper() != "ICEBERG":
            raise upstream.table_missing_error(identifier)
        location = parameters.get(_LOCATION)
        if not location:
            raise upstream.location_missing_error(self._name, identifier)
        return str(location)

    @contextlib.contextmanager
    def _translate_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError, TimeoutError) as error:
            raise upstream.unavailable_error(self._name, what, _aws_code(error)) from error

    def _require_times(self, identifier: upstream.TableIdentifier, request: upstream.CommitRequest) -> None:
        """Raise for a snapshot older than the last change: PyIceberg would set `last-updated-ms` back to its time."""
        last_ms = request.seen.metadata.last_updated_ms
        for update in request.updates:
            snapshot = update.get("snapshot") if isinstance(update, dict) else None
            time_ms = snapshot.get("timestamp-ms") if isinstance(snapshot, dict) else None
            if isinstance(time_ms, int) and time_ms < last_ms - _CLOCK_SKEW_MS:
                why = f"a snapshot of {time_ms}, before the table's last change at {last_ms}"
                raise upstream.rejected_error(self._name, identifier, why)

    def _properties(self) -> dict[str, str]:
        store = self._settings.store
        region = {"glue.region": self._settings.region}
        if store is None:
            return region
        credentials = {} if store.credentials is None else credential_properties(store.credentials)
        return store_properties(store) | credentials | region


def _aws_code(error: Exception) -> str | Exception:
    """AWS's code of the error. Other errors are returned as they are; messages show only their class."""
    return str(error.response.get("Error", {}).get("Code")) if isinstance(error, ClientError) else error


def _accepted_requirements(request: upstream.CommitRequest) -> list[Json]:
    """The requirements that PyIceberg accepts. Without snapshots, it refuses requirements on refs other than `main`.

    The refused requirements need no check: such a table has no ref, and the commit is on exactly this metadata file.
    """
    if request.seen.metadata.snapshots:
        return list(request.requirements)
    return [each for each in request.requirements if not isinstance(each, dict) or each.get("ref", MAIN) == MAIN]


class GlueIgnoringProperties(GlueCatalog):
    """A Glue catalog that ignores the properties of tables, which every writer of a table can set.

    Properties could make PyIceberg load classes, send pvdm's own credential to another address, or write anywhere.
    """

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:  # noqa: ARG002
        return super()._load_file_io(location=location)


class PinnedGlue(GlueIgnoringProperties):
    """A catalog that commits only on the state with this metadata file.

    PyIceberg reads the table before it commits. This class compares the table's file with the pinned one. Glue itself
    refuses the commit if the table changes afterwards.
    """

    def __init__(self, name: str, client: Any, location: str, properties: dict[str, str]) -> None:
        super().__init__(name, client=client, **properties)
        self._pinned = location

    def _get_glue_table(self, database_name: str, table_name: str) -> Any:
        found = super()._get_glue_table(database_name, table_name)
        if found.get("Parameters", {}).get(_LOCATION) != self._pinned:
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
        provider = SimpleLocationProvider(after.location.rstrip("/"), EMPTY_DICT)
        location = provider.new_table_metadata_file_location(self._parse_metadata_version(file) + 1)
        return StagedTable(table_identifier, after, location, self._load_file_io(location=location), self)
