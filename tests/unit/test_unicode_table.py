"""The table of unassigned code points: reproducible, alike in both languages, true in later Unicode versions."""

from __future__ import annotations

import importlib.util
import re
import sys
import unicodedata
from pathlib import Path
from types import ModuleType

import pytest

from pvdm.digest.unicode14 import UNASSIGNED

ROOT = Path(__file__).resolve().parents[2]
RUST_TABLE = ROOT / "kernel" / "src" / "canonical" / "unicode14.rs"


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_unicode_table", ROOT / "tools" / "make_unicode_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


needs_unicode_14 = pytest.mark.skipif(
    unicodedata.unidata_version != "14.0.0",
    reason=f"the table can only be made by a Python with Unicode 14.0.0, this one has {unicodedata.unidata_version}",
)


@needs_unicode_14
def test_the_generator_reproduces_the_python_table() -> None:
    generator = _generator()
    made = generator.python_table(generator.unassigned_ranges())
    assert made == (ROOT / "src" / "pvdm" / "digest" / "unicode14.py").read_text(encoding="utf-8")


@needs_unicode_14
def test_the_generator_reproduces_the_rust_table() -> None:
    generator = _generator()
    made = generator.rust_table(generator.unassigned_ranges())
    assert made == RUST_TABLE.read_text(encoding="utf-8")


def test_both_languages_have_the_same_ranges() -> None:
    pairs = re.findall(r"\(0x([0-9a-f]+), 0x([0-9a-f]+)\)", RUST_TABLE.read_text(encoding="utf-8"))
    assert [(int(first, 16), int(last, 16)) for first, last in pairs] == list(UNASSIGNED)


def test_ranges_ascend_and_never_touch() -> None:
    flat = [code for first, last in UNASSIGNED for code in (first, last + 1)]
    assert flat == sorted(set(flat))


def test_what_is_unassigned_today_was_unassigned_in_unicode_14() -> None:
    known = {code for first, last in UNASSIGNED for code in range(first, last + 1)}
    now = {code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) == "Cn"}
    assert now <= known
