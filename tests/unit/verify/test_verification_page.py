"""docs/verification.md lists every finding of a verification with its class, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from pvdm.errors import Code
from pvdm.model.statements.verdict import BOUNDARY_CODES, FailureClass
from pvdm.verify.observed import failure_class_of
from tests.unit.test_errors_doc import CODES, RUST, calls, is_registered, registered_kinds, sources

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "verification.md").read_text("utf-8")
ROWS = re.findall(r"^\| `(\w+)` \| `(\w+)` \| .+ \|$", PAGE, re.MULTILINE)
CLASSES = dict(ROWS)

# Functions that create a finding from a code.
FINDING_MAKERS = {"Finding", "_finding", "_wrong_claim_finding", "_moved"}
# Modules whose errors become findings, with the class of these findings. Other errors of the Steward are no verdict.
CLASS_BY_MODULE = {
    "lake/read/entries": FailureClass.METADATA,
    "verify/fetch": FailureClass.PHYSICAL,
    "verify/observed": FailureClass.METADATA,
    "verify/staged": FailureClass.METADATA,
}
# Modules that have a table of findings.
TABLE_MODULES = ("verify/observed", "verify/staged")
CODE = re.compile(r"[a-z0-9]+(_[a-z0-9]+)+")


def finding_codes() -> set[str]:
    """Patterns of the codes that the sources pass to functions that create findings, or have in tables of findings."""
    return {
        pattern
        for where, call in calls()
        if where.startswith(("src/pvdm/verify/", "src/pvdm/steward/pipeline/"))
        and isinstance(call.func, ast.Name)
        and call.func.id in FINDING_MAKERS
        for argument in call.args[:2]
        for node in ast.walk(argument)
        for pattern in code_patterns(node)
    } | {pattern for module in TABLE_MODULES for row in table_rows(module) for pattern in code_patterns(row.elts[0])}


def table_rows(module: str) -> list[ast.Tuple]:
    """The rows of the module's tables of findings: tuples of more than two items that begin with a code."""
    tree = ast.parse(sources()[f"src/pvdm/{module}.py"])
    return [node for node in ast.walk(tree) if isinstance(node, ast.Tuple) and len(node.elts) > 2]


def code_patterns(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        parts = [str(each.value) if isinstance(each, ast.Constant) else "[a-z]+" for each in node.values]
        return ["".join(parts)] if CODE.fullmatch("".join(parts).replace("[a-z]+", "x")) else []
    return []


def error_findings() -> dict[str, FailureClass]:
    """The codes and reasons of verification errors that these modules raise, with the class of their finding."""
    found = {}
    for module, failure in CLASS_BY_MODULE.items():
        text = sources()[f"src/pvdm/{module}.py"]
        named = {Code[name].value for name in re.findall(r"\bCode\.([A-Z0-9_]+)\(", text)}
        named |= set(re.findall(r'"([a-z0-9_]+)"', text))
        for code in named:
            if is_registered(code) and registered_kinds(code) == ("verification",) and not has_reasons(code):
                found[code] = failure
    return found


def has_reasons(code: str) -> bool:
    return code in CODES and bool(CODES[code].entry.reasons)


def file_codes() -> set[str]:
    """The codes with which the kernel refuses a staged file, except those of values and types.

    The page names only examples of those. Codes about names are left out: only columns of a source are found by name,
    and an error of a source is no verdict.
    """
    text = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "kernel" / "src").rglob("*.rs")))
    return {code for code in RUST.findall(text) if code.startswith(("field_", "parquet_")) and "_name_" not in code}


def test_every_finding_is_on_the_page() -> None:
    wanted = finding_codes() | set(error_findings()) | file_codes() | BOUNDARY_CODES
    assert [each for each in sorted(wanted) if not any(re.fullmatch(each, code) for code in CLASSES)] == []


def test_every_code_on_the_page_is_a_finding() -> None:
    wanted = finding_codes() | set(error_findings()) | file_codes() | BOUNDARY_CODES
    assert [code for code in CLASSES if not any(re.fullmatch(each, code) for each in wanted)] == []


def test_each_code_is_listed_once_and_in_order() -> None:
    codes = [code for code, _ in ROWS]
    assert sorted(codes) == sorted(set(codes))
    for section in PAGE.split("\n### ")[1:]:
        listed = re.findall(r"^\| `(\w+)` \| `\w+` \|", section, re.MULTILINE)
        assert listed == sorted(listed)


def test_an_error_that_becomes_a_finding_has_the_class_on_the_page() -> None:
    wanted = error_findings() | {code: failure_class_of(code) for code in file_codes()}
    assert {code: CLASSES[code] for code in wanted} == {code: kind.value for code, kind in wanted.items()}


def test_the_page_explains_every_class() -> None:
    section = PAGE.split("\n## Classes\n")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \| [^`|]", section, re.MULTILINE)) == {kind.value for kind in FailureClass}
