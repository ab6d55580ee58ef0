"""The catalogs that the benchmark measures: the Steward's, PyIceberg's SqlCatalog, Iceberg's Java reference server."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import pyiceberg.table.update as iceberg_updates
from pydantic import TypeAdapter
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from sqlalchemy.exc import OperationalError

from bench.catalog_work import SCHEMA, ConflictError, Door, Facts, Json, UnsureError

JAVA_VERSION = "1.10.1"
JAVA_JAR = f"iceberg-open-api-{JAVA_VERSION}.jar"
JAVA_SERVER = "org.apache.iceberg.rest.RESTCatalogServer"
NAMESPACE = "bench"
START_SECONDS = 60


class RestDoor:
    """One connection to a server of the Iceberg REST protocol; the same for whoever serves it."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url)
        self._http = http.client.HTTPConnection(parts.netloc, timeout=120)
        self._path = f"{parts.path}/v1/namespaces/{NAMESPACE}/tables"
        self._headers = {"content-type": "application/json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"

    def make(self, table: str) -> None:
        """A new, empty table."""
        self._ask("POST", self._path, {"name": table, "schema": SCHEMA, "properties": {"format-version": "2"}})

    def load(self, table: str) -> Facts:
        """The table as it is."""
        return _facts(self._ask("GET", f"{self._path}/{table}", None)["metadata"])

    def commit(self, table: str, requirements: list[Json], updates: list[Json]) -> Facts:
        """Change the table; gives it as it is afterwards."""
        body = {"requirements": requirements, "updates": updates}
        return _facts(self._ask("POST", f"{self._path}/{table}", body)["metadata"])

    def _ask(self, method: str, path: str, body: Json | None) -> Any:
        self._http.request(method, path, None if body is None else json.dumps(body), self._headers)
        answer = self._http.getresponse()
        data = answer.read()
        # The Java server calls a sequence number that was given to somebody else meanwhile a bad request.
        if answer.status == http.HTTPStatus.CONFLICT or b"older than last sequence number" in data[:300]:
            raise ConflictError(data[:300])
        if answer.status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
            raise UnsureError(data[:300])
        assert answer.status == http.HTTPStatus.OK, (answer.status, data[:500])
        return json.loads(data)


def _facts(metadata: Json) -> Facts:
    return Facts(
        metadata["location"],
        metadata["last-sequence-number"],
        metadata["last-updated-ms"],
        metadata["current-schema-id"],
        {name: ref["snapshot-id"] for name, ref in metadata.get("refs", {}).items()},
        len(metadata.get("snapshots", ())),
    )


@dataclass(slots=True)
class RestSystem:
    """A server in a process of its own."""

    name: str
    url: str
    token: str | None = None
    after_make: Callable[[str], None] = field(default=lambda _table: None)

    def door(self) -> Door:
        """A connection for one writer."""
        return RestDoor(self.url, self.token)

    def make(self, table: str) -> None:
        """A new, empty table."""
        RestDoor(self.url, self.token).make(table)

    def ready(self, table: str) -> None:
        """Protected, where the server can do that."""
        self.after_make(table)


class SqlDoor:
    """A SqlCatalog of one writer's own, called without any server; PyIceberg's defaults throughout."""

    def __init__(self, uri: str, warehouse: str) -> None:
        self._catalog = SqlCatalog("bench", uri=uri, warehouse=warehouse)
        self._tables: dict[str, Table] = {}
        self._updates: TypeAdapter[Any] = TypeAdapter(tuple[iceberg_updates.TableUpdate, ...])
        self._requirements: TypeAdapter[Any] = TypeAdapter(tuple[iceberg_updates.TableRequirement, ...])

    def make(self, table: str) -> None:
        """A new, empty table."""
        self._catalog.create_namespace_if_not_exists(NAMESPACE)
        self._catalog.create_table((NAMESPACE, table), Schema.model_validate(SCHEMA))

    def load(self, table: str) -> Facts:
        """The table as it is."""
        found = self._tables[table] = self._catalog.load_table((NAMESPACE, table))
        return _read(found.metadata)

    def commit(self, table: str, requirements: list[Json], updates: list[Json]) -> Facts:
        """Change the table; gives it as it is afterwards."""
        try:
            done = self._catalog.commit_table(
                self._tables[table],
                self._requirements.validate_python(requirements),
                self._updates.validate_python(updates),
            )
        except CommitFailedException as error:
            raise ConflictError(str(error)) from error
        except ValueError as error:
            # PyIceberg has no other word for a sequence number that was given to somebody else meanwhile.
            if "sequence number" not in str(error):
                raise
            raise ConflictError(str(error)) from error
        except OperationalError as error:
            raise UnsureError(str(error)) from error  # "database is locked"
        return _read(done.metadata)


def _read(metadata: TableMetadata) -> Facts:
    assert not isinstance(metadata, TableMetadataV1)  # which has no sequence numbers
    return Facts(
        metadata.location,
        metadata.last_sequence_number,
        metadata.last_updated_ms,
        metadata.current_schema_id,
        {name: ref.snapshot_id for name, ref in metadata.refs.items()},
        len(metadata.snapshots),
    )


@dataclass(slots=True)
class SqlSystem:
    """PyIceberg in the writers' own process, a catalog for each."""

    name: str
    uri: str
    warehouse: str

    def door(self) -> Door:
        """A catalog for one writer."""
        return SqlDoor(self.uri, self.warehouse)

    def make(self, table: str) -> None:
        """A new, empty table."""
        SqlDoor(self.uri, self.warehouse).make(table)

    def ready(self, _table: str) -> None:
        """Nothing more: it knows no protection."""


@contextlib.contextmanager
def steward(name: str, folder: Path, ledger_url: str | None) -> Iterator[RestSystem]:
    """The Steward in a process of its own, its tables protected, its writers producers."""
    folder.mkdir()
    command = [sys.executable, "-m", "bench.catalog_serve", str(folder), *([ledger_url] if ledger_url else [])]
    with _process(command, folder.with_suffix(".log"), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        told = json.loads(_line(process.stdout, folder.with_suffix(".log")))

        def protect(table: str) -> None:
            assert process.stdin is not None
            process.stdin.write(f"{table}\n".encode())
            process.stdin.flush()
            assert _line(process.stdout, folder.with_suffix(".log")) == "protected"

        yield RestSystem(name, told["url"], told["token"], protect)


@contextlib.contextmanager
def java(name: str, folder: Path, jar: Path, database: str | None) -> Iterator[RestSystem]:
    """Iceberg's reference server; without a database of ours it takes its own default, in memory."""
    folder.mkdir()
    port = _free_port()
    settings = {"CATALOG_REST_PORT": str(port), "CATALOG_WAREHOUSE": f"{folder}/warehouse"}
    # Each connection to a database in memory has a database of its own, so that there can be only one.
    settings |= {"CATALOG_CLIENTS": "1"} if database is None else {"CATALOG_URI": database}
    log = folder.with_suffix(".log")
    command = ["java", "-Xmx1g", "-cp", str(jar), JAVA_SERVER]
    with _process(command, log, env={**os.environ, **settings}) as process:
        url = f"http://127.0.0.1:{port}"
        _until_answers(url, process, log)
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        with contextlib.closing(connection):
            connection.request(
                "POST", "/v1/namespaces", json.dumps({"namespace": [NAMESPACE]}), {"content-type": "application/json"}
            )
            assert connection.getresponse().status == http.HTTPStatus.OK
        yield RestSystem(name, url)


@contextlib.contextmanager
def _process(command: list[str], log: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process with its words in a file; it ends with the block."""
    with log.open("wb") as errors:
        options = {"stdout": errors, "stderr": errors, **options}
        process = subprocess.Popen(command, **options)
        try:
            yield process
        finally:
            if process.stdin is not None:
                process.stdin.close()
            else:
                process.terminate()
            process.wait(START_SECONDS)
            if process.stdout is not None:
                process.stdout.close()


def _line(stream: IO[bytes] | None, log: Path) -> str:
    assert stream is not None
    line = stream.readline().decode().strip()
    if not line:
        raise OSError(f"the server did not answer: {_last_words(log)}")
    return line


def _until_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    address = urlsplit(url)
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((address.hostname, address.port), timeout=1):
            return
        time.sleep(0.1)
    raise OSError(f"the server did not start: {_last_words(log)}")


def _last_words(log: Path) -> str:
    said = log.read_text(errors="replace").strip().splitlines()
    return said[-1][:300] if said else "silence"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
