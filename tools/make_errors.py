"""Writes `pvdm.errors.codes` and docs/errors.md from the registry of errors (`src/pvdm/errors/registry`)."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Final

from pvdm.errors.kinds import KINDS
from pvdm.errors.registry import Entry, load_section

ROOT: Final = Path(__file__).parents[1]
REGISTRY: Final = ROOT / "src" / "pvdm" / "errors" / "registry"
MODULE: Final = ROOT / "src" / "pvdm" / "errors" / "codes.py"
PAGE: Final = ROOT / "docs" / "errors.md"
HEAD: Final = Path(__file__).with_name("errors_head.md")
SECTIONS: Final = (
    "data",
    "commands",
    "statements",
    "keys",
    "log",
    "steward",
    "ledger",
    "iceberg",
    "catalog",
    "upstream",
    "protection",
    "contracts",
    "work",
    "verification",
    "gate",
    "audit",
)
"""The files of the registry, in the order of docs/errors.md."""


def sections() -> dict[str, dict[str, Entry]]:
    """The codes of every section of the registry, by the section's name."""
    files = {path.stem for path in REGISTRY.glob("*.toml")}
    if files != set(SECTIONS):
        raise SystemExit(f"the registry has the files {sorted(files)}, expected {sorted(SECTIONS)}")
    return {name: load_section(name) for name in SECTIONS}


def module() -> str:
    """The enumeration of all codes, one line each."""
    lines = [
        '"""Every error code; made by `python -m tools.make_errors` from the registry. Do not edit."""',
        "",
        "from pvdm.errors.code import RegisteredCode",
        "",
        "",
        "class Code(RegisteredCode):",
        '    """Every error code by its section."""',
        "",
    ]
    for name, entries in sections().items():
        lines += [f'    {code.upper()} = "{code}", "{name}"' for code in sorted(entries)]
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page of errors: one table for each section."""
    parts = [HEAD.read_text("utf-8").rstrip("\n")]
    for name, entries in sections().items():
        document = tomllib.loads((REGISTRY / f"{name}.toml").read_text("utf-8"))
        rows = [row for code, entry in sorted(entries.items()) for row in _rows(code, entry)]
        text = [document["text"], ""] if document["text"] else []
        head = ["| code | when, and what to do | exit code |", "| --- | --- | ---: |"]
        parts.append("\n".join([f"## {document['title']}", "", *text, *head, *rows]))
    return "\n\n".join(parts) + "\n"


def _rows(code: str, entry: Entry) -> list[str]:
    """One row for a code, then one for each of its reasons."""
    exits = ", ".join(str(KINDS[kind].exit_code) for kind in entry.kinds)
    reasons = [f"| — `{name}` | {reason.when} | |" for name, reason in sorted(entry.reasons.items())]
    return [f"| `{code}` | {entry.when} | {exits} |", *reasons]


def main() -> int:
    """Write both files."""
    MODULE.write_text(module(), "utf-8")
    PAGE.write_text(page(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
