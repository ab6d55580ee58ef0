"""Joins the reports of the differential reading suite (tests/readers) into build/readers.json and prints its figures.

The suite lets several engines read the same Parquet files. Each report is about one kind of table, called a lane.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

REPORTS: Final = Path("build/readers")
OUT: Final = Path("build/readers.json")


def join(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """One report of all kinds of tables."""
    writers: Counter[str] = Counter()
    queries: Counter[str] = Counter()
    unreadable: Counter[str] = Counter()
    for report in reports:
        writers.update(report["writers"])
        queries.update(report["queries"])
        unreadable.update({engine: len(files) for engine, files in report["unreadable"].items()})
    return {
        "made": sum(report["made"] for report in reports),
        "accepted": sum(report["accepted"] for report in reports),
        "engines": sorted(queries),
        "differences": sum(report["differences"] for report in reports),
        "seeds": sorted({report["seed"] for report in reports}),
        "accepted_by_table": {report["lane"]: report["accepted"] for report in reports},
        "accepted_by_writer": dict(writers),
        "queries": dict(queries),
        "unreadable": dict(unreadable),
        "different_files": [line for report in reports for line in report["different_files"]],
        "unreadable_files": {report["lane"]: report["unreadable"] for report in reports},
    }


def main() -> int:
    """Write the joined report and print one line."""
    paths = sorted(REPORTS.glob("*.json"))
    if not paths:
        print("readers: no report; the suite did not run")
        return 0
    found = join([json.loads(path.read_text("utf-8")) for path in paths])
    OUT.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    print(
        f"readers: {found['made']} files made, {found['accepted']} accepted and read by {len(found['engines'])} readers"
        f" ({', '.join(found['engines'])}), {found['differences']} differences, "
        f"{sum(found['unreadable'].values())} that an engine cannot read"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
