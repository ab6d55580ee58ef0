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

from bench.catalog_work import SCHEMA, ConflictError, Connection, Facts, Json, StateUnknownError

JAVA_VERSION = "1.10.1"
JAVA_JAR = f"iceberg-open-api-{JAVA_VERSION}.jar"
JAVA_SERVER = "org.apache.iceberg.rest.RESTCatalogServer"
NAMESPACE = "bench"
START_SECONDS = 60


class RestConnection:
    """One connection to a server of the Iceberg REST protocol, the Steward or the Java server."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url)
        self._http = http.client.HTTPConnection(parts.netloc, timeout=120)
        self._path = f"{parts.path}/v1/namespaces/{NAMESPACE}/tables"
        self._headers = {"content-type": "application/json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"

    def create_table(self, table: str) -> None:
        """Create an empty table."""
        self._request("POST", self._path, {"name": table, "schema": SCHEMA, "properties": {"format-version": "2"}})

    def load(self, table: str) -> Facts:
        """Load the table."""
        return _facts_from_json(self._request("GET", f"{self._path}/{table}", None)["metadata"])

    def commit(self, table: str, requirements: list[Json], updates: list[Json]) -> Facts:
        """Commit to the table; returns its new facts."""
        body = {"requirements": requirements, "updates": updates}
        return _facts_from_json(self._request("POST", f"{self._path}/{table}", body)["metadata"])

    def _request(self, method: str, path: str, body: Json | None) -> Any:
        self._http.request(method, path, None if body is None else json.dumps(body), self._headers)
        response = self._http.getresponse()
        data = response.read()
        # The Java server responds with 400 if another commit has taken the sequence number meanwhile.
        if response.status == http.HTTPStatus.CONFLICT or b"older than last sequence number" in data[:300]:
            raise ConflictError(data[:300])
        if response.status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
            raise StateUnknownError(data[:300])
        assert response.status == http.HTTPStatus.OK, (response.status, data[:500])
        return json.loads(data)


def _facts_from_json(metadata: Json) -> Facts:
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
    """A server in its own process; `after_create` is called for each new table."""

    name: str
    url: str
    token: str | None = None
    after_create: Callable[[str], None] = field(default=lambda _table: None)

    def connect(self) -> Connection:
        """A connection for one writer."""
        return RestConnection(self.url, self.token)

    def create_table(self, table: str) -> None:
        """Create an empty table."""
        RestConnection(self.url, self.token).create_table(table)

    def finish_table(self, table: str) -> None:
        """Protect the table, if the server can."""
        self.after_create(table)


class SqlConnection:
    """A SqlCatalog for one writer, in its own process and with PyIceberg's defaults; there is no server."""

    def __init__(self, uri: str, warehouse: str) -> None:
        self._catalog = SqlCatalog("bench", uri=uri, warehouse=warehouse)
        self._tables: dict[str, Table] = {}
        self._updates: TypeAdapter[Any] = TypeAdapter(tuple[iceberg_updates.TableUpdate, ...])
        self._requirements: TypeAdapter[Any] = TypeAdapter(tuple[iceberg_updates.TableRequirement, ...])

    def create_table(self, table: str) -> None:
        """Create an empty table."""
        self._catalog.create_namespace_if_not_exists(NAMESPACE)
        self._catalog.create_table((NAMESPACE, table), Schema.model_validate(SCHEMA))

    def load(self, table: str) -> Facts:
        """Load the table."""
        found = self._tables[table] = self._catalog.load_table((NAMESPACE, table))
        return _facts_from_metadata(found.metadata)

    def commit(self, table: str, requirements: list[Json], updates: list[Json]) -> Facts:
        """Commit to the table; returns its new facts."""
        try:
            done = self._catalog.commit_table(
                self._tables[table],
                self._requirements.validate_python(requirements),
                self._updates.validate_python(updates),
            )
        except CommitFailedException as error:
            raise ConflictError(str(error)) from error
        except ValueError as error:
            # PyIceberg raises ValueError if another commit has taken the sequence number meanwhile.
            if "sequence number" not in str(error):
                raise
            raise ConflictError(str(error)) from error
        except OperationalError as error:
            raise StateUnknownError(str(error)) from error  # "database is locked"
        return _facts_from_metadata(done.metadata)


def _facts_from_metadata(metadata: TableMetadata) -> Facts:
    assert not isinstance(metadata, TableMetadataV1)  # version 1 has no sequence numbers
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
    """PyIceberg in the benchmark's process, with a catalog for each writer."""

    name: str
    uri: str
    warehouse: str

    def connect(self) -> Connection:
        """A catalog for one writer."""
        return SqlConnection(self.uri, self.warehouse)

    def create_table(self, table: str) -> None:
        """Create an empty table."""
        SqlConnection(self.uri, self.warehouse).create_table(table)

    def finish_table(self, _table: str) -> None:
        """Do nothing: SqlCatalog has no protection."""


@contextlib.contextmanager
def steward(name: str, folder: Path, ledger_url: str | None) -> Iterator[RestSystem]:
    """Run the Steward in its own process. Its tables are protected, and the writers have a producer's token."""
    folder.mkdir()
    command = [sys.executable, "-m", "bench.catalog_serve", str(folder), *([ledger_url] if ledger_url else [])]
    with _run_process(command, folder.with_suffix(".log"), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        service = json.loads(_read_line(process.stdout, folder.with_suffix(".log")))

        def protect(table: str) -> None:
            assert process.stdin is not None
            process.stdin.write(f"{table}\n".encode())
            process.stdin.flush()
            assert _read_line(process.stdout, folder.with_suffix(".log")) == "protected"

        yield RestSystem(name, service["url"], service["token"], protect)


@contextlib.contextmanager
def java(name: str, folder: Path, jar: Path, database: str | None) -> Iterator[RestSystem]:
    """Run Iceberg's reference server; without `database` it uses its default, a database in memory."""
    folder.mkdir()
    port = _free_port()
    settings = {"CATALOG_REST_PORT": str(port), "CATALOG_WAREHOUSE": f"{folder}/warehouse"}
    # Each connection to SQLite in memory has its own database, so only one connection is allowed.
    settings |= {"CATALOG_CLIENTS": "1"} if database is None else {"CATALOG_URI": database}
    log = folder.with_suffix(".log")
    command = ["java", "-Xmx1g", "-cp", str(jar), JAVA_SERVER]
    with _run_process(command, log, env={**os.environ, **settings}) as process:
        url = f"http://127.0.0.1:{port}"
        _wait_until_reachable(url, process, log)
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        with contextlib.closing(connection):
            connection.request(
                "POST", "/v1/namespaces", json.dumps({"namespace": [NAMESPACE]}), {"content-type": "application/json"}
            )
            assert connection.getresponse().status == http.HTTPStatus.OK
        yield RestSystem(name, url)


@contextlib.contextmanager
def _run_process(command: list[str], log: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process for the block, with its output in a file. A process with a pipe ends when the pipe is closed."""
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


def _read_line(stream: IO[bytes] | None, log: Path) -> str:
    assert stream is not None
    line = stream.readline().decode().strip()
    if not line:
        raise OSError(f"the server did not answer: {_last_line(log)}")
    return line


def _wait_until_reachable(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    address = urlsplit(url)
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((address.hostname, address.port), timeout=1):
            return
        time.sleep(0.1)
    raise OSError(f"the server did not start: {_last_line(log)}")


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "its log is empty"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
