"""docs/limits.md lists every limit of the Python code with its value, and the kernel has the same values."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

from tests.support.for_each import for_each

ROOT = Path(__file__).parents[2]
LIMIT = re.compile(r"^[A-Z][A-Z0-9_]*_MAX(_[A-Z]+)?$")
ROW = re.compile(
    r"^\| (?P<what>[^|]+) \| (?P<value>[\d,]+) \| (?P<unit>[^|]+) \| `(?P<constant>[\w.]+)` \| (?P<codes>[^|]+) \|$"
)
RUST = re.compile(r"\bconst (?P<name>\w+_MAX(?:_\w+)?): \w+ = (?P<value>[^;]+);")


def rows() -> list[re.Match[str]]:
    return [match for line in (ROOT / "docs" / "limits.md").read_text().splitlines() if (match := ROW.match(line))]


def documented_limits() -> dict[str, int]:
    return {row["constant"]: int(row["value"].replace(",", "")) for row in rows()}


def limits_in_code() -> list[str]:
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and LIMIT.match(node.target.id):
                found.append(f"{module}.{node.target.id}")
    return found


def limits_in_kernel() -> list[tuple[str, str]]:
    text = "\n".join(path.read_text() for path in sorted((ROOT / "kernel" / "src").rglob("*.rs")))
    return [(match["name"], match["value"].replace("_", "")) for match in RUST.finditer(text)]


def test_every_limit_in_the_code_is_documented_and_no_other() -> None:
    assert sorted(documented_limits()) == sorted(limits_in_code())


@for_each("constant", sorted(documented_limits()))
def test_the_documented_value_is_the_one_in_the_code(constant: str) -> None:
    module, _, name = constant.rpartition(".")
    assert getattr(importlib.import_module(module), name) == documented_limits()[constant]


def test_a_limit_that_the_kernel_shares_has_the_same_value_there() -> None:
    shared = {constant.rpartition(".")[2]: str(value) for constant, value in documented_limits().items()}
    compared = [(name, value) for name, value in limits_in_kernel() if name in shared]
    assert compared
    assert compared == [(name, shared[name]) for name, _ in compared]


def test_every_error_code_of_a_limit_is_raised_somewhere() -> None:
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "kernel" / "src").rglob("*.rs")]
    sources = "\n".join(path.read_text() for path in files)
    codes = {code for row in rows() for code in re.findall(r"`([a-z_]+)`", row["codes"])}
    assert codes
    assert {code for code in codes if f'"{code}"' not in sources} == set()
