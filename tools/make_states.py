"""Writes the tables and diagrams of spec/states.md from `pvdm.model.states`."""

from __future__ import annotations

import sys
from pathlib import Path

from pvdm.model.states import MACHINES, Machine

PAGE = Path(__file__).parents[1] / "spec" / "states.md"

HEAD = """# States

Attempts, nonces, workloads and announced publications are rows of the ledger, the Steward's database. Their states
change by fixed steps. This page lists every state and every permitted step between two states. It is for operators who
look up a state that `pvdm status` shows, and for people who change the code.
[`docs/concepts.md`](../docs/concepts.md) explains the words. A *restore* brings the ledger back from a backup
([`docs/restore.md`](../docs/restore.md)).

A *handle* has states too, which this page does not list. It is a random id that each worker of a
verification, for example a Spark executor, exchanges for the keys ([`keys.md`](keys.md) section 5).

- Every step is one row update in one transaction. It leaves an event in the step log, with the old and the new row.
- A step that is not listed is refused, by the code and by triggers of the database.
- A state without a further step is terminal.
- A crash changes no state: an attempt stays in the state that it had.

`python -m tools.make_states` writes this page from `src/pvdm/model/states.py`, and a test compares the two.
`tools/ledger_sql.py` makes the triggers of the database from the same file.
"""

ABOUT = {
    "attempt": (
        "An attempt is one try at a chunk, on its own or an adopted branch. It begins when the ledger gets its row.\n\n"
        "An override concerns two attempts. The first attempt ends with a FAIL, which the override names. The second\n"
        "attempt stages the same files again, and its verdict is FAIL too. The override waives this second FAIL\n"
        "([`gate.md`](gate.md#5-break-glass))."
    ),
    "nonce": "A nonce is 128 random bits, valid for one publication, override, attestation or approval.",
    "workload": "A workload is one publication run of a contract, with all its chunks.",
    "announced publication": (
        "A publication to an upstream catalog is announced in the ledger before the request is sent\n"
        "([`docs/upstreams.md`](../docs/upstreams.md))."
    ),
}


def page() -> str:
    """The whole document."""
    return "\n".join([HEAD, *(section(machine) for machine in MACHINES)])


def section(machine: Machine) -> str:
    """The section of one machine: what has its states, their table, and a diagram of the steps."""
    rows = [f"| {step.old} | {step.new} | {step.when} |" for step in machine.transitions]
    rows += [f"| {state} | – (terminal) | |" for state in machine.terminal()]
    lines = [
        f"## States of {_article(machine.name)} {machine.name}",
        "",
        ABOUT[machine.name],
        "",
        "| from | to | when |",
        "| --- | --- | --- |",
        *rows,
        "",
        "```mermaid",
        "stateDiagram-v2",
        f"    [*] --> {machine.initial}",
        # An arrow shows the condition up to the first semicolon; the table has all of it.
        *(
            f"    {step.old} --> {step.new}: {step.when.partition(';')[0].replace('`', '')}"
            for step in machine.transitions
        ),
        *(f"    {state} --> [*]" for state in machine.terminal()),
        "```",
        "",
    ]
    return "\n".join(lines)


def _article(name: str) -> str:
    return "an" if name[0] in "aeiou" else "a"


def main() -> int:
    """Write the page."""
    PAGE.write_text(page())
    print(PAGE.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
