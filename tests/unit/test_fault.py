"""Fault points do nothing unless they are armed, and registry, source and docs/fault-points.md name the same ones."""

from __future__ import annotations

import ast
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.fault import point
from tests.support import fault

ROOT = Path(__file__).parents[2]
NAME = "keys.after_make"
ROW = re.compile(r"^\| `([a-z_.]+)` \| (.+) \|$", re.MULTILINE)


def source_nodes() -> Iterator[tuple[Path, ast.AST]]:
    """The syntax nodes of every source module that contains the word `fault`."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        if re.search(r"\bfault\b", text := path.read_text()):
            yield from ((path, node) for node in ast.walk(ast.parse(text)))


def point_calls() -> list[ast.Call]:
    nodes = (node for _, node in source_nodes() if isinstance(node, ast.Call))
    return [node for node in nodes if ast.unparse(node.func) == "fault.point"]


def literal_name(call: ast.Call) -> str | None:
    match call.args:
        case [ast.Constant(value=str(name))]:
            return name
        case _:
            return None


def test_every_point_in_the_source_is_a_literal_name() -> None:
    assert [ast.unparse(call) for call in point_calls() if literal_name(call) is None] == []


def test_every_name_in_the_source_is_registered_and_every_registered_name_is_used() -> None:
    assert {literal_name(call) for call in point_calls()} == set(fault.POINTS)


def test_no_module_imports_a_name_from_the_fault_module() -> None:
    """`from pvdm.fault import point` would hide calls from the test above."""
    hidden = [
        str(path.relative_to(ROOT))
        for path, node in source_nodes()
        if isinstance(node, ast.ImportFrom) and node.module == "pvdm.fault"
    ]
    assert hidden == []


def test_the_document_lists_the_registry() -> None:
    assert ROW.findall((ROOT / "docs" / "fault-points.md").read_text()) == list(fault.POINTS.items())


def test_the_registry_is_sorted_by_name() -> None:
    assert list(fault.POINTS) == sorted(fault.POINTS)


def test_a_point_that_is_not_armed_does_nothing() -> None:
    with fault.armed("keys.disk.after_temp", fault.Raise(OSError("unplugged"))):
        point(NAME)


def test_an_armed_point_raises() -> None:
    with fault.armed(NAME, fault.Raise(OSError("unplugged"))), pytest.raises(OSError, match="unplugged"):
        point(NAME)


def test_an_armed_point_calls_its_function() -> None:
    seen: list[str] = []
    with fault.armed(NAME, fault.Call(lambda: seen.append("called"))):
        point(NAME)
    assert seen == ["called"]


def test_an_armed_point_ends_the_process_without_clean_up() -> None:
    program = (
        "from pvdm.fault import point\nfrom tests.support import fault\n"
        f"fault.arm({NAME!r}, fault.Exit())\n"
        "try:\n"
        f"    point({NAME!r})\n"
        "finally:\n"
        "    print('cleaned up', flush=True)\n"
    )
    process = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (fault.EXIT_CODE, "")


def test_a_process_ends_by_sigkill_at_the_ordered_point_only_and_removes_the_order(tmp_path: Path) -> None:
    order = tmp_path / "order"
    program = (
        "from pathlib import Path\nfrom pvdm.fault import point\nfrom tests.support import fault\n"
        f"order = Path({str(order)!r})\n"
        "fault.kill_on_order(order)\n"
        f"point({NAME!r})\norder.write_text({NAME!r})\n"
        f"point('ledger.after_commit')\nprint('still here', flush=True)\npoint({NAME!r})\nprint('too late')\n"
    )
    process = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (-signal.SIGKILL, "still here\n")
    assert not order.exists()


def test_a_point_acts_after_the_given_passes() -> None:
    with fault.armed(NAME, fault.Raise(OSError("unplugged")), passes=2):
        point(NAME)
        point(NAME)
        with pytest.raises(OSError, match="unplugged"):
            point(NAME)


def test_a_point_does_nothing_after_the_block() -> None:
    with fault.armed(NAME, fault.Raise(OSError("unplugged"))):
        pass
    point(NAME)


def test_an_unknown_name_cannot_be_armed() -> None:
    with pytest.raises(LookupError, match="no fault point"):
        fault.arm("no.such_point", fault.Exit())
