"""A Steward for the soak benchmark: created in a folder, then run by `pvdm steward serve` as a separate process."""

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
from pvdm.trust.keys.pem import create_key_pair
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
class ProcessUsage:
    """What a process has used up to now: processor seconds, bytes written to files, and its memory at the moment."""

    cpu_seconds: float
    written_bytes: int
    rss_bytes: int

    @classmethod
    def read(cls, process: int | str = "self") -> ProcessUsage:
        """Read the figures of a process from `/proc`."""
        place = Path("/proc") / str(process)
        # The fields after the command's name; those at 11 and 12 are the user's and the system's ticks.
        fields = (place / "stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        wrote = next(line for line in (place / "io").read_text().splitlines() if line.startswith("wchar:"))
        resident = int((place / "statm").read_text().split()[1])
        return cls(ticks / os.sysconf("SC_CLK_TCK"), int(wrote.split()[1]), resident * os.sysconf("SC_PAGE_SIZE"))


@dataclass(frozen=True, slots=True)
class RunningSteward:
    """A Steward that runs, and the tokens of its producers."""

    folder: Path
    url: str
    process: int
    tokens: tuple[AccessToken, ...]

    def client(self, producer: int = 0) -> StewardClient:
        """The client of one of the producers."""
        return StewardClient(self.url, self.tokens[producer])

    def usage(self) -> ProcessUsage:
        """What the Steward's process has used up to now."""
        return ProcessUsage.read(self.process)

    def metadata_bytes(self) -> int:
        """The size of all metadata files, manifest lists and manifests."""
        found = 0
        for folder, _, names in os.walk(self.folder):  # files that the Steward removes meanwhile are ignored
            for name in names:
                if name.endswith((".json", ".avro")):
                    with contextlib.suppress(FileNotFoundError):
                        found += (Path(folder) / name).stat().st_size
        return found


def rows_of(workload: int) -> pa.Table:
    """The rows of one workload, which are all of one day."""
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
    """The configuration of a Steward on local files, with the default limits."""
    return (
        f'notary = "soak"\norigin = "soak/log"\nledger = {json.dumps(ledger)}\n'
        'outside = "outside/soak.checkpoint"\nisolation = "process"\n\n'
        '[keys]\nhome = "file"\npath = "keystore.json"\n\n'
        '[service]\nhost = "127.0.0.1"\nport = 0\n'
        f'[catalog]\nwarehouse = "file://{home}/warehouse"\nmetadata = "metadata"\n'
    )


def _create_steward(
    folder: Path, ledger: str, workloads: int, producers: int, snapshots_kept: int | None
) -> tuple[AccessToken, ...]:
    """Create the Steward, the source with its rows, and the protected target; returns the producers' tokens."""
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
        shop.write_table(pa.concat_tables(rows_of(workload) for workload in range(workloads)), "raw.orders")
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
def run_steward(
    folder: Path,
    *,
    workloads: int,
    producers: int = 1,
    ledger: str = "sqlite:///ledger.sqlite",
    snapshots_kept: int | None = None,
) -> Iterator[RunningSteward]:
    """Run a new Steward for the block; its target keeps `snapshots_kept` snapshots of `main` (None: all)."""
    tokens = _create_steward(folder, ledger, workloads, producers, snapshots_kept)
    home, lines = folder / "steward", folder / "steward.log"
    command = [sys.executable, "-c", _COMMAND, "steward", "serve", "--config", str(home / "steward.toml")]
    with lines.open("wb") as out, subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out) as process:
        try:
            yield RunningSteward(home, wait_for_address(lines, process), process.pid, tokens)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
