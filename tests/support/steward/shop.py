"""An embedded Steward with a source and protected targets, and `pvdm` commands that run against it."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pyarrow as pa
import pyarrow.parquet as pq

import pvdm
from pvdm.cli import main
from pvdm.client import StewardClient
from pvdm.client.table import TableClient, split_name
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.paths import parse_location
from pvdm.lake.read.entries import live_entries
from pvdm.model.role import Role
from pvdm.model.statements.core import Operation
from pvdm.model.states import AttemptState
from pvdm.physical.small import SmallStager
from pvdm.physical.stager import Destination
from pvdm.steward.embedded.embedded import EmbeddedSteward, Person
from pvdm.trust.keys.pem import create_key_pair
from pvdm.trust.root import RootRole
from tests.support.catalog.http import Caller
from tests.support.steward.http import bearer

Row = tuple[int, str, str | None]
COLUMNS = (("id", "long"), ("day", "date"), ("town", "string"))
BY_DAY = ((2, "day", "identity"),)
ROWS: tuple[Row, ...] = (
    (1, "2026-11-13", "Ulm"),
    (2, "2026-11-13", "Bonn"),
    (3, "2026-11-14", None),
    (4, "2026-11-14", "Ulm"),
    (5, "2026-11-14", "Kiel"),
)


def contract(target: str, *more: str, operation: str = "append", **boundary: str) -> str:
    """A contract from `raw.orders` to the target, with `more` lines at the top level and the keywords in `boundary`."""
    inside = "".join(f"  {key}: {value}\n" for key, value in boundary.items())
    return (
        "apiVersion: pvdm/v1\nkind: DataProduct\n"
        f"metadata:\n  domain: sales\n  product: {target.rpartition('.')[2]}\n  owner: sales@example.com\n"
        "boundary:\n  source:\n    table: raw.orders\n"
        f"  target: {target}\n  operation: {operation}\n{inside}"
        "projections:\n  identity: [id]\n" + "".join(f"{line}\n" for line in more)
    )


def table_of(rows: Sequence[Row]) -> pa.Table:
    columns: list[Any] = [
        pa.array([number for number, _, _ in rows], pa.int64()),
        pa.array([date.fromisoformat(day) for _, day, _ in rows], pa.date32()),
        pa.array([town for _, _, town in rows], pa.string()),
    ]
    return pa.Table.from_arrays(columns, names=[name for name, _ in COLUMNS])


@dataclass(slots=True)
class Shop:
    """An embedded Steward, and its operator's key. `made` are the names of the tables that `make` created."""

    steward: EmbeddedSteward
    folder: Path
    key: Path
    made: list[str] = field(default_factory=list)

    def client(self, role: Role = Role.PRODUCER, domain: str = "sales") -> StewardClient:
        return self.steward.as_role(role, domain, name=f"a {role}")

    def make(
        self,
        name: str,
        spec: Sequence[tuple[int, str, str]] = (),
        *,
        version: int = 2,
        columns: Sequence[tuple[str, str]] = COLUMNS,
        **properties: str,
    ) -> None:
        """Create an empty table of these columns. In the names of properties, `_` means `.`, and `__` means `-`."""
        *levels, last = name.split(".")
        fields = [
            {"source-id": source, "field-id": 1000 + at, "name": field_name, "transform": transform}
            for at, (source, field_name, transform) in enumerate(spec)
        ]
        schema = {
            "type": "struct",
            "schema-id": 0,
            "fields": [
                {"id": at, "name": column, "required": False, "type": kind}
                for at, (column, kind) in enumerate(columns, 1)
            ],
        }
        with httpx.Client(base_url=self.steward.url) as http:
            token = self.steward.token_for(Role.OPERATOR)
            Caller(http, bearer(token.text)).make(
                last,
                namespace=levels[0],
                **{
                    "schema": schema,
                    "partition-spec": {"spec-id": 0, "fields": fields},
                    "properties": {"format-version": str(version), **_property_names(properties)},
                },
            )
        self.made.append(name)

    def target(self, name: str, *more: str) -> str:
        """Create a table in `sales`, protect it under the example contract with `more` lines, and return its name."""
        full_name = f"sales.{name}"
        self.make(full_name)
        self.protect(contract(full_name, *more))
        return full_name

    def drop(self, name: str) -> None:
        """Drop the table from the catalog; its files stay."""
        *levels, last = name.split(".")
        with httpx.Client(base_url=self.steward.url) as http:
            caller = Caller(http, bearer(self.steward.token_for(Role.OPERATOR).text))
            caller.done("DELETE", f"/namespaces/{levels[0]}/tables/{last}")

    def space(self, name: str) -> None:
        """Create a namespace of the domain `sales`."""
        with httpx.Client(base_url=self.steward.url) as http:
            caller = Caller(http, bearer(self.steward.token_for(Role.OPERATOR).text))
            caller.done("POST", "/namespaces", json={"namespace": [name], "properties": {"pvdm.domain": "sales"}})

    def protect(self, text: str) -> None:
        """Protect the contract's target with the command `pvdm protect`."""
        target = next(line.split()[-1] for line in text.splitlines() if line.startswith("  target:"))
        path = self.folder / f"{target}.yaml"
        path.write_text(text, "utf-8")
        words = ["protect", target, "--contract", str(path), "--key", str(self.key), "--operator", "tom"]
        code, output = self.command([*words, "--reason", "it goes live"], Role.OPERATOR, "*")
        assert code == 0, output

    def command(self, words: Sequence[str], role: Role = Role.PRODUCER, domain: str = "sales") -> tuple[int, str]:
        """Run a command of `pvdm` against this Steward; returns its exit code and its output."""
        output = io.StringIO()
        token = self.steward.token_for(role, domain)
        env = {"PVDM_URL": self.steward.url, "PVDM_TOKEN": token.text}
        with patch.dict(os.environ, env), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = main(list(words))
        return code, output.getvalue()

    def metrics(self) -> tuple[int, str]:
        """Request the metrics as Prometheus does; returns the status and the text of the response."""
        token = self.steward.token_for(Role.AUDITOR)
        found = httpx.get(f"{self.steward.url}/metrics", headers=bearer(token.text), trust_env=False)
        return found.status_code, found.text

    def write(self, rows: Sequence[Row], table: str = "raw.orders", branch: str = "main") -> None:
        """Append rows to a branch without a coordinator, or to `main` of an unprotected table."""
        self.write_table(table_of(rows), table, branch)

    def write_table(self, rows: pa.Table, table: str, branch: str = "main") -> None:
        """Like `write`, for rows of any columns."""
        role = Role.OPERATOR if branch == "main" else Role.PRODUCER
        with self.client(role, "*") as client:
            location = TableMetadata.from_json(TableClient(client, *split_name(table)).load()).location
            token = self.steward.token_for(role, "*")
            to = Destination(
                self.steward.url, table, branch, location, "none", "none", "0" * 32, token, Operation.APPEND
            )
            SmallStager(client).stage(lambda: rows, to)

    def metadata(self, table: str, role: Role = Role.CONSUMER) -> TableMetadata:
        with self.client(role) as client:
            return TableMetadata.from_json(TableClient(client, *split_name(table)).load())

    def visible_rows(self, table: str) -> list[Row]:
        """Every row of `main` that a consumer sees, read from its files."""
        return read_rows(self.metadata(table))

    def branches(self, table: str) -> set[str]:
        return set(self.metadata(table, Role.PRODUCER).refs) - {"main"}

    def staged_files(self, table: str) -> list[Path]:
        """The files in the attempts' folders."""
        return sorted(path for path in self.staging_place(table).rglob("*") if path.is_file())

    def staging_place(self, table: str) -> Path:
        """The folder that contains the attempts' folders."""
        return parse_location(self.metadata(table).location).local / "pvdm"

    def staged_of_ended(self, workload_id: str) -> list[Path]:
        """The files in the folders of those attempts of the workload that were rolled back."""
        with self.client() as client:
            attempts = client.workload(workload_id).attempts
        places = [parse_location(each.prefix).local for each in attempts if each.state is AttemptState.ROLLED_BACK]
        return [path for place in places for path in place.rglob("*") if path.is_file()]


def _property_names(properties: dict[str, str]) -> dict[str, str]:
    """Table properties from keyword arguments: `__` becomes `-`, and `_` becomes `.`."""
    return {key.replace("__", "-").replace("_", "."): text for key, text in properties.items()}


class Disk:
    """Reads local files."""

    def read(self, location: str, *, max_bytes: int) -> bytes:
        return parse_location(location).local.read_bytes()[: max_bytes + 1]


def read_rows(metadata: TableMetadata) -> list[Row]:
    """Every row of `main`, read from its files."""
    if metadata.current_snapshot is None:
        return []
    found: list[Row] = []
    for entry in live_entries(metadata, metadata.current_snapshot, Disk()):
        rows = pq.ParquetFile(parse_location(entry.data_file.file_path).local).read().to_pylist()
        found += [(row["id"], row["day"].isoformat(), row["town"]) for row in rows]
    return sorted(found, key=repr)


@contextlib.contextmanager
def shop_at(folder: Path, rows: Sequence[Row] = ROWS) -> Iterator[Shop]:
    """An embedded Steward in this folder, with rows in `raw.orders` and the empty namespace `sales`."""
    key, tom = _create_operator(folder)
    with pvdm.Steward.embedded(folder / "steward", people=[tom]) as steward:
        shop = Shop(steward, folder, key)
        shop.space("raw")
        shop.space("sales")
        shop.make("raw.orders")
        shop.write(rows)
        yield shop


@contextlib.contextmanager
def shop_over(folder: Path, upstream: str, *more_namespaces: str) -> Iterator[Shop]:
    """A shop whose namespace `up` is an upstream. `upstream` has further lines of its entry in [[catalog.upstreams]].

    `more_namespaces` are namespaces to create in `up`.
    """
    key, tom = _create_operator(folder)
    pvdm.Steward.embedded(folder / "steward", people=[tom]).close()
    with (folder / "steward" / "steward.toml").open("a") as file:
        file.write(f'\n[[catalog.upstreams]]\nkind = "rest"\nnamespace = ["up"]\n{upstream}\n')
    with pvdm.Steward.embedded(folder / "steward", people=[tom]) as steward:
        shop = Shop(steward, folder, key)
        shop.space("raw")
        shop.make("raw.orders")
        shop.write(ROWS)
        shop.space("up")
        with httpx.Client(base_url=steward.url) as http:
            caller = Caller(http, bearer(steward.token_for(Role.OPERATOR).text))
            for name in more_namespaces:
                caller.done("POST", "/namespaces", json={"namespace": ["up", name], "properties": {}})
        yield shop


def _create_operator(folder: Path) -> tuple[Path, Person]:
    """The operator tom, and the file of his private key."""
    key = folder / "tom.pem"
    create_key_pair(key)
    return key, Person.from_file("tom", RootRole.OPERATOR, key.with_name("tom.pem.pub"))
