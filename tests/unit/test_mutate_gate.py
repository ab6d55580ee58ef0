"""The script that removes one check of the gate at a time (a mutation): it has a mutation for every check."""

from __future__ import annotations

import ast
import re

from tests.support.for_each import for_each
from tools.mutate_gate import MUTATIONS, ROOT, SOURCES, TESTS, Mutation, mutate


@for_each("mutation", MUTATIONS, ids=lambda mutation: mutation.check)
def test_a_mutation_changes_the_source_of_its_check(mutation: Mutation) -> None:
    original = (ROOT / SOURCES / mutation.file).read_text()
    assert mutate(original, mutation) != ast.unparse(ast.parse(original))


def test_every_numbered_check_except_13_and_15_has_a_mutation() -> None:
    numbers = {mutation.check.split()[0].rstrip(",") for mutation in MUTATIONS}
    assert {str(number) for number in (*range(1, 13), 14)} <= numbers


def test_every_numbered_function_of_the_gate_has_a_mutation() -> None:
    files = sorted((ROOT / SOURCES / "metadata" / "gate").glob("checks_*.py"))
    assert len(files) == 2
    trees = [ast.parse(path.read_text()) for path in files]
    names = {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}
    numbered = {name for name in names if name.startswith("check_")} - {"check_15_receipt"}
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
    names = sorted((node.lineno, node.attr) for node in ast.walk(gate) if isinstance(node, ast.Attribute))
    numbers = [name.split("_")[1] for _, name in names if re.fullmatch(r"check_\d+_\w+", name)]
    assert numbers == ["1", "2", "3", "2", "4", "6", "5", "7", "8", "9", "10", "11"]


def test_the_test_files_of_the_script_exist() -> None:
    assert {mutation.part for mutation in MUTATIONS} <= set(TESTS)
    assert [path for paths in TESTS.values() for path in paths if not (ROOT / path).is_file()] == []
