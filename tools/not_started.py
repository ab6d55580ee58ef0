"""Prints in one line what a test run could not start and why; with PVDM_REQUIRE_SERVICES=1 that is a failure."""

from __future__ import annotations

import os
import sys
import xml.etree.ElementTree as ET
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path


def count_skips(report: Path) -> Counter[str]:
    """How many tests a JUnit report shows as skipped, by reason; expected failures are not skips."""
    reasons: Counter[str] = Counter()
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - our own pytest wrote it a moment ago
        for skip in case.iter("skipped"):
            if skip.get("type") != "pytest.xfail":
                reasons[(skip.get("message") or "no reason given").strip()] += 1
    return reasons


def read_notices(pairs: list[str]) -> list[str]:
    """The first line of every notice file that exists, under its name; `pairs` are `name=path`."""
    found = []
    for pair in pairs:
        name, _, path = pair.partition("=")
        if Path(path).is_file():
            found.append(f"{name} ({Path(path).read_text().splitlines()[0]})")
    return found


def summary(parts: list[str]) -> str:
    """The line for these parts."""
    return "not started: " + "; ".join(parts) if parts else "not started: nothing, every part was tested"


def main(arguments: list[str]) -> int:
    """Print the summary; returns 1 if something that is required was not started."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--notice", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("reports", nargs="*", type=Path)
    options = parser.parse_args(arguments)
    parts = read_notices(options.notice)
    for report in options.reports:
        if not report.is_file():
            parts.append(f"{report} (no report was written)")
            continue
        parts += [f"{count} tests ({reason})" for reason, count in sorted(count_skips(report).items())]
    print(summary(parts))
    if parts and os.environ.get("PVDM_REQUIRE_SERVICES") == "1":
        print("PVDM_REQUIRE_SERVICES=1: everything must be started, so this run has failed")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
