"""The script that takes the gate's checks out finds every one of them, and leaves none out."""

from __future__ import annotations

import ast

from tests.support.for_each import for_each
from tools.mutate_gate import MUTATIONS, ROOM, ROOT, TESTS, Mutation, mutated


@for_each("mutation", MUTATIONS, ids=lambda mutation: mutation.check)
def test_a_check_is_found_and_taken_out(mutation: Mutation) -> None:
    whole = (ROOT / ROOM / mutation.file).read_text()
    assert mutated(whole, mutation) != ast.unparse(ast.parse(whole))


def test_every_numbered_check_but_the_writing_ones_is_taken_out() -> None:
    numbers = {mutation.check.split()[0].rstrip(",") for mutation in MUTATIONS}
    assert {str(number) for number in (*range(1, 13), 14)} <= numbers


def test_every_numbered_function_of_the_gate_is_taken_out() -> None:
    files = sorted((ROOT / ROOM / "metadata").glob("checks_*.py"))
    trees = [ast.parse(path.read_text()) for path in files]
    named = {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert {name for name in named if name.startswith("check_")} <= {mutation.function for mutation in MUTATIONS}


def test_the_tests_that_are_run_are_there() -> None:
    assert {mutation.part for mutation in MUTATIONS} <= set(TESTS)
    assert [path for paths in TESTS.values() for path in paths if not (ROOT / path).is_file()] == []
