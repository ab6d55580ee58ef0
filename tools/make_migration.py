"""Writes the SQL of the whole schema as migration 1; only until the first release, after which files are frozen."""

from __future__ import annotations

import sys
from pathlib import Path

from pvdm.ledger.migrations import SEPARATOR
from pvdm.ledger.schema.triggers import DIALECTS, statements

FOLDER = Path(__file__).parents[1] / "src" / "pvdm" / "ledger" / "migrations"


def main() -> int:
    """Write both files."""
    for dialect in DIALECTS:
        path = FOLDER / f"0001_ledger.{dialect}.sql"
        path.write_text(SEPARATOR.join(statements(dialect)) + "\n")
        print(path.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
