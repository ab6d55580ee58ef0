"""Faults of a deployment: `pvdm run` ends with the exit code of docs/operations.md, and continues after the fault."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from pvdm import Chunk
from pvdm.api.work import AttemptView
from pvdm.cli import main
from pvdm.client import Retries, StewardClient
from pvdm.client.table import TableClient
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.stores import health
from pvdm.model.role import Role
from pvdm.steward.server import start
from tests.support import fault
from tests.support.catalog.core import request
from tests.support.catalog.upstream import upstream_at
from tests.support.servers.starter import SERVE, Starter, running_starter, wait_for_address
from tests.support.small_disk import SmallDisk, small_disk_on
from tests.support.steward.http import Served
from tests.support.steward.notary import RealTime
from tests.support.steward.shop import ROWS, Shop, contract, read_rows, shop_at, shop_over, table_of
from tests.support.waiting import eventually

SORTED = sorted(ROWS, key=repr)
JOB = "failure_state_jobs"


def honest(_spark: object, _chunk: Chunk) -> pa.Table:
    return table_of(ROWS)


@dataclass(slots=True)
class Terminal:
    """Commands of a producer, with a token that was issued before the fault."""

    url: str
    token_file: Path

    def pvdm(self, *words: str) -> tuple[int, str]:
        """Run a command. Returns its exit code and its output."""
        output = io.StringIO()
        reach = ["--url", self.url, "--token-file", str(self.token_file)]
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = main([*words, *reach])
        return code, output.getvalue()

    def run(self, table: str, *more: str) -> tuple[int, str]:
        """Run the workload of the table. Returns the exit code, and the error's code or else the outcome."""
        code, output = self.pvdm(
            "run", table, "--workload-id", f"w-{table}", "--small", "--job", f"{JOB}:build", "--json", *more
        )
        document = json.loads(output[output.index("{") :])
        return code, document.get("error", {}).get("reason") or document["outcome"]

    def status(self, table: str) -> str:
        """What `pvdm status` shows of the workload."""
        code, output = self.pvdm("status", "--workload-id", f"w-{table}")
        assert code == 0, output
        return output


@pytest.fixture(autouse=True)
def shorten_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run give up within seconds if the Steward does not answer."""
    retries = Retries(tries=2, restart_seconds=1)
    monkeypatch.setattr("pvdm.client.StewardClient", functools.partial(StewardClient, retries=retries))
    monkeypatch.setattr("pvdm.durable.run.PROBLEM_TRIES", 2)
    monkeypatch.setattr("pvdm.durable.run.WAIT_SECONDS", 1.0)
    monkeypatch.setattr(health, "_RESULT_SECONDS", 0.0)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the job `build`, which returns the correct rows until a test replaces it."""
    module: Any = types.ModuleType(JOB)
    module.build = honest
    monkeypatch.setitem(sys.modules, JOB, module)
    return module


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


class Moment(StrEnum):
    """When the fault happens."""

    BEFORE = "before the run"
    STAGING = "while a chunk is staged"
    HANDED_IN = "after the hand-in"


@contextlib.contextmanager
def fault_at(moment: Moment, jobs: Any, strike: Callable[[], object]) -> Iterator[None]:
    """Call `strike` at this moment of a run in the block."""
    hand_in = StewardClient.staged

    def strike_and_build(_spark: object, _chunk: Chunk) -> pa.Table:
        strike()
        return table_of(ROWS)

    def hand_in_and_strike(client: StewardClient, attempt_id: str) -> AttemptView:
        attempt = hand_in(client, attempt_id)
        strike()
        return attempt

    with pytest.MonkeyPatch.context() as patch:
        match moment:
            case Moment.BEFORE:
                strike()
            case Moment.STAGING:
                patch.setattr(jobs, "build", strike_and_build)
            case Moment.HANDED_IN:
                patch.setattr(StewardClient, "staged", hand_in_and_strike)
        yield


def open_terminal(shop: Shop) -> Terminal:
    token_file = shop.folder / "job.token"
    shop.steward.write_token(token_file, Role.PRODUCER, "sales")
    return Terminal(shop.steward.url, token_file)


# A disk that is full or read-only


@dataclass(frozen=True, slots=True)
class DiskFault:
    """A fault of the disk under a folder of the Steward, and what `pvdm run` and `pvdm status` then show."""

    folder: str
    read_only: bool
    error: str
    state: str
    attempts: int  # how many attempts the workload has in the end

    def __str__(self) -> str:
        return f"{self.folder}-{'read-only' if self.read_only else 'full'}"

    def strike(self, disk: SmallDisk) -> None:
        (disk.make_read_only if self.read_only else disk.fill)()

    def heal(self, disk: SmallDisk) -> None:
        (disk.make_writable if self.read_only else disk.make_room)()


DISK_FAULTS = (
    DiskFault("warehouse", False, "staging_unavailable", "ROLLED_BACK", 2),
    DiskFault("warehouse", True, "staging_unavailable", "ROLLED_BACK", 2),
    DiskFault("vault", False, "vault_unavailable", "VERIFYING", 1),
    DiskFault("catalog", True, "metadata_files_unavailable", "ROLLED_BACK", 2),
)


@pytest.mark.parametrize("fault", DISK_FAULTS, ids=str)
def test_a_run_ends_with_7_if_a_folder_cannot_be_written(shop: Shop, jobs: Any, fault: DiskFault) -> None:
    table, terminal = shop.target(str(fault).replace("-", "_")), open_terminal(shop)
    assert shop.visible_rows(table) == []
    with small_disk_on(shop.steward.folder / fault.folder) as disk:
        fault.strike(disk)
        assert terminal.run(table) == (7, fault.error)
        status = terminal.status(table)
        assert fault.state in status
        assert ("Read-only file system" if fault.read_only else "No space left on device") in status
        assert shop.visible_rows(table) == []
        fault.heal(disk)
        assert terminal.run(table) == (0, "COMMITTED")
        assert shop.visible_rows(table) == SORTED
        with shop.client() as client:
            assert len(client.workload(f"w-{table}").attempts) == fault.attempts


@pytest.mark.parametrize(
    ("moment", "error"), [(Moment.BEFORE, "ledger_unreachable"), (Moment.STAGING, "attempt_left_staging")]
)
def test_a_run_ends_with_7_if_the_disk_of_the_whole_steward_is_full(
    tmp_path: Path, jobs: Any, moment: Moment, error: str
) -> None:
    with small_disk_on(tmp_path / "steward") as disk, shop_at(tmp_path) as shop:
        table, terminal = shop.target("orders"), open_terminal(shop)
        with fault_at(moment, jobs, disk.fill):
            assert terminal.run(table) == (7, error)
        assert httpx.get(f"{shop.steward.url}/readyz", trust_env=False).status_code == 503
        if moment is Moment.STAGING:
            assert "STAGING" in terminal.status(table)
        disk.make_room()
        assert shop.visible_rows(table) == []
        assert terminal.run(table) == (0, "COMMITTED")
        assert shop.visible_rows(table) == SORTED


# A Steward that is dead


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    with running_starter(tmp_path_factory.mktemp("starter")) as made:
        yield made


class ServedSteward:
    """`pvdm steward serve` as a process, at the same address after each start."""

    def __init__(self, config: Path, starter: Starter) -> None:
        self._config, self._starter, self._starts = config, starter, 0
        self.url = self.start()
        text, port = config.read_text("utf-8"), self.url.rpartition(":")[2]
        config.write_text(text.replace("port = 0", f"port = {port}"), "utf-8")

    def start(self) -> str:
        """Start the process; returns its address."""
        self._starts += 1
        log = self._config.with_name(f"serve-{self._starts}.log")
        self._process = self._starter.start(SERVE, str(self._config), log=log)
        return wait_for_address(self._process, log)

    def kill(self) -> None:
        self._process.kill()

    def issue_token(self, role: Role) -> Path:
        """Issue a token of this role. Returns its file."""
        path = self._config.with_name(f"{role.value}.token")
        words = ["steward", "token", "issue", "--config", str(self._config), "--role", role.value, "--domain", "sales"]
        assert main([*words, "--name", "a job", "--out", str(path)]) == 0
        return path


@pytest.fixture
def served(tmp_path: Path, starter: Starter) -> Iterator[ServedSteward]:
    """A Steward with the protected table `sales.orders`."""
    with shop_at(tmp_path) as shop:
        shop.target("orders")
    steward = ServedSteward(shop.steward.config, starter)
    yield steward
    steward.kill()


@pytest.mark.parametrize(
    ("moment", "error"), [(Moment.STAGING, "attempt_left_staging"), (Moment.HANDED_IN, "steward_unreachable")]
)
def test_a_run_ends_with_7_if_the_steward_is_killed(
    served: ServedSteward, jobs: Any, moment: Moment, error: str
) -> None:
    table, terminal = "sales.orders", Terminal(served.url, served.issue_token(Role.PRODUCER))
    with fault_at(moment, jobs, served.kill):
        assert terminal.run(table) == (7, error)
    assert terminal.pvdm("status", "--workload-id", f"w-{table}")[0] == 7
    served.start()
    with StewardClient(served.url, token_file=served.issue_token(Role.CONSUMER)) as consumer:
        target = TableClient(consumer, ("sales",), "orders")
        if moment is Moment.HANDED_IN:
            assert eventually(lambda: "COMMITTED" in terminal.status(table))  # the Steward continues without a run
        else:
            assert "STAGING" in terminal.status(table)
            assert read_rows(TableMetadata.from_json(target.load())) == []
        assert terminal.run(table) == (0, "COMMITTED")
        assert read_rows(TableMetadata.from_json(target.load())) == SORTED


# A catalog that cannot be reached


@pytest.mark.parametrize(
    ("moment", "state"),
    [(Moment.BEFORE, None), (Moment.STAGING, "ROLLED_BACK"), (Moment.HANDED_IN, "the Steward cannot continue")],
)
def test_a_run_ends_with_7_if_the_upstream_refuses_connections(
    tmp_path: Path, jobs: Any, moment: Moment, state: str | None
) -> None:
    folder = tmp_path / "upstream"
    folder.mkdir()
    with upstream_at(folder, clock=RealTime()) as upstream, shop_over(tmp_path, _set_up(upstream, folder)) as shop:
        shop.protect(contract("up.orders"))
        terminal = open_terminal(shop)
        strike = fault_at(moment, jobs, upstream.server.stop)
        if moment is Moment.HANDED_IN:  # a strike after the hand-in could come too late
            strike = fault.armed("verify.after_proof", fault.Call(upstream.server.stop))
        with strike:
            code, reason = terminal.run("up.orders")
            # `upstream_unknown`: the server may have received a request just before it stopped.
            assert (code, reason) in {(7, "upstream_unavailable"), (7, "upstream_unknown")}
        if state is not None:
            assert state in terminal.status("up.orders")
        stand, port = upstream.stand, int(upstream.server.url.rpartition(":")[2])
        config = replace(stand.config, service=replace(stand.config.service, port=port))
        assert stand.notary.catalog.states.get(("sales",), "orders").metadata.current_snapshot is None
        with start(replace(stand.notary, config=config)):
            assert terminal.run("up.orders") == (0, "COMMITTED")
            assert shop.visible_rows("up.orders") == SORTED


def _set_up(upstream: Served, folder: Path) -> str:
    """Create the table `sales.orders` in the upstream. Returns the lines of [[catalog.upstreams]] for it."""
    stand, token_file = upstream.stand, folder / "other.token"
    stand.notary.catalog.namespaces.create(stand.grant(), ("sales",), {"pvdm.domain": "sales"})
    stand.notary.catalog.tables.create(stand.grant(), ("sales",), {"name": "orders", **request(2)})
    token_file.write_text(stand.token()[0])
    token_file.chmod(0o600)
    return f'name = "other"\nthere = ["sales"]\nuri = "{upstream.server.url}/catalog"\ntoken_file = "{token_file}"'
