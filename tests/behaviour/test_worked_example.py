"""docs/worked-example.md shows the output of `examples/worked_example`, and the Steward's records agree with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import pvdm
from pvdm.client.table import TableClient
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.model.role import Role
from pvdm.steward.embedded.development import DevelopmentSteward

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- worked-example:begin -->\n```console\n(.*?)```\n<!-- worked-example:end -->", re.DOTALL)
DIFFERS_BY_RUN = re.compile(
    r"\bfile://\S+"
    r"|\b(?:[0-9a-f]{64}|[0-9a-f]{32})\b"  # hashes and ids
    r"|(?<=\bsnapshot )\d+"
    r"|\b20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}Z"
)
FIRST, SECOND, THIRD = (f"orders-2026-11-{day}" for day in (13, 14, 15))


def to_page_text(output: str) -> str:
    """The output as the page shows it: without progress, and with `…` for what differs from run to run."""
    lines = (line for line in output.splitlines(keepends=True) if not line.startswith("["))
    return DIFFERS_BY_RUN.sub("…", "".join(lines))


@dataclass(slots=True)
class ExampleRun:
    output: str
    steward: DevelopmentSteward

    def states(self, workload_id: str) -> dict[str, list[str]]:
        """The states of every attempt at each chunk."""
        found: dict[str, list[str]] = {}
        for each in sorted(self.steward.workload(workload_id).attempts, key=lambda attempt: attempt.number):
            found.setdefault(each.chunk_id, []).append(each.state.value)
        return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExampleRun]:
    """Run the example in a separate process, as readers do; then open its Steward again."""
    folder = tmp_path_factory.mktemp("example")
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "worked_example" / "run.py"), str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    with pvdm.Steward.development(folder / "steward") as steward:
        yield ExampleRun(done.stdout, steward)


def test_the_page_shows_what_the_example_prints(run: ExampleRun) -> None:
    block = BLOCK.search((ROOT / "docs" / "worked-example.md").read_text("utf-8"))
    assert block is not None
    command, _, shown = block[1].partition("\n")
    assert command == "$ python examples/worked_example/run.py"
    assert to_page_text(run.output) == shown


def test_each_command_ends_with_the_exit_code_of_its_outcome(run: ExampleRun) -> None:
    commands = re.findall(r"^\$ pvdm (\w+).*?^exit code (\d)$", run.output, re.MULTILINE | re.DOTALL)
    ends = [(name, code) for name, code in commands if name != "status"]
    assert ends == [("run", "0"), ("run", "3"), ("run", "0"), ("repair", "3"), ("repair", "0"), ("run", "0")]
    assert run.output.count("notice: segment 1 ended") == run.output.count("notice: segment ") == 1


def test_only_chunks_that_failed_or_were_rolled_back_have_a_second_attempt(run: ExampleRun) -> None:
    once = ["COMMITTED"]
    clean = dict.fromkeys(("region=north", "region=south", "region=west"), once)
    assert run.states(FIRST) == clean
    assert run.states(SECOND) == clean | {
        "region=north": ["VERIFICATION_FAILED", "COMMITTED"],  # the six dropped rows
        "region=south": ["VERIFICATION_FAILED", "COMMITTED"],  # the chunk that was written twice
    }
    assert run.states(THIRD) == clean | {"region=south": ["ROLLED_BACK", "COMMITTED"]}


def test_each_order_is_published_once_and_no_snapshot_shows_a_part_of_a_day(run: ExampleRun) -> None:
    orders = run.steward.read("curated.orders")
    assert orders.sort_by("order_id").equals(run.steward.read("raw.orders").sort_by("order_id"))
    with run.steward.as_role(Role.CONSUMER) as consumer:
        metadata = TableMetadata.from_json(TableClient(consumer, ("curated",), "orders").load())
    snapshots = sorted(metadata.snapshots, key=lambda each: each.sequence_number)
    assert [run.steward.read("curated.orders", each.snapshot_id).num_rows for each in snapshots] == [900, 1_800, 2_700]
