"""Records which tests and modules of a test run took longest, from the report that pytest writes."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from itertools import islice
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

SLOWEST: Final = 100
LEAST_SECONDS: Final = 4.0
"""Modules that took less are left out of durations.json: they need no place in the order of the next run."""


def module_of(classname: str) -> str:
    """The path of the module whose tests have this class name in the report, such as `tests.unit.test_x.TestY`."""
    parts = classname.split(".")
    module = next((at for at, part in enumerate(parts) if part.startswith("test_")), len(parts) - 1)
    return "/".join(parts[: module + 1]) + ".py"


def durations(report: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds by test and by module, set-up and tear-down included; the slowest first."""
    tests: defaultdict[str, float] = defaultdict(float)
    modules: defaultdict[str, float] = defaultdict(float)
    for case in ElementTree.parse(report).getroot().iter("testcase"):  # noqa: S314 - pytest's own
        module, seconds = module_of(case.attrib["classname"]), float(case.attrib["time"])
        tests[f"{module}::{case.attrib['name']}"] += seconds
        modules[module] += seconds
    return _slowest_first(tests), _slowest_first(modules)


def _slowest_first(seconds: dict[str, float]) -> dict[str, float]:
    return dict(sorted(seconds.items(), key=lambda item: item[1], reverse=True))


def main(report: Path) -> int:
    """Write durations.json, which orders the next run, and slowest.txt beside the report; without a report, nothing."""
    if not report.is_file():
        return 0
    tests, modules = durations(report)
    slow_modules = {name: round(seconds, 1) for name, seconds in modules.items() if seconds >= LEAST_SECONDS}
    report.with_name("durations.json").write_text(json.dumps(slow_modules, indent=1) + "\n", "utf-8")
    lines = [f"{sum(modules.values()):8.1f} s  of {len(tests)} tests in {len(modules)} modules, by all workers"]
    for listed in (modules, tests):
        lines += [f"{seconds:8.1f} s  {name}" for name, seconds in islice(listed.items(), SLOWEST)]
    report.with_name("slowest.txt").write_text("\n".join(lines) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
