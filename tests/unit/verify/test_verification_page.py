"""docs/verification.md lists every finding of a verification with its class, and no other."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from pvdm.model.statements.verdict import FailureClass
from pvdm.verify.observed import class_of
from tests.support.error_codes import Maker, Raised, Reader
from tests.unit.test_errors_doc import RUST, sources

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "verification.md").read_text("utf-8")
ROWS = re.findall(r"^\| `(\w+)` \| `(\w+)` \| .+ \|$", PAGE, re.MULTILINE)
CLASSES = dict(ROWS)

FOUND = 99  # no exit code, but the mark of what is a finding by itself
REFUSED = 3
# Errors that become findings, with the class they become; everything else of the Steward's is no verdict.
BECOMING = {
    "pvdm.lake.read.entries": FailureClass.METADATA,
    "pvdm.verify.fetch": FailureClass.PHYSICAL,
    "pvdm.verify.freeze": FailureClass.METADATA,
    "pvdm.verify.partitioning": FailureClass.METADATA,
    "pvdm.verify.staged": FailureClass.METADATA,
}


class Findings(Reader):
    """Follows the codes of findings as those of errors are followed."""

    def _add_classes(self) -> None:
        self._makers.add(Maker("pvdm.verify.findings", "Finding", 1, "code", FOUND))
        super()._add_classes()


@functools.cache
def raised() -> frozenset[Raised]:
    """Read where a test asks for it; other workers have no need of it."""
    return frozenset(Findings(sources()).raised)


def by_itself() -> set[str]:
    return {each.pattern for each in raised() if each.exit_code == FOUND}


def becoming() -> dict[str, FailureClass]:
    found = [(each.pattern, each.where.partition(":")[0]) for each in raised() if each.exit_code == REFUSED]
    return {code: BECOMING[module] for code, module in found if module in BECOMING}


def in_files() -> set[str]:
    """What the kernel refuses of a staged file; of values and types the page names examples only.

    By their names columns are found in files of a source alone, and what is wrong with a source is no verdict.
    """
    text = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "kernel" / "src").rglob("*.rs")))
    return {code for code in RUST.findall(text) if code.startswith(("field_", "parquet_")) and "_name_" not in code}


def test_every_finding_is_on_the_page() -> None:
    wanted = by_itself() | set(becoming()) | in_files()
    assert [each for each in sorted(wanted) if not any(re.fullmatch(each, code) for code in CLASSES)] == []


def test_everything_on_the_page_can_be_found() -> None:
    wanted = by_itself() | set(becoming()) | in_files()
    assert [code for code in CLASSES if not any(re.fullmatch(each, code) for each in wanted)] == []


def test_each_code_stands_once_and_in_order() -> None:
    codes = [code for code, _ in ROWS]
    assert sorted(codes) == sorted(set(codes))
    for section in PAGE.split("\n### ")[1:]:
        listed = re.findall(r"^\| `(\w+)` \| `\w+` \|", section, re.MULTILINE)
        assert listed == sorted(listed)


def test_an_error_that_becomes_a_finding_has_the_class_that_is_shown() -> None:
    wanted = becoming() | {code: class_of(code) for code in in_files()}
    assert {code: CLASSES[code] for code in wanted} == {code: kind.value for code, kind in wanted.items()}


def test_the_page_explains_every_class() -> None:
    section = PAGE.split("\n## Classes\n")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \| [^`|]", section, re.MULTILINE)) == {kind.value for kind in FailureClass}
