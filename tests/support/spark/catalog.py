"""A served catalog that Spark uses with tokens of several roles: tables, branches, files, and publication."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pvdm.catalog.commit import Change
from pvdm.catalog.state import TableState
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.metadata.gate.target import Permit
from pvdm.model.role import Role
from tests.support.catalog.http import Lake, lake_at, set_ref
from tests.support.spark.session import as_role, rows
from tests.support.steward.notary import RealTime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[object, ...]
GATED = "is protected"
READS_ONLY = "the token's role does not allow this"
NO_BRANCH = "Cannot use branch \\(does not exist\\)"


@dataclass(slots=True)
class SparkLake:
    """A served catalog and a Spark session. `{me}` in a statement stands for the catalog of the role that runs it."""

    spark: SparkSession
    lake: Lake
    names: dict[Role, str] = field(default_factory=dict)

    def run(self, statement: str, role: Role = Role.PRODUCER) -> list[Row]:
        """Run a statement; returns all rows of the result, sorted."""
        return rows(self.spark.sql(statement.replace("{me}", self.named(role))))

    def named(self, role: Role) -> str:
        """The name of the role's catalog in SQL."""
        if role not in self.names:
            self.names[role] = as_role(self.spark, self.lake, role)
        return self.names[role]

    def table(self, name: str, version: int = 2, *, protected: bool = True, **properties: str) -> None:
        """Create a table of `id` and `note`. In properties, `_` stands for `.`."""
        dotted = {key.replace("_", "."): text for key, text in properties.items()}
        pairs = {"format-version": str(version), **dotted}.items()
        listed = ", ".join(f"'{key}' = '{text}'" for key, text in pairs)
        self.run(f"create table {{me}}.sales.{name} (id bigint, note string) using iceberg tblproperties ({listed})")
        if protected:
            self.lake.protect(name)

    def published(self, name: str, version: int = 2, **properties: str) -> None:
        """Create a protected table with the rows (1, 'a') and (2, 'b') on `main` and on the branch `stage`."""
        self.table(name, version, protected=False, **properties)
        # Both rows in one file, so that a delete of one of them has to write a delete file.
        self.run(f"insert into {{me}}.sales.{name} select /*+ coalesce(1) */ * from values (1L, 'a'), (2L, 'b')")
        self.run(f"alter table {{me}}.sales.{name} create branch stage")
        self.lake.protect(name)

    def metadata(self, name: str) -> TableMetadata:
        """The table's whole metadata, as the Steward has it."""
        return self.lake.steward.stand.notary.catalog.states.get(("sales",), name).metadata

    def publish(self, name: str, branch: str = "stage") -> int:
        """Set `main` to the head of a branch; returns the snapshot's id."""
        return publish(self.lake, name, branch)

    def files(self) -> set[Path]:
        """Every file in the warehouse."""
        return {path for path in (self.lake.folder / "warehouse").rglob("*") if path.is_file()}


def publish(lake: Lake, name: str, branch: str = "stage") -> int:
    """Set `main` to the head of a branch, with a permit as the gate creates it; returns the snapshot's id."""
    catalog = lake.steward.stand.notary.catalog
    head = catalog.states.get(("sales",), name).metadata.refs[branch].snapshot_id

    def permit(state: TableState, _after: TableMetadata, data: bytes) -> Permit:
        return Permit(state.row.table_uuid, state.row.pointer.sha256, hashlib.sha256(data).hexdigest())

    change = Change(("sales",), name, (), [set_ref("main", head)])
    catalog.commits.commit(lake.steward.stand.grant(Role.OPERATOR), [change], make_permit=permit)
    return head


@contextlib.contextmanager
def spark_lake_at(folder: Path, spark: SparkSession) -> Iterator[SparkLake]:
    """A served catalog on the real time, for a Spark session."""
    with lake_at(folder, clock=RealTime()) as lake:
        yield SparkLake(spark, lake)
