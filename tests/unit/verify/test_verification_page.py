"""docs/verification.md lists every finding of a verification with its class, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from pvdm.errors import Code
from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.observed import failure_class_of
from tests.unit.test_errors_doc import CODES, RUST, calls, is_registered, registered_kinds, sources

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "verification.md").read_text("utf-8")
ROWS = re.findall(r"^\| `(\w+)` \| `(\w+)` \| .+ \|$", PAGE, re.MULTILINE)
CLASSES = dict(ROWS)

# Functions that make a finding of a code that they are given.
FINDING_MAKERS = {"Finding", "_fault", "_wrong_claim", "_moved"}
# Errors that become findings, with the class they become; other errors of the Steward are no verdict.
BECOMING = {
    "lake/read/entries": FailureClass.METADATA,
    "verify/fetch": FailureClass.PHYSICAL,
    "verify/observed": FailureClass.METADATA,
    "verify/staged": FailureClass.METADATA,
}
# Modules that loop over a table of findings.
TABULATING = ("verify/observed", "verify/staged")
CODE = re.compile(r"[a-z0-9]+(_[a-z0-9]+)+")


def finding_codes() -> set[str]:
    """Patterns of the codes that the sources give to the functions that make findings."""
    return {
        pattern
        for where, call in calls()
        if where.startswith(("src/pvdm/verify/", "src/pvdm/steward/pipeline/"))
        and isinstance(call.func, ast.Name)
        and call.func.id in FINDING_MAKERS
        for argument in call.args[:2]
        for node in ast.walk(argument)
        for pattern in code_patterns(node)
    } | {pattern for module in TABULATING for row in table_rows(module) for pattern in code_patterns(row.elts[0])}


def table_rows(module: str) -> list[ast.Tuple]:
    """The rows of the module's tables of findings: tuples that begin with a code and go on with words."""
    tree = ast.parse(sources()[f"src/pvdm/{module}.py"])
    return [node for node in ast.walk(tree) if isinstance(node, ast.Tuple) and len(node.elts) > 2]


def code_patterns(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        parts = [str(each.value) if isinstance(each, ast.Constant) else "[a-z]+" for each in node.values]
        return ["".join(parts)] if CODE.fullmatch("".join(parts).replace("[a-z]+", "x")) else []
    return []


def becoming() -> dict[str, FailureClass]:
    """The codes and reasons of verification errors that these modules raise."""
    found = {}
    for module, failure in BECOMING.items():
        text = sources()[f"src/pvdm/{module}.py"]
        named = {Code[name].value for name in re.findall(r"\bCode\.([A-Z0-9_]+)\(", text)}
        named |= set(re.findall(r'"([a-z0-9_]+)"', text))
        for code in named:
            if is_registered(code) and registered_kinds(code) == ("verification",) and not has_reasons(code):
                found[code] = failure
    return found


def has_reasons(code: str) -> bool:
    return code in CODES and bool(CODES[code].entry.reasons)


def in_files() -> set[str]:
    """What the kernel refuses of a staged file; of values and types the page names examples only.

    By their names columns are found in files of a source alone, and what is wrong with a source is no verdict.
    """
    text = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "kernel" / "src").rglob("*.rs")))
    return {code for code in RUST.findall(text) if code.startswith(("field_", "parquet_")) and "_name_" not in code}


def test_every_finding_is_on_the_page() -> None:
    wanted = finding_codes() | set(becoming()) | in_files()
    assert [each for each in sorted(wanted) if not any(re.fullmatch(each, code) for code in CLASSES)] == []


def test_everything_on_the_page_can_be_found() -> None:
    wanted = finding_codes() | set(becoming()) | in_files()
    assert [code for code in CLASSES if not any(re.fullmatch(each, code) for each in wanted)] == []


def test_each_code_stands_once_and_in_order() -> None:
    codes = [code for code, _ in ROWS]
    assert sorted(codes) == sorted(set(codes))
    for section in PAGE.split("\n### ")[1:]:
        listed = re.findall(r"^\| `(\w+)` \| `\w+` \|", section, re.MULTILINE)
        assert listed == sorted(listed)


def test_an_error_that_becomes_a_finding_has_the_class_that_is_shown() -> None:
    wanted = becoming() | {code: failure_class_of(code) for code in in_files()}
    assert {code: CLASSES[code] for code in wanted} == {code: kind.value for code, kind in wanted.items()}


def test_the_page_explains_every_class() -> None:
    section = PAGE.split("\n## Classes\n")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \| [^`|]", section, re.MULTILINE)) == {kind.value for kind in FailureClass}
