"""docs/errors.md lists every error code that the code can raise, with its exit code, and no other."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm import errors
from pvdm.api.errors import kind_of
from pvdm.client.wire import FailureKind
from pvdm.steward.http.errors import status_of
from tests.support.error_codes import CLASSES, Raised, Reader
from tests.support.for_each import for_each
from tests.support.gate.hostile_assets import manifest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "errors.md").read_text("utf-8")
ROW = re.compile(r"^\| `(?P<code>[a-z0-9_]+)` \| (?P<when>[^|]+) \| (?P<exits>\d(?:, \d)*) \|$", re.MULTILINE)
RUST = re.compile(
    r"""(?:\bFault::new\(\s*|\bRefused\(\s*|\bthen_some\(|"key", Some\(|\bcode: |: &str = )"([a-z0-9_]+)\""""
)

# Expressions whose codes the reader cannot follow; in_kernel and in_client read those codes instead.
FROM_ELSEWHERE = {
    ("pvdm.digest.kernel", "error.args"),
    ("pvdm.digest.locating", "error.args"),
    ("pvdm.client.wire", "failure.how.value"),
}
# Doors whose every refusal is NotAllowedError, with the codes that are met there only.
ALLOWING = {
    "override": ("override_",),
    "protection": ("approval_", "contract_mismatch"),
    "migration": ("approval_",),
}
AT_ALLOWING = ("pvdm.trust.override:", "pvdm.trust.approval:")


def sources() -> dict[str, str]:
    found = sorted((ROOT / "src").rglob("*.py"))
    dotted = [".".join(path.relative_to(ROOT / "src").with_suffix("").parts) for path in found]
    return {name.removesuffix(".__init__"): path.read_text("utf-8") for name, path in zip(dotted, found, strict=True)}


@functools.cache
def read() -> Reader:
    """Every source, parsed once where a test asks for it; other workers have no need of it."""
    return Reader(sources())


def in_kernel() -> Iterator[Raised]:
    """Whatever the kernel refuses becomes an InputError at the door; what ends a locating is no fault of the input."""
    for path in sorted((ROOT / "kernel" / "src").rglob("*.rs")):
        for code in RUST.findall(path.read_text("utf-8")):
            kind = errors.UnavailableError if code.startswith("locate_") else errors.InputError
            yield Raised(re.escape(code), kind.exit_code, str(path.relative_to(ROOT)))


def in_client() -> Iterator[Raised]:
    """How there came to be no answer from the Steward: each way is a code."""
    for how in FailureKind:
        yield Raised(re.escape(how.value), errors.UnavailableError.exit_code, "pvdm.client.wire")


def at_doors() -> Iterator[Raised]:
    """A code of the model is exit code 3 in a document that somebody brings: the hostile assets show which are."""
    for asset in manifest():
        if asset.door not in ALLOWING or asset.code.startswith(ALLOWING[asset.door]):
            kind = errors.NotAllowedError if asset.door in ALLOWING else errors.VerificationError
            yield Raised(re.escape(asset.code), kind.exit_code, asset.name)


def in_python() -> Iterator[Raised]:
    for each in read().raised:
        # Every refusal of those leaves its door as NotAllowedError; the hostile assets above have these.
        if not each.where.startswith(AT_ALLOWING):
            yield each


@functools.cache
def raised() -> tuple[Raised, ...]:
    return (*in_python(), *in_kernel(), *in_client(), *at_doors())


DOCUMENTED = {row["code"]: {int(each) for each in row["exits"].split(", ")} for row in ROW.finditer(PAGE)}
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]


@functools.cache
def documented_codes(pattern: str) -> tuple[str, ...]:
    """The rows that a pattern is about; nearly every pattern is a code itself."""
    if pattern in DOCUMENTED:
        return (pattern,)
    return tuple(code for code in DOCUMENTED if re.fullmatch(pattern, code))


@functools.cache
def raised_exits() -> dict[str, set[int]]:
    """The exit codes of each documented code, as the sources raise it."""
    found: defaultdict[str, set[int]] = defaultdict(set)
    for each in raised():
        for code in documented_codes(each.pattern):
            found[code].add(each.exit_code)
    return dict(found)


def test_every_code_that_is_raised_is_documented() -> None:
    assert [each for each in raised() if not documented_codes(each.pattern)] == []


def test_every_documented_code_is_raised() -> None:
    assert [code for code in DOCUMENTED if code not in raised_exits()] == []


@for_each("code", sorted(DOCUMENTED))
def test_the_documented_exit_codes_are_those_of_the_classes(code: str) -> None:
    assert raised_exits()[code] == DOCUMENTED[code]


def test_each_code_has_one_row_on_the_page() -> None:
    codes = [row["code"] for row in ROW.finditer(PAGE)]
    assert sorted(codes) == sorted(set(codes))


@for_each("section", SECTIONS, ids=[section.partition("\n")[0] for section in SECTIONS])
def test_the_rows_of_a_section_are_in_order(section: str) -> None:
    codes = [row["code"] for row in ROW.finditer(section)]
    assert codes
    assert codes == sorted(codes)


def test_every_row_of_the_tables_is_read() -> None:
    assert len(re.findall(r"^\| `[a-z]", PAGE, re.MULTILINE)) == len(DOCUMENTED) > 300


@pytest.mark.parametrize("name", CLASSES)
def test_the_page_names_each_class_as_it_is_told(name: str) -> None:
    error = getattr(errors, name)("any_code", "words")
    row = f"| `{name}` | {error.exit_code} | {status_of(error)} `{kind_of(error)}` | "
    assert row in PAGE


def test_every_code_can_be_read_from_the_source() -> None:
    """A code that reaches an error in a way that the reader does not know would be left out silently."""
    assert read().unread == FROM_ELSEWHERE


@pytest.mark.parametrize("page", ["canonical.md", "digest.md", "proof.md", "log.md", "keys.md"])
def test_every_code_that_a_specification_names_is_documented(page: str) -> None:
    """Codes stand in parentheses in the text, or fill a cell of a table whose head says so."""
    text = (ROOT / "spec" / page).read_text("utf-8")
    groups = re.findall(r"\((`[a-z_]+`(?:, `[a-z_]+`)*)\)", text)
    for table in re.split(r"\n\n", text):
        head, *rows = table.splitlines()
        names = [cell.strip() for cell in head.split("|")]
        for column in [at for at, name in enumerate(names) if name in ("code", "codes")]:
            groups += [row.split("|")[column] for row in rows if row.count("|") > column]
    named = {code for group in groups for code in re.findall(r"`([a-z_]+)`", group) if "_" in code}
    assert len(named) > 4
    assert named - DOCUMENTED.keys() == set()


def test_every_code_of_the_kernel_is_in_the_pattern() -> None:
    """A code that reaches `Fault` in a way that the pattern above does not know would be left out silently."""
    text = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "kernel" / "src").rglob("*.rs")))
    found = {code for code in re.findall(r'"([a-z0-9_]+)"', text) if code in DOCUMENTED}
    assert found == set(RUST.findall(text))
