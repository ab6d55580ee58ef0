"""AWS Glue as an upstream, for format 2: documents are read raw, commits go by PyIceberg's `commit_table`."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final, cast

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import ValidationError
from pyiceberg.catalog.glue import _register_glue_catalog_id_with_glue_client
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil

from pvdm.errors import Code
from pvdm.lake.format.json.document import METADATA_SIZE_MAX_BYTES, Json
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN
from pvdm.lake.stores.aws_logs import quieten
from pvdm.lake.stores.client_settings import credential_config, open_config
from pvdm.lake.stores.s3_client import S3Settings
from pvdm.lake.stores.timeouts import note_answers, wait_with_patience
from pvdm.lake.upstream import Asked, Place, Seen, answer_wrong, moved, no_table, rejected, unavailable, unknown
from pvdm.lake.upstream.glue_client import LOCATION, OwnGlue, Pinned
from pvdm.lake.upstream.models import as_models, lossy, require_kept

GLUE_FORMAT_MAX: Final = 2
_ICEBERG: Final = "ICEBERG"
# What changes nothing; an update is sent whatever others found.
_ASKS: Final = ("glue.GetDatabase", "glue.GetTable", "glue.GetTables")
# What Iceberg's readers forgive.
_CLOCKS_MS: Final = 60_000
_SESSIONS: Final = threading.Lock()
_DENIED: Final = frozenset({"AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException"})


@dataclass(frozen=True, slots=True)
class GlueSettings:
    """Which Glue, and which store its files lie in; credentials come by AWS's own chain.

    Without a store the files are local, or in AWS's own, which PyIceberg finds by itself.
    """

    region: str
    endpoint: str | None = None
    catalog_id: str | None = None
    timeout_seconds: int = 30
    store: S3Settings | None = None


class GlueUpstream:
    """One Glue catalog; its databases are namespaces of one level."""

    def __init__(
        self, name: str, settings: GlueSettings, session: boto3.Session | None = None, *, asks_always: bool = False
    ) -> None:
        """Nobody waits for a Glue that was silent just now, unless this one `asks_always`."""
        self._name = name
        self._settings = settings
        limits = Config(
            connect_timeout=settings.timeout_seconds,
            read_timeout=settings.timeout_seconds,
            # A commit that is sent again by itself would lose to itself.
            retries={"mode": "standard", "total_max_attempts": 1},
        )
        # A session holds the service's description, which takes long to read; connections are the client's.
        quieten()
        self._session = session or boto3.Session(region_name=settings.region)
        with _SESSIONS:
            self._client = self._session.client("glue", endpoint_url=settings.endpoint, config=limits)
        if settings.catalog_id is not None:
            _register_glue_catalog_id_with_glue_client(self._client, settings.catalog_id)
        for each in _ASKS:
            if asks_always:
                note_answers(self._client, each)
            else:
                # Each has one try, and one connection that breaks says little.
                wait_with_patience(self._client, each, tries=1, broken=False)
        self._catalog = OwnGlue(name, client=self._client, **self._properties())

    def load(self, place: Place) -> Seen:
        """The document of the file that Glue names; another format than 2 is refused by name."""
        location = self._location(place)
        try:
            with self._catalog._load_file_io(location=location).new_input(location).open() as file:
                data = file.read(METADATA_SIZE_MAX_BYTES + 1)
        except Exception as error:
            raise unavailable(self._name, f"the metadata file of {place}", _kind(error)) from error
        metadata = TableMetadata.parse(data)
        if metadata.format_version > GLUE_FORMAT_MAX:
            raise Code.UPSTREAM_REFUSED(
                f"{place} is of a format that is not served from Glue",
                reason="upstream_format_refused",
                expected=f"format {GLUE_FORMAT_MAX} at most",
                got=str(metadata.format_version),
            )
        return Seen(location, metadata)

    def commit(self, place: Place, asked: Asked) -> None:
        """By `commit_table` on exactly the file that was seen; Glue compares the version of the table."""
        self._require_times(place, asked)
        self.require_kept(asked.seen)
        requirements, updates = as_models(_judgeable(asked), asked.updates)
        pinned = Pinned(self._name, self._client, asked.seen.location, self._properties())
        named = SimpleNamespace(name=lambda: (*place.levels, place.name), config={})
        try:
            pinned.commit_table(cast(Table, named), requirements, updates)
        except (CommitFailedException, NoSuchTableError) as error:
            raise moved(self._name, place, str(error)) from None
        except ValueError as error:
            # PyIceberg makes the next document itself: what it does not accept was not sent.
            raise rejected(self._name, place, str(error)) from None
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _DENIED:
                raise unavailable(self._name, f"a commit to {place}", _kind(error)) from error
            raise unknown(self._name, place, _kind(error)) from error
        except Exception as error:
            raise unknown(self._name, place, _kind(error)) from error

    def require_kept(self, seen: Seen) -> None:
        """PyIceberg writes the next document from what it understood of this one."""
        try:
            known = TableMetadataUtil.parse_raw(seen.metadata.to_bytes().decode())
        except ValidationError as error:
            raise lossy("a document that PyIceberg knows", str(error.errors(include_url=False)[0]["msg"])) from None
        require_kept(seen.metadata, TableMetadata.parse(known.model_dump_json(exclude_none=True).encode()))

    def names(self, levels: tuple[str, ...]) -> list[str]:
        """The Iceberg tables of a database."""
        try:
            return sorted(str(each[-1]) for each in self._catalog.list_tables(levels))
        except NoSuchNamespaceError:
            return []
        except (BotoCoreError, ClientError, TimeoutError) as error:
            raise unavailable(self._name, "a database", _kind(error)) from error

    def has_namespace(self, levels: tuple[str, ...]) -> bool:
        """Whether there is such a database."""
        if len(levels) != 1:
            return False
        try:
            self._catalog.load_namespace_properties(levels)
        except NoSuchNamespaceError:
            return False
        except (BotoCoreError, ClientError, TimeoutError) as error:
            raise unavailable(self._name, "a database", _kind(error)) from error
        return True

    def anew(self) -> GlueUpstream:
        """The same catalog by connections of its own; it is asked whatever others found."""
        return GlueUpstream(self._name, self._settings, self._session, asks_always=True)

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def _location(self, place: Place) -> str:
        if len(place.levels) != 1:
            raise no_table(place)
        try:
            found = self._client.get_table(DatabaseName=place.levels[0], Name=place.name)["Table"]
        except self._client.exceptions.EntityNotFoundException:
            raise no_table(place) from None
        except (BotoCoreError, ClientError, TimeoutError) as error:
            raise unavailable(self._name, f"the table {place}", _kind(error)) from error
        # Glue finds a name in any case; here a table has one name, and who asks by another takes it from nobody.
        if found.get("Name") != place.name:
            raise no_table(place)
        parameters = found.get("Parameters", {})
        if parameters.get("table_type", "").upper() != _ICEBERG:
            raise no_table(place)
        location = parameters.get(LOCATION)
        if not location:
            raise answer_wrong(self._name, place)
        return str(location)

    def _require_times(self, place: Place, asked: Asked) -> None:
        """PyIceberg takes a snapshot's time as the table's own: after one from long ago nobody reads the document."""
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
    """What AWS calls it, or what it is; its words hold addresses."""
    return str(error.response.get("Error", {}).get("Code")) if isinstance(error, ClientError) else error


def _judgeable(asked: Asked) -> list[Json]:
    """PyIceberg holds that a table without a snapshot has no ref but main, and refuses to be asked about others.

    It has none: the file is pinned, and with it that there is no ref at all.
    """
    if asked.seen.metadata.snapshots:
        return list(asked.requirements)
    return [each for each in asked.requirements if not (isinstance(each, dict) and each.get("ref", MAIN) != MAIN)]
