"""The table of unassigned code points: it can be generated again, is the same in both languages, and stays valid."""

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


def load_generator() -> ModuleType:
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
    generator = load_generator()
    table = generator.python_table(generator.unassigned_ranges())
    assert table == (ROOT / "src" / "pvdm" / "digest" / "unicode14.py").read_text(encoding="utf-8")


@needs_unicode_14
def test_the_generator_reproduces_the_rust_table() -> None:
    generator = load_generator()
    table = generator.rust_table(generator.unassigned_ranges())
    assert table == RUST_TABLE.read_text(encoding="utf-8")


def test_both_languages_have_the_same_ranges() -> None:
    pairs = re.findall(r"\(0x([0-9a-f]+), 0x([0-9a-f]+)\)", RUST_TABLE.read_text(encoding="utf-8"))
    assert [(int(first, 16), int(last, 16)) for first, last in pairs] == list(UNASSIGNED)


def test_ranges_are_in_order_and_do_not_touch() -> None:
    flat = [point for first, last in UNASSIGNED for point in (first, last + 1)]
    assert flat == sorted(set(flat))


def test_code_points_that_are_unassigned_now_were_unassigned_in_unicode_14() -> None:
    known = {point for first, last in UNASSIGNED for point in range(first, last + 1)}
    now = {point for point in range(sys.maxunicode + 1) if unicodedata.category(chr(point)) == "Cn"}
    assert now <= known
