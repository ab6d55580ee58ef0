"""docs/errors.md lists every error code that the code can raise, with its exit code, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pvdm import errors

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "errors.md").read_text("utf-8")
ROW = re.compile(r"^\| `(?P<code>[a-z0-9_]+)` \| (?P<when>[^|]+) \| (?P<exit_code>\d) \|$", re.MULTILINE)

# What below src/pvdm has its codes on the page; a new room is added here when its codes are settled.
COVERED = (
    "errors.py",
    "digest",
    "model/document.py",
    "model/projection.py",
    "model/schema.py",
    "model/secret.py",
    "evaluation",
    "cli",
)

CLASSES = {
    name: kind.exit_code
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.PvdmError)
}
RUST = re.compile(r"""(?:\bFault::new\(\s*|\bRefused\(\s*|\bthen_some\(|"key", Some\()"([a-z0-9_]+)\"""")


@dataclass(frozen=True)
class Raised:
    """A code in the source as a pattern (`partial_{what}_mismatch` fits several codes), and its exit code."""

    pattern: str
    exit_code: int
    where: str


def sources() -> Iterator[Path]:
    for name in COVERED:
        path = ROOT / "src" / "pvdm" / name
        assert path.exists(), f"{path} is gone"
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def makers(tree: ast.Module) -> dict[str, int]:
    """What makes an error of its first argument: the classes, and functions that take a `code` and return one."""
    found = dict(CLASSES)
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name, ast.arguments(args=[ast.arg("code"), *_]), returns=ast.Name(kind)):
                found |= {name: CLASSES[kind]} if kind in CLASSES else {}
    return found


def pattern(code: ast.expr) -> str | None:
    match code:
        case ast.Constant(str(text)):
            return re.escape(text)
        case ast.JoinedStr(parts):
            return "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else "[a-z]+" for part in parts)
        case _:
            return None  # a name: whoever gave it its value is found in its own place


def in_python() -> Iterator[Raised]:
    for path in sources():
        tree = ast.parse(path.read_text("utf-8"))
        known = makers(tree)
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(maker), args=[code, *_]) if maker in known and (found := pattern(code)):
                    yield Raised(found, known[maker], f"{path.relative_to(ROOT)}:{node.lineno}")


def in_kernel() -> Iterator[Raised]:
    """Whatever the kernel refuses becomes an InputError at the door."""
    for path in sorted((ROOT / "kernel" / "src").rglob("*.rs")):
        for code in RUST.findall(path.read_text("utf-8")):
            yield Raised(re.escape(code), errors.InputError.exit_code, str(path.relative_to(ROOT)))


RAISED = [*in_python(), *in_kernel()]
DOCUMENTED = {row["code"]: int(row["exit_code"]) for row in ROW.finditer(PAGE)}


def test_every_code_that_is_raised_is_documented() -> None:
    missing = [each for each in RAISED if not any(re.fullmatch(each.pattern, code) for code in DOCUMENTED)]
    assert missing == []


def test_every_documented_code_is_raised() -> None:
    assert [code for code in DOCUMENTED if not any(re.fullmatch(each.pattern, code) for each in RAISED)] == []


@pytest.mark.parametrize("code", sorted(DOCUMENTED))
def test_the_documented_exit_code_is_that_of_the_class(code: str) -> None:
    assert {each.exit_code for each in RAISED if re.fullmatch(each.pattern, code)} == {DOCUMENTED[code]}


def test_each_code_has_one_row_and_rows_are_in_order() -> None:
    codes = [row["code"] for row in ROW.finditer(PAGE)]
    assert codes == sorted(set(codes))


def test_every_row_of_the_table_is_read() -> None:
    assert len(re.findall(r"^\| `", PAGE, re.MULTILINE)) == len(DOCUMENTED) > 50


@pytest.mark.parametrize("page", ["spec/canonical.md", "spec/digest.md"])
def test_every_code_that_a_specification_names_is_documented(page: str) -> None:
    """Codes stand in parentheses in the text and alone in the last column of tables."""
    text = (ROOT / page).read_text("utf-8")
    named = {
        code for group in re.findall(r"\((`[a-z_]+`(?:, `[a-z_]+`)*)\)", text) for code in re.findall(r"\w+", group)
    }
    assert len(named) > 5
    assert {code for code in named if "_" in code} - DOCUMENTED.keys() == set()


def test_every_code_of_the_kernel_is_in_the_pattern() -> None:
    """A code that reaches `Fault` in a way that the pattern above does not know would be left out silently."""
    text = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "kernel" / "src").rglob("*.rs")))
    found = {code for code in re.findall(r'"([a-z0-9_]+)"', text) if code in DOCUMENTED}
    assert found == set(RUST.findall(text))
