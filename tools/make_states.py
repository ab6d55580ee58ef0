"""Writes the tables and diagrams of spec/states.md from `pvdm.model.states`."""

from __future__ import annotations

import sys
from pathlib import Path

from pvdm.model.states import MACHINES, Machine

PAGE = Path(__file__).parents[1] / "spec" / "states.md"

HEAD = """# States

Made by `python -m tools.make_states` from `src/pvdm/model/states.py`; a test compares. The same table becomes the
database's constraints (`tools/ledger_sql.py`) and the code's own check. Every step is one row update in one
transaction and leaves an event with the old and the new row. A state that no arrow leaves is terminal. A crash leaves
an attempt in the state it had.
"""


def page() -> str:
    """The whole document."""
    return "\n".join([HEAD, *(section(machine) for machine in MACHINES)])


def section(machine: Machine) -> str:
    """One machine: table, then diagram."""
    rows = [f"| {step.old} | {step.new} | {step.when} |" for step in machine.transitions]
    rows += [f"| {state} | – (terminal) | |" for state in machine.terminal()]
    lines = [
        f"## States of {_article(machine.name)} {machine.name}",
        "",
        "| from | to | when |",
        "| --- | --- | --- |",
        *rows,
        "",
        "```mermaid",
        "stateDiagram-v2",
        f"    [*] --> {machine.initial}",
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
