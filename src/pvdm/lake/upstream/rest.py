"""An upstream (a user's own catalog) with Iceberg's REST protocol. Documents are read raw; PyIceberg sends commits."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from types import SimpleNamespace
from typing import Final, cast

import requests
from pyiceberg.catalog import URI
from pyiceberg.catalog.rest import Endpoints, RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    UnauthorizedError,
)
from pyiceberg.table import Table

from pvdm.errors import Code, PvdmError
from pvdm.lake import upstream
from pvdm.lake.format.json_document import METADATA_SIZE_MAX_BYTES, Node, parse_json
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.stores.circuit_breaker import breaker_of
from pvdm.lake.upstream.models import as_models
from pvdm.lake.upstream.sessions import limit_session, shared_deadline
from pvdm.model.secret import Secret

# A response has a location and a configuration besides the document.
_ANSWER_MAX_BYTES: Final = METADATA_SIZE_MAX_BYTES + 1_048_576
_ACCEPTED_CONFIG_KEYS: Final = ("prefix", "namespace-separator")
_REFUSALS: Final = (AuthorizationExpiredError, UnauthorizedError, ForbiddenError, OAuthError)
_TOKEN_EXPIRED_STATUSES: Final = (HTTPStatus.UNAUTHORIZED, 419)  # 419 is Iceberg's own status for an expired token


@dataclass(frozen=True, slots=True)
class RestSettings:
    """The address, and how the Steward (pvdm's service) logs in: with `token` or with `credential` (`id:secret`)."""

    uri: str
    warehouse: str | None = None
    token: Secret | None = field(default=None, repr=False)
    credential: Secret | None = field(default=None, repr=False)
    timeout_seconds: int = 30


class _Catalog(RestCatalog):
    """PyIceberg's client with a time limit for every request."""

    def __init__(self, name: str, seconds: int, *, ignores_breaker: bool, **properties: str) -> None:
        self._seconds = seconds
        self._ignores_breaker = ignores_breaker
        super().__init__(name, **properties)

    def _create_legacy_oauth2_auth_manager(self, session: requests.Session) -> AuthManager:
        # The limits are set here because PyIceberg calls this before the session's first request.
        limit_session(
            session,
            seconds=self._seconds,
            max_bytes=_ANSWER_MAX_BYTES,
            breaker=breaker_of(self.properties[URI]),
            ignores_breaker=self._ignores_breaker,
        )
        return super()._create_legacy_oauth2_auth_manager(session)

    def _fetch_config(self) -> None:
        """Take only the prefix and the separator of names from the upstream's configuration.

        PyIceberg would take every setting, even another address to send the Steward's token to, or a class to load.
        """
        own = dict(self.properties)
        super()._fetch_config()
        merged, self.properties = self.properties, own
        if str(merged[URI]).rstrip("/") != own[URI].rstrip("/"):
            words = f"the configuration of the upstream catalog {self.name} names another address"
            raise Code.UPSTREAM_WRONG(words, reason="upstream_elsewhere", got="another address")
        self.uri = own[URI]
        self.properties.update({key: str(merged[key]) for key in _ACCEPTED_CONFIG_KEYS if key in merged})

    def request_table(self, identifier: upstream.TableIdentifier) -> requests.Response:
        """Request the table with all its snapshots."""
        parts = self._split_identifier_for_path((*identifier.levels, identifier.name))
        url = str(self.url(Endpoints.load_table, prefixed=True, **parts))
        return self._session.request("GET", url, params={"snapshots": "all"})


class RestUpstream:
    """One REST catalog; it connects at the first request."""

    def __init__(self, name: str, settings: RestSettings, *, ignores_breaker: bool = False) -> None:
        """With `ignores_breaker` requests are sent even while the circuit breaker is open."""
        self._name = name
        self._settings = settings
        self._ignores_breaker = ignores_breaker
        self._lock = threading.Lock()
        self._connected: _Catalog | None = None

    def load(self, identifier: upstream.TableIdentifier) -> upstream.UpstreamState:
        """The whole document from the response; PyIceberg's own types would lose fields."""
        node = self._load(identifier)
        location = node.optional_text("metadata-location")
        if location is None:
            raise upstream.location_missing_error(self._name, identifier)
        return upstream.UpstreamState(location, TableMetadata.from_json(node.node("metadata").raw))

    def commit(self, identifier: upstream.TableIdentifier, request: upstream.CommitRequest) -> None:
        """Commit with PyIceberg's `commit_table`. Without a clear answer the outcome is unknown."""
        requirements, updates = as_models(request.requirements, request.updates)
        catalog = self._connect()
        # All that `commit_table` needs of a table. A loaded table would have the document in PyIceberg's types.
        stub = SimpleNamespace(name=lambda: (*identifier.levels, identifier.name), config={})
        try:
            catalog.commit_table(cast(Table, stub), requirements, updates)
        except (CommitFailedException, NoSuchTableError) as error:
            raise upstream.moved_error(self._name, identifier, str(error)) from None
        except BadRequestError as error:
            raise upstream.rejected_error(self._name, identifier, str(error)) from None
        except _REFUSALS as error:
            raise upstream.unavailable_error(self._name, f"a commit to {identifier}", error) from error
        except Exception as error:
            raise upstream.unknown_outcome_error(self._name, identifier, error) from error

    def require_lossless(self, seen: upstream.UpstreamState) -> None:
        """Do nothing: the server itself applies the updates, so no field is lost."""

    def names(self, levels: tuple[str, ...]) -> list[str]:
        """The names of the tables of a namespace."""
        catalog = self._connect()
        with _translate_errors(self._name, "a namespace"), shared_deadline(self._settings.timeout_seconds):
            try:
                return sorted(str(each[-1]) for each in catalog.list_tables(levels))
            except NoSuchNamespaceError:
                return []

    def has_namespace(self, levels: tuple[str, ...]) -> bool:
        """Whether the namespace exists."""
        catalog = self._connect()
        with _translate_errors(self._name, "a namespace"):
            return bool(catalog.namespace_exists(levels))

    def reconnect(self) -> RestUpstream:
        """The same catalog with new connections, whose requests are sent even while the circuit breaker is open."""
        return RestUpstream(self._name, self._settings, ignores_breaker=True)

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            catalog, self._connected = self._connected, None
        if catalog is not None:
            catalog.close()

    def _load(self, identifier: upstream.TableIdentifier, *, may_renew_token: bool = True) -> Node:
        """The upstream's response with the table. An expired token is renewed once, by a new connection."""
        catalog = self._connect()
        with _translate_errors(self._name, f"the table {identifier}"):
            answer = catalog.request_table(identifier)
            if answer.status_code in _TOKEN_EXPIRED_STATUSES and may_renew_token:
                self.close()
                return self._load(identifier, may_renew_token=False)
            if answer.status_code == HTTPStatus.NOT_FOUND:
                raise upstream.table_missing_error(identifier)
            if answer.status_code != HTTPStatus.OK:
                raise upstream.unavailable_error(self._name, f"the table {identifier}", f"status {answer.status_code}")
            return Node(parse_json(answer.content, what="the upstream's answer", size_max_bytes=_ANSWER_MAX_BYTES), "$")

    def _connect(self) -> _Catalog:
        """The connected client; it connects at the first call."""
        with self._lock:
            if self._connected is None:
                with _translate_errors(self._name, "its configuration"):
                    seconds, ignores = self._settings.timeout_seconds, self._ignores_breaker
                    self._connected = _Catalog(self._name, seconds, ignores_breaker=ignores, **self._properties())
            return self._connected

    def _properties(self) -> dict[str, str]:
        found = {"uri": self._settings.uri}
        if self._settings.warehouse is not None:
            found["warehouse"] = self._settings.warehouse
        for name, secret in (("token", self._settings.token), ("credential", self._settings.credential)):
            if secret is not None:
                found[name] = secret.reveal().decode()
        if self._settings.credential is not None:
            found["oauth2-server-uri"] = f"{self._settings.uri.rstrip('/')}/v1/{Endpoints.get_token}"
        return found


@contextlib.contextmanager
def _translate_errors(name: str, what: str) -> Iterator[None]:
    """Raise failures of a read request as `upstream_unavailable`. pvdm's own errors are raised as they are."""
    try:
        yield
    except PvdmError:
        raise
    except Exception as error:
        raise upstream.unavailable_error(name, what, error) from error
