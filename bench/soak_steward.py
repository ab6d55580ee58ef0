"""A Steward for the soak benchmark: made in a folder, then served by `pvdm steward serve` as a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import pvdm
from pvdm.client import AccessToken, StewardClient
from pvdm.model.role import Role
from pvdm.steward.embedded.embedded import Person
from pvdm.steward.notary import open_notary
from pvdm.trust.keys.operator import create_key_pair
from pvdm.trust.root import RootRole
from tests.support.steward.load import wait_for_address
from tests.support.steward.shop import COLUMNS, Shop

TABLE: Final = "sales.orders"
ROWS_A_WORKLOAD: Final = 6
START_SECONDS: Final = 60
STOP_SECONDS: Final = 60
TOKEN_SECONDS: Final = 24 * 3600
ROOT: Final = Path(__file__).parents[1]
_FIRST_DAY: Final = date(2026, 1, 1)
_COMMAND: Final = "import sys; from pvdm.cli import main; sys.exit(main(sys.argv[1:]))"
_TOWNS: Final = ("Ulm", "Bonn", None, "Kiel", "Jena", "Trier")


@dataclass(frozen=True, slots=True)
class Use:
    """What a process has used up to now: processor seconds, bytes that it wrote to files, memory."""

    cpu_seconds: float
    written_bytes: int
    rss_bytes: int

    @classmethod
    def read(cls, process: int | str = "self") -> Use:
        """Read the figures of a process from `/proc`."""
        place = Path("/proc") / str(process)
        fields = (place / "stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        wrote = next(line for line in (place / "io").read_text().splitlines() if line.startswith("wchar:"))
        resident = int((place / "statm").read_text().split()[1])
        return cls(ticks / os.sysconf("SC_CLK_TCK"), int(wrote.split()[1]), resident * os.sysconf("SC_PAGE_SIZE"))


@dataclass(frozen=True, slots=True)
class Served:
    """A Steward that runs, and what its clients need."""

    folder: Path
    url: str
    process: int
    tokens: tuple[AccessToken, ...]

    def client(self, producer: int = 0) -> StewardClient:
        """The client of one of the producers."""
        return StewardClient(self.url, self.tokens[producer])

    def use(self) -> Use:
        """What the Steward's process has used."""
        return Use.read(self.process)

    def metadata_bytes(self) -> int:
        """Everything that is kept beside data files: metadata files, manifest lists and manifests."""
        found = 0
        for folder, _, names in os.walk(self.folder):  # what the Steward removes meanwhile is passed over
            for name in names:
                if name.endswith((".json", ".avro")):
                    with contextlib.suppress(FileNotFoundError):
                        found += (Path(folder) / name).stat().st_size
        return found


def rows_of(workload: int) -> pa.Table:
    """The rows of one workload: a day of its own."""
    first = workload * ROWS_A_WORKLOAD
    day = _FIRST_DAY + timedelta(days=workload)
    columns: list[Any] = [
        pa.array(range(first, first + ROWS_A_WORKLOAD), pa.int64()),
        pa.array([day] * ROWS_A_WORKLOAD, pa.date32()),
        pa.array(_TOWNS, pa.string()),
    ]
    return pa.Table.from_arrays(columns, names=[name for name, _ in COLUMNS])


def day_of(workload: int) -> str:
    """The day that the workload publishes."""
    return (_FIRST_DAY + timedelta(days=workload)).isoformat()


def _retention(snapshots: int) -> dict[str, str]:
    """The table's properties, as `Shop.make` spells them: `_` for a dot, `__` for a dash."""
    return {"history_expire_min__snapshots__to__keep": str(snapshots), "history_expire_max__snapshot__age__ms": "1"}


def _contract() -> str:
    return (
        "apiVersion: pvdm/v1\nkind: DataProduct\n"
        "metadata:\n  domain: sales\n  product: orders\n  owner: sales@example.com\n"
        "parameters:\n  day: {type: date}\n"
        f"boundary:\n  source: {{table: raw.orders}}\n  where: day = ${{day}}\n  target: {TABLE}\n"
        "  operation: append\n  claim: {column: day}\nprojections:\n  identity: [id]\n"
    )


def _config(ledger: str, home: Path) -> str:
    """A Steward on local files, with the limits that it has by default."""
    return (
        f'notary = "soak"\norigin = "soak/log"\nledger = {json.dumps(ledger)}\n'
        'outside = "outside/soak.checkpoint"\nisolation = "process"\n\n'
        '[keys]\nhome = "file"\npath = "keystore.json"\n\n'
        '[service]\nhost = "127.0.0.1"\nport = 0\n'
        f'[catalog]\nwarehouse = "file://{home}/warehouse"\nmetadata = "metadata"\n'
    )


def _make(
    folder: Path, ledger: str, workloads: int, producers: int, snapshots_kept: int | None
) -> tuple[AccessToken, ...]:
    """Source and protected target; gives the producers' tokens, which outlive the making."""
    home = folder / "steward"
    home.mkdir(mode=0o700)
    (home / "steward.toml").write_text(_config(ledger, home))
    (home / "steward.toml").chmod(0o600)
    (home / "outside").mkdir(mode=0o700)
    key = folder / "tom.pem"
    create_key_pair(key)
    tom = Person.from_file("tom", RootRole.OPERATOR, key.with_name("tom.pem.pub"))
    with pvdm.Steward.embedded(home, people=[tom]) as steward:
        shop = Shop(steward, folder, key)
        shop.space("raw")
        shop.space("sales")
        shop.make("raw.orders")
        shop.write_table(pa.concat_tables(rows_of(each) for each in range(workloads)), "raw.orders")
        properties: dict[str, Any] = {} if snapshots_kept is None else _retention(snapshots_kept)
        shop.make(TABLE, **properties)
        shop.protect(_contract())
        config = steward.notary.config
    with contextlib.closing(open_notary(config)) as notary:
        issued = [
            notary.access.issue(Role.PRODUCER, domain="sales", name=f"job-{number}", lifetime_seconds=TOKEN_SECONDS)
            for number in range(producers)
        ]
    return tuple(AccessToken(token.reveal()) for token, _ in issued)


@contextlib.contextmanager
def served(
    folder: Path,
    *,
    workloads: int,
    producers: int = 1,
    ledger: str = "sqlite:///ledger.sqlite",
    snapshots_kept: int | None = None,
) -> Iterator[Served]:
    """A Steward whose source has the rows of so many workloads, and whose target keeps so many snapshots, or all."""
    tokens = _make(folder, ledger, workloads, producers, snapshots_kept)
    home, lines = folder / "steward", folder / "steward.log"
    command = [sys.executable, "-c", _COMMAND, "steward", "serve", "--config", str(home / "steward.toml")]
    with lines.open("wb") as out, subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out) as process:
        try:
            yield Served(home, wait_for_address(lines, process), process.pid, tokens)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
