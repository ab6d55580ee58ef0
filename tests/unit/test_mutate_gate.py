"""The script that takes the gate's checks out finds every one of them, and leaves none out."""

from __future__ import annotations

import ast
import re

from tests.support.for_each import for_each
from tools.mutate_gate import MUTATIONS, ROOT, SOURCES, TESTS, Mutation, mutate


@for_each("mutation", MUTATIONS, ids=lambda mutation: mutation.check)
def test_a_check_is_found_and_taken_out(mutation: Mutation) -> None:
    original = (ROOT / SOURCES / mutation.file).read_text()
    assert mutate(original, mutation) != ast.unparse(ast.parse(original))


def test_every_numbered_check_but_the_writing_ones_is_taken_out() -> None:
    numbers = {mutation.check.split()[0].rstrip(",") for mutation in MUTATIONS}
    assert {str(number) for number in (*range(1, 13), 14)} <= numbers


def test_every_numbered_function_of_the_gate_is_taken_out() -> None:
    files = sorted((ROOT / SOURCES / "metadata" / "gate").glob("checks_*.py"))
    assert len(files) == 2
    trees = [ast.parse(path.read_text()) for path in files]
    named = {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}
    numbered = {name for name in named if name.startswith("check_")} - {"check_15_receipt"}
    assert numbered <= {mutation.function for mutation in MUTATIONS}


def test_every_numbered_function_of_the_gate_raises_with_its_own_number() -> None:
    for path in (ROOT / SOURCES / "metadata" / "gate").glob("checks_*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("check_"):
                number = node.name.split("_")[1]
                assert [ast.unparse(each) for each in node.decorator_list] == [f"check({number})"], node.name


def test_the_gate_runs_the_checks_in_the_order_that_its_specification_gives() -> None:
    """The calls of `validate_then_commit`, top to bottom, by their numbers."""
    tree = ast.parse((ROOT / SOURCES / "metadata" / "gate" / "gate.py").read_text())
    (gate,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "validate_then_commit")
    named = sorted((node.lineno, node.attr) for node in ast.walk(gate) if isinstance(node, ast.Attribute))
    numbers = [name.split("_")[1] for _, name in named if re.fullmatch(r"check_\d+_\w+", name)]
    assert numbers == ["1", "2", "3", "2", "4", "6", "5", "7", "8", "9", "10", "11"]


def test_the_tests_that_are_run_are_there() -> None:
    assert {mutation.part for mutation in MUTATIONS} <= set(TESTS)
    assert [path for paths in TESTS.values() for path in paths if not (ROOT / path).is_file()] == []
