"""The worked example of the paper (section 9): python examples/worked_example/run.py [FOLDER]."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import warnings
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa

import pvdm
from pvdm.cli import main as pvdm_command
from pvdm.errors import DevelopmentWarning
from pvdm.model.role import Role
from pvdm.steward.embedded.development import DevelopmentSteward

HERE = Path(__file__).parent
DAYS = ("2026-11-13", "2026-11-14", "2026-11-15")
REGIONS = ("north", "south", "west")
ORDERS_PER_CHUNK = 300
FIELDS: Any = {"order_id": pa.int64(), "day": pa.date32(), "region": pa.string(), "customer": pa.string()}
COLUMNS = pa.schema(FIELDS)


def make_orders() -> pa.Table:
    """Make orders of three days and three regions. On each day, six customers have a name that is not ASCII."""
    rows: list[tuple[object, ...]] = []
    for day in DAYS:
        for region in REGIONS:
            for number in range(ORDERS_PER_CHUNK):
                customer = "Jörg" if region == "north" and number % 50 == 0 else f"customer {number}"
                rows.append((len(rows) + 1, date.fromisoformat(day), region, customer))
    return pa.Table.from_pylist([dict(zip(COLUMNS.names, row, strict=True)) for row in rows], schema=COLUMNS)


def run(words: str) -> None:
    """Run a command of `pvdm`. Prints the command, its output and its exit code."""
    print(f"$ pvdm {words}", flush=True)
    print(f"exit code {pvdm_command(shlex.split(words))}")


def run_example(steward: DevelopmentSteward) -> None:
    """Run the four parts of the example, one after the other."""

    def show_visible_orders() -> None:
        print(f"consumers of curated.orders see {steward.read('curated.orders').num_rows:,} orders\n", flush=True)

    first, second, third = DAYS
    print("1. Clean run. The digests of intended and written rows are equal, and the day is published.")
    run(f"run curated.orders --workload-id orders-{first} --param day={first} --small --job jobs:backfill")
    show_visible_orders()

    print("2. Silent drop. A swallowed exception drops six rows, and the job ends without an error.")
    run(f"run curated.orders --workload-id orders-{second} --param day={second} --small --job jobs:swallow_errors")
    run(f"status --workload-id orders-{second}")
    show_visible_orders()

    print("3. Retry duplicate. A scheduler starts a run again that had ended; then a job writes a chunk twice.")
    run(f"run curated.orders --workload-id orders-{first} --param day={first} --small --job jobs:backfill")
    run(f"repair orders-{second} --reason 'the exception is handled' --small --job jobs:repeat_write")
    show_visible_orders()
    run(f"repair orders-{second} --reason 'the step writes once' --small --job jobs:backfill")
    show_visible_orders()

    print("4. Container clock. A segment stops near its limit and rolls back; the next segment does the rest.")
    clocks = "--segment-timeout 40s --rollback-threshold 10s"
    run(f"run curated.orders --workload-id orders-{third} --param day={third} --small --job jobs:slow_once {clocks}")
    run(f"status --workload-id orders-{third}")
    show_visible_orders()


def main(folder: Path) -> None:
    """Prepare a Steward and its tables in this folder, and run the example."""
    warnings.simplefilter("ignore", DevelopmentWarning)
    with pvdm.Steward.development(folder / "steward") as steward:
        steward.create_table("raw.orders", COLUMNS, partition_by=["region"])
        steward.create_table("curated.orders", COLUMNS, partition_by=["day"])
        steward.append("raw.orders", make_orders())
        steward.protect(HERE / "orders.yaml")
        os.environ |= {"PVDM_URL": steward.url, "PVDM_TOKEN": steward.token_for(Role.PRODUCER).text}
        os.chdir(folder)  # `slow_once` writes its marker file to the current folder
        run_example(steward)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]).absolute())
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
