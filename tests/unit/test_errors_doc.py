"""The registry of errors has every code and reason that the sources name, and docs/errors.md is generated from it."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from pvdm import errors
from pvdm.api.errors import kind_of
from pvdm.errors import Code
from pvdm.errors.kinds import KINDS
from pvdm.errors.registry import codes_by_reason
from pvdm.steward.http.errors import status_of
from tests.support.for_each import for_each
from tests.support.gate.hostile_assets import manifest
from tools import make_errors

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "errors.md").read_text("utf-8")
CODES = {code.value: code for code in Code}
CLASSES = {cls.__name__: kind for kind, cls in KINDS.items()}
RUST = re.compile(
    r"""(?:\bFault::new\(\s*|\b(?:[Rr]efused|variant_fault)\(\s*|\bthen_some\(|"key", Some\(|\bcode: |: &str = )"""
    r'"([a-z0-9_]+)"'
)
# Names of parts of a Parquet file, which are constants of the kernel as some codes are.
PARQUET_NAMES = {"_tuple", "array", "typed_value"}
# Documents that are refused with NotAllowedError only, with the codes that only they have.
NOT_ALLOWED_DOORS = {
    "override": ("override_",),
    "protection": ("approval_", "contract_mismatch"),
    "migration": ("approval_",),
    "release": ("approval_",),
}


@functools.cache
def sources() -> dict[str, str]:
    """The text of every module of src/ by its path, without the generated module."""
    found = sorted((ROOT / "src").rglob("*.py"))
    return {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in found if path != make_errors.MODULE}


def kernel_codes() -> set[str]:
    texts = (path.read_text("utf-8") for path in sorted((ROOT / "kernel" / "src").rglob("*.rs")))
    return {code for text in texts for code in RUST.findall(text)} - PARQUET_NAMES


def calls() -> Iterator[tuple[str, ast.Call]]:
    for path, text in sources().items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                yield f"{path}:{node.lineno}", node


def named_code(node: ast.expr) -> str | None:
    """The code or reason that an expression spells out."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Code":
        return Code[node.attr].value
    return None


def registered_kinds(reason: str) -> tuple[str, ...]:
    return CODES[codes_by_reason().get(reason, reason)].entry.kinds


def is_registered(reason: str) -> bool:
    return reason in codes_by_reason() or reason in CODES


def test_the_page_and_the_enumeration_are_generated_from_the_registry() -> None:
    assert make_errors.PAGE.read_text("utf-8") == make_errors.page()
    assert make_errors.MODULE.read_text("utf-8") == make_errors.module()


def test_a_reason_belongs_to_one_code_and_is_no_code_itself() -> None:
    reasons = [reason for code in Code for reason in code.entry.reasons]
    assert sorted(reasons) == sorted(set(reasons))
    assert [reason for reason in reasons if reason in CODES] == []


def test_every_constructed_error_has_a_registered_code_and_class() -> None:
    wrong = []
    for where, call in calls():
        if isinstance(call.func, ast.Name) and call.func.id in CLASSES and call.args:
            code = named_code(call.args[0])
            if code is not None and not (is_registered(code) and CLASSES[call.func.id] in registered_kinds(code)):
                wrong.append((where, code, call.func.id))
    assert wrong == []


def test_every_reason_that_a_code_is_called_with_is_registered_for_it() -> None:
    wrong = []
    for where, call in calls():
        code = named_code(call.func)
        if code is None:
            continue
        for reason in [each.value for each in call.keywords if each.arg == "reason"]:
            if isinstance(reason, ast.Constant) and reason.value not in CODES[code].entry.reasons:
                wrong.append((where, code, reason.value))
    assert wrong == []


def test_a_code_that_is_called_has_one_class() -> None:
    called = {code for _, call in calls() if (code := named_code(call.func)) is not None}
    assert [code for code in sorted(called) if len(CODES[code].entry.kinds) != 1] == []


def test_every_code_and_reason_is_used() -> None:
    text = "\n".join(sources().values())
    members = set(re.findall(r"\bCode\.([A-Z0-9_]+)\b", text))
    literals = set(re.findall(r'"([a-z0-9_]+)"', text)) | kernel_codes()
    patterns = [re.compile(each) for each in patterns_of_names(text)]
    # A code with reasons is used by its reasons.
    codes = [code.value for code in Code if code.name not in members and not code.entry.reasons]
    names = codes + list(codes_by_reason())
    assert [each for each in names if each not in literals and not any(p.fullmatch(each) for p in patterns)] == []


def patterns_of_names(text: str) -> set[str]:
    """Patterns of the names that the sources build from parts, like f"key_{state}_wrong"."""
    found = re.findall(r'f"([a-z0-9_]*\{[^}"]+\}[a-z0-9_{}.]*)"', text)
    return {re.sub(r"\{[^}]+\}", "[a-z0-9_]+", each) for each in found if "_" in re.sub(r"\{[^}]+\}", "", each)}


def test_every_code_of_the_kernel_is_registered() -> None:
    assert [code for code in sorted(kernel_codes()) if not is_registered(code)] == []


@for_each("asset", manifest(), ids=lambda asset: asset.name)
def test_the_class_of_a_hostile_document_is_registered(asset: object) -> None:
    code, door = asset.code, asset.door  # type: ignore[attr-defined]
    if door in NOT_ALLOWED_DOORS and not code.startswith(NOT_ALLOWED_DOORS[door]):
        return
    assert ("not_allowed" if door in NOT_ALLOWED_DOORS else "verification") in registered_kinds(code)


@for_each("name", sorted(CLASSES))
def test_the_page_names_each_class_with_its_exit_code_and_status(name: str) -> None:
    error = getattr(errors, name)("any_code", "words")
    row = f"| `{name}` | {error.exit_code} | {status_of(error)} `{kind_of(error)}` | "
    assert row in PAGE


@for_each("page", ["canonical.md", "digest.md", "proof.md", "log.md", "keys.md"])
def test_every_code_that_a_specification_names_is_registered(page: str) -> None:
    """Codes are in parentheses in the text, or fill a cell of a table whose head says so."""
    text = (ROOT / "spec" / page).read_text("utf-8")
    groups = re.findall(r"\((`[a-z_]+`(?:, `[a-z_]+`)*)\)", text)
    for table in re.split(r"\n\n", text):
        head, *rows = table.splitlines()
        names = [cell.strip() for cell in head.split("|")]
        for column in [at for at, name in enumerate(names) if name in ("code", "codes")]:
            groups += [row.split("|")[column] for row in rows if row.count("|") > column]
    named = {code for group in groups for code in re.findall(r"`([a-z_]+)`", group) if "_" in code}
    assert len(named) > 4
    assert [code for code in sorted(named) if not is_registered(code)] == []


def test_every_code_of_the_kernel_is_in_the_pattern() -> None:
    """Otherwise a code that is passed to `Fault` in another way would be left out unnoticed."""
    text = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "kernel" / "src").rglob("*.rs")))
    found = {code for code in re.findall(r'"([a-z0-9_]+)"', text) if is_registered(code)}
    assert found == kernel_codes()
