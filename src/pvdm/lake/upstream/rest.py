"""An upstream that speaks Iceberg's REST protocol: documents are read raw, commits go by PyIceberg's `commit_table`."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, Final, cast

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
from pvdm.lake.format.json.document import METADATA_SIZE_MAX_BYTES, parse_json
from pvdm.lake.format.json.node import Node
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.stores.circuit_breaker import line_at
from pvdm.lake.upstream import Asked, Place, Seen, answer_wrong, moved, no_table, rejected, unavailable, unknown
from pvdm.lake.upstream.models import as_models
from pvdm.lake.upstream.sessions import bounded, together
from pvdm.model.secret import Secret

# Beside the document an answer holds its location and a configuration.
_ANSWER_MAX_BYTES: Final = METADATA_SIZE_MAX_BYTES + 1_048_576
_TAKEN: Final = ("prefix", "namespace-separator")
_REFUSED: Final = (AuthorizationExpiredError, UnauthorizedError, ForbiddenError, OAuthError)
_AGAIN: Final = (HTTPStatus.UNAUTHORIZED, 419)


@dataclass(frozen=True, slots=True)
class RestSettings:
    """Where it is, and who the Steward is there: a token, or client id and secret joined by a colon."""

    uri: str
    warehouse: str | None = None
    token: Secret | None = field(default=None, repr=False)
    credential: Secret | None = field(default=None, repr=False)
    timeout_seconds: int = 30


class _Catalog(RestCatalog):
    """PyIceberg's client, with an end to every request; without one a lost answer would hold its table for ever."""

    def __init__(self, name: str, seconds: int, *, asks_always: bool, **properties: str) -> None:
        self._seconds = seconds
        self._asks_always = asks_always
        super().__init__(name, **properties)

    def _create_legacy_oauth2_auth_manager(self, session: requests.Session) -> AuthManager:
        # The first thing that is done with a new session, and what may ask for a token by it.
        bounded(
            session,
            seconds=self._seconds,
            most=_ANSWER_MAX_BYTES,
            line=line_at(self.properties[URI]),
            asks_always=self._asks_always,
        )
        return super()._create_legacy_oauth2_auth_manager(session)

    def _fetch_config(self) -> None:
        """What the upstream says of itself is taken for names alone.

        PyIceberg would take all of it: another address that the Steward's token is sent to, and classes to be run.
        """
        own = dict(self.properties)
        super()._fetch_config()
        told, self.properties = self.properties, own
        _require_there(self.name, own[URI], str(told[URI]))
        self.uri = own[URI]
        self.properties.update({key: str(told[key]) for key in _TAKEN if key in told})

    def table_url(self, place: Place) -> str:
        """Where the table is."""
        parts = self._split_identifier_for_path((*place.levels, place.name))
        return str(self.url(Endpoints.load_table, prefixed=True, **parts))

    def get(self, url: str) -> requests.Response:
        """The answer, whatever it is."""
        return self._session.request("GET", url, params={"snapshots": "all"})


class RestUpstream:
    """One REST catalog; connected when it is first asked."""

    def __init__(self, name: str, settings: RestSettings, *, asks_always: bool = False) -> None:
        """Nobody waits for a server that was silent just now, unless this one `asks_always`."""
        self._name = name
        self._settings = settings
        self._asks_always = asks_always
        self._lock = threading.Lock()
        self._known: _Catalog | None = None

    def load(self, place: Place) -> Seen:
        """The whole document as the answer holds it, nothing of it lost; PyIceberg's own types would lose fields."""
        node = self._answer(place)
        location = node.optional_text("metadata-location")
        if location is None:
            raise answer_wrong(self._name, place)
        return Seen(location, TableMetadata.from_json(node.node("metadata").raw))

    def commit(self, place: Place, asked: Asked) -> None:
        """By `commit_table`; whatever is no clear answer means that nobody knows."""
        requirements, updates = as_models(asked.requirements, asked.updates)
        catalog = self._catalog()
        # All that `commit_table` asks of a table; loading one would read its document in PyIceberg's types.
        named = SimpleNamespace(name=lambda: (*place.levels, place.name), config={})
        try:
            catalog.commit_table(cast(Table, named), requirements, updates)
        except (CommitFailedException, NoSuchTableError) as error:
            raise moved(self._name, place, str(error)) from None
        except BadRequestError as error:
            raise rejected(self._name, place, str(error)) from None
        except _REFUSED as error:
            raise unavailable(self._name, f"a commit to {place}", error) from error
        except Exception as error:
            raise unknown(self._name, place, error) from error

    def require_kept(self, seen: Seen) -> None:
        """The server itself makes the next document."""

    def names(self, levels: tuple[str, ...]) -> list[str]:
        """The tables of a namespace."""
        catalog = self._catalog()
        with _asking(self._name, "a namespace"), together(self._settings.timeout_seconds):
            try:
                return sorted(str(each[-1]) for each in catalog.list_tables(levels))
            except NoSuchNamespaceError:
                return []

    def has_namespace(self, levels: tuple[str, ...]) -> bool:
        """Whether there is such a namespace."""
        catalog = self._catalog()
        with _asking(self._name, "a namespace"):
            return bool(catalog.namespace_exists(levels))

    def anew(self) -> RestUpstream:
        """The same catalog by connections of its own; it is asked whatever others found."""
        return RestUpstream(self._name, self._settings, asks_always=True)

    def close(self) -> None:
        """Let go of the connections."""
        with self._lock:
            known, self._known = self._known, None
        if known is not None:
            known.close()

    def _answer(self, place: Place) -> Node:
        for last in (False, True):
            catalog = self._catalog()
            with _asking(self._name, f"the table {place}"):
                answer = catalog.get(catalog.table_url(place))
                if answer.status_code in _AGAIN and not last:
                    self.close()  # a session whose token has run out gets another one
                    continue
                if answer.status_code == HTTPStatus.NOT_FOUND:
                    raise no_table(place)
                if answer.status_code != HTTPStatus.OK:
                    raise unavailable(self._name, f"the table {place}", f"status {answer.status_code}")
                return Node(
                    parse_json(answer.content, what="the upstream's answer", size_max_bytes=_ANSWER_MAX_BYTES), "$"
                )
        raise AssertionError("unreachable")

    def _catalog(self) -> _Catalog:
        with self._lock:
            if self._known is None:
                with _asking(self._name, "its configuration"):
                    self._known = _Catalog(
                        self._name,
                        self._settings.timeout_seconds,
                        asks_always=self._asks_always,
                        **self._properties(),
                    )
            return self._known

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


class _asking:  # noqa: N801 - reads as what it is: with _asking(…)
    """Whatever goes wrong while it is only asked means that it cannot be asked now."""

    def __init__(self, name: str, what: str) -> None:
        self._name = name
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if isinstance(error, PvdmError) or not isinstance(error, Exception):
            return
        raise unavailable(self._name, self._what, error) from error


def _require_there(name: str, own: str, told: str) -> None:
    """The Steward's credential goes where whoever runs it says, and nowhere that the upstream would send it."""
    if told.rstrip("/") != own.rstrip("/"):
        raise Code.UPSTREAM_ELSEWHERE(f"the upstream catalog {name} says that it is somewhere else", got="another one")
