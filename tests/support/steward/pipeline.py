"""The path of a chunk without Spark: a served Steward, a source with rows, a target, and a stager."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from pvdm.api.work import AttemptView, ChunkView
from pvdm.client import AccessToken, StewardClient
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.model.role import Role
from pvdm.model.statements.core import Operation
from pvdm.physical.small import SmallStager
from pvdm.physical.stager import Destination
from pvdm.steward.config.steward import StewardConfig
from pvdm.steward.notary import Notary
from tests.support.catalog.http import with_catalog
from tests.support.gate.approvals import Scene
from tests.support.steward.http import Served, served
from tests.support.steward.leases import open_attempt
from tests.support.stores.places import on_test_store

RAW: Levels = ("raw",)
SALES: Levels = ("sales",)
REASON = "the nightly run"
Row = tuple[int, str, str]
FIELDS: Any = [pa.field("id", pa.int64()), pa.field("day", pa.date32()), pa.field("town", pa.string())]
SCHEMA = pa.schema(FIELDS)
ROWS: tuple[Row, ...] = (
    (1, "2026-11-13", "Ulm"),
    (2, "2026-11-13", "Bonn"),
    (3, "2026-11-14", "Kiel"),
    (4, "2026-11-14", "Ulm"),
)


def contract(*more: str, operation: str = "append", **boundary: str) -> str:
    """The contract of `sales.orders`, with `more` lines at the top level and the keywords in `boundary`."""
    inside = "".join(f"  {key}: {value}\n" for key, value in boundary.items())
    return (
        "apiVersion: pvdm/v1\nkind: DataProduct\n"
        "metadata:\n  domain: sales\n  product: orders\n  owner: sales@example.com\n"
        "boundary:\n  source:\n    table: raw.orders\n"
        f"  target: sales.orders\n  operation: {operation}\n{inside}"
        "projections:\n  identity: [id]\n" + "".join(f"{line}\n" for line in more)
    )


BY_DAY_AND_NONE = "chunking:\n  by: range\n  column: day\n  bounds: ['2026-11-14', '2026-11-15']"
DAY_CHUNKS = ("day=(,2026-11-14)", "day=[2026-11-14,2026-11-15)", "day=[2026-11-15,)")  # the last chunk has no rows
BY_DAY = "chunking:\n  by: partition\n  columns: [day]"


def table_of(rows: Sequence[Row], names: Sequence[str] = SCHEMA.names) -> pa.Table:
    """The rows as an Arrow table with these column names."""
    days = [datetime.date.fromisoformat(day) for _, day, _ in rows]
    columns: list[Any] = [
        pa.array([number for number, _, _ in rows], pa.int64()),
        pa.array(days, pa.date32()),
        pa.array([town for _, _, town in rows], pa.string()),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA).rename_columns(list(names))


@dataclass(slots=True)
class Line:
    """A served Steward whose catalog has the source `raw.orders` with rows, and the empty target `sales.orders`."""

    served: Served
    scene: Scene

    @property
    def notary(self) -> Notary:
        return self.served.stand.notary

    @property
    def url(self) -> str:
        return self.served.server.url

    def token(self, role: Role, domain: str = "sales", name: str = "job") -> AccessToken:
        return AccessToken(self.served.stand.token(role, domain, name)[0])

    def client(self, role: Role = Role.PRODUCER, domain: str = "sales") -> StewardClient:
        return StewardClient(self.url, self.token(role, domain))

    def protect(self, text: str | None = None) -> None:
        """Protect the target under this contract, or under the example contract."""
        self.scene.protect(self.scene.protection(contract=text or contract()))

    def write(
        self,
        rows: Sequence[Row],
        table: str = "raw.orders",
        branch: str = "main",
        names: Sequence[str] = SCHEMA.names,
    ) -> None:
        """Append rows to an unprotected table, or to a branch of any table."""
        *levels, name = table.split(".")
        location = self.scene.table_state(name, tuple(levels)).metadata.location
        role = Role.OPERATOR if branch == "main" else Role.PRODUCER
        with self.client(role, "*") as client:
            to = self._destination(table, branch, location, "none", "none", "0" * 32, self.token(role, "*"))
            SmallStager(client, now_ms=self.now_ms).stage(lambda: table_of(rows, names), to)

    def stage(
        self,
        client: StewardClient,
        attempt: AttemptView,
        rows: Sequence[Row],
        names: Sequence[str] = SCHEMA.names,
    ) -> None:
        """Stage rows on the attempt's branch, with the attempt's token."""
        token = client.attempt_token(attempt.attempt_id).token
        to = self._destination(
            "sales.orders",
            attempt.branch,
            attempt.prefix,
            attempt.workload_id,
            attempt.chunk_id,
            attempt.attempt_id,
            token,
        )
        SmallStager(client, now_ms=self.now_ms).stage(lambda: table_of(rows, names), to)

    def attempt(
        self, client: StewardClient, workload_id: str = "run-1", **parameters: str
    ) -> tuple[ChunkView, AttemptView]:
        """Open a workload and an attempt at its first chunk; returns both."""
        client.open_workload(workload_id, "sales.orders", parameters)
        chunk = client.chunks(workload_id)[0]
        return chunk, open_attempt(client, workload_id, chunk.chunk_id, REASON)

    def refs(self) -> dict[str, int]:
        """The snapshot ids of the target's branches by name."""
        refs = self.scene.table_state("orders", SALES).metadata.refs
        return {name: ref.snapshot_id for name, ref in refs.items()}

    def now_ms(self) -> int:
        """The time of the Steward's clock in milliseconds."""
        return self.served.stand.time.wall // 1_000

    def _destination(
        self,
        table: str,
        branch: str,
        prefix: str,
        workload_id: str,
        chunk_id: str,
        attempt_id: str,
        token: AccessToken,
    ) -> Destination:
        return Destination(self.url, table, branch, prefix, workload_id, chunk_id, attempt_id, token, Operation.APPEND)


def without_jobs(line: Line) -> Line:
    """Stop the Steward's jobs. Each call that begins a plan then makes the plan itself."""
    line.notary.jobs.stop()
    planner = line.notary.workloads.planner
    planner.begin = lambda wanted: planner.run(wanted.workload_id)
    return line


@contextlib.contextmanager
def line_at(
    folder: Path,
    *,
    rows: Sequence[Row] = ROWS,
    changed: Callable[[StewardConfig], StewardConfig] = lambda config: config,
    ledger_url: str | None = None,
) -> Iterator[Line]:
    """A Steward in this folder, with the source and the unprotected target."""
    folder = folder.resolve()
    catalog = on_test_store(with_catalog(folder))
    with served(folder, changed=lambda config: changed(catalog(config)), ledger_url=ledger_url) as running:
        scene = Scene(running.stand)
        for levels, domain in ((RAW, "sales"), (SALES, "sales"), (("risk",), "risk")):
            scene.notary.catalog.namespaces.create(scene.grant(), levels, {"pvdm.domain": domain})
        scene.make(levels=RAW)
        scene.make(levels=SALES)
        line = Line(running, scene)
        if rows:
            line.write(rows)
        yield line
