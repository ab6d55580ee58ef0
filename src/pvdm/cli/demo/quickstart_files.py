"""The files that `pvdm quickstart` writes: a contract, a job and a notebook, which run as they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

CONTRACT: Final = """\
# Which rows of raw.orders belong in sales.orders. Every key is in docs/contract.md.
apiVersion: pvdm/v1
kind: DataProduct
metadata:
  domain: sales
  product: orders
  owner: you@example.com
parameters:
  day: {type: date}
boundary:
  source: {table: raw.orders}
  where: day = ${day}
  target: sales.orders
  operation: append
  claim: {column: day}          # a day can be published once only
projections:
  identity: [order_id]          # the key that reports name; every column is compared
governance:
  sample-keys: [producer, operator, auditor]
"""

JOB: Final = '''\
"""Publish one day of orders: python job.py 2026-11-15"""

import sys
from datetime import date
from pathlib import Path

import pyarrow.compute as pc

import pvdm

FOLDER = Path(__file__).parent


def build(_spark, chunk):
    """Return the rows of one day. The Steward compares them with the rows that orders.yaml selects."""
    orders = steward.read("raw.orders", chunk.source_snapshot_id)
    return orders.filter(pc.field("day") == date.fromisoformat(chunk.parameters["day"]))


day = sys.argv[1] if len(sys.argv) > 1 else "2026-11-15"
with pvdm.Steward.development(FOLDER / "steward") as steward, pvdm.Coordinator(steward) as coordinator:
    steward.protect(FOLDER / "orders.yaml")  # does nothing unless orders.yaml was edited
    outcome = coordinator.execute_workload(f"orders-{day}", build, table="sales.orders", day=day)
    if isinstance(outcome, pvdm.VerificationFailed) and outcome.before:
        outcome = coordinator.repair(f"orders-{day}", build, reason="the wrong filter is removed")
    print(outcome)
sys.exit(outcome.exit_code)
'''

_CELLS: Final = (
    (
        "markdown",
        "# pvdm: the first protected table\n\n"
        "`pvdm quickstart` created the tables `raw.orders` and `sales.orders` in this folder. "
        "`sales.orders` is protected by the contract in `orders.yaml`. Run the cells in order.",
    ),
    (
        "code",
        "from datetime import date\n\nimport pyarrow.compute as pc\n\nimport pvdm\n\n"
        'steward = pvdm.Steward.development("steward")\nsteward.read("raw.orders").to_pylist()',
    ),
    ("markdown", "A job returns the rows of one day. The Steward reads the staged files and compares them."),
    (
        "code",
        "def build(_spark, chunk):\n"
        '    orders = steward.read("raw.orders", chunk.source_snapshot_id)\n'
        '    return orders.filter(pc.field("day") == date.fromisoformat(chunk.parameters["day"]))\n\n\n'
        "coordinator = pvdm.Coordinator(steward)\n"
        'print(coordinator.execute_workload("orders-2026-11-16", build, table="sales.orders", day="2026-11-16"))',
    ),
    ("markdown", "A wrong filter ends without an error, and nothing is published."),
    (
        "code",
        "def wrong(spark, chunk):\n"
        '    return build(spark, chunk).filter(pc.field("order_id") > 9)\n\n\n'
        'print(coordinator.execute_workload("orders-2026-11-17", wrong, table="sales.orders", day="2026-11-17"))',
    ),
    ("markdown", "Writing to the table directly is refused."),
    (
        "code",
        'try:\n    steward.append("sales.orders", steward.read("raw.orders"))\n'
        "except pvdm.errors.NotAllowedError as error:\n    print(error)",
    ),
    ("markdown", "The correct job repairs the day. A repair needs a reason, which is kept."),
    (
        "code",
        'print(coordinator.repair("orders-2026-11-17", build, reason="the wrong filter is removed"))\n'
        'steward.read("sales.orders").sort_by("order_id").to_pylist()',
    ),
    ("markdown", "Close the Steward, so that `job.py` can use the folder."),
    ("code", "coordinator.close()\nsteward.close()"),
)


def notebook(cells: Sequence[tuple[str, str]] = _CELLS) -> str:
    """The notebook in Jupyter's format 4.5."""
    made = []
    for number, (kind, text) in enumerate(cells, 1):
        cell: dict[str, object] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        cell["source"] = text.splitlines(keepends=True)
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        made.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(document, indent=1) + "\n"


FILES: Final = {
    "orders.yaml": (CONTRACT, "the contract: which rows of raw.orders belong in sales.orders"),
    "job.py": (JOB, "a job that publishes one day"),
    "notebook.ipynb": (notebook(), "the same steps in a notebook"),
}
"""Each file with its text and what it is for."""
