"""Writes the table of code points that Unicode 14.0.0 leaves unassigned, for the reference and for the kernel.

Run it with a Python whose `unicodedata` is 14.0.0 (Python 3.11): `python tools/make_unicode_table.py`.
"""

from __future__ import annotations

import sys
import textwrap
import unicodedata
from pathlib import Path
from typing import Final

VERSION: Final = "14.0.0"
ABOUT: Final = (
    f"Code points of general category Cn (unassigned) in Unicode {VERSION}; made by tools/make_unicode_table.py."
)
ROOT: Final = Path(__file__).resolve().parent.parent
PYTHON_TABLE: Final = ROOT / "src" / "pvdm" / "digest" / "unicode14.py"
RUST_TABLE: Final = ROOT / "kernel" / "src" / "canonical" / "unicode14.rs"


def unassigned_ranges() -> list[tuple[int, int]]:
    """Inclusive ranges of general category Cn, ascending, in this Python's Unicode version."""
    ranges: list[tuple[int, int]] = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)) != "Cn":
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = (ranges[-1][0], code)
        else:
            ranges.append((code, code))
    return ranges


def python_table(ranges: list[tuple[int, int]]) -> str:
    """The source text of `pvdm.digest.unicode14`."""
    words = " ".join(f"{first:x}" if first == last else f"{first:x}-{last:x}" for first, last in ranges)
    lines = "\n".join(textwrap.wrap(words, 118, break_on_hyphens=False))
    return f'''"""{ABOUT}"""

from typing import Final

_RANGES: Final = """
{lines}
"""

# Inclusive ranges in ascending order, with at least one assigned code point between two of them.
UNASSIGNED: Final = tuple(
    (int(first, 16), int(last or first, 16)) for first, _, last in (part.partition("-") for part in _RANGES.split())
)
'''


def rust_table(ranges: list[tuple[int, int]]) -> str:
    """The source text of the kernel's module `unicode14`."""
    words = " ".join(f"(0x{first:x},0x{last:x})," for first, last in ranges)
    lines = textwrap.indent("\n".join(textwrap.wrap(words, 96, break_on_hyphens=False)), "    ").replace(",0x", ", 0x")
    return f"""//! {ABOUT}

/// Inclusive ranges in ascending order, with at least one assigned code point between two of them.
#[rustfmt::skip]
pub static UNASSIGNED: &[(u32, u32)] = &[
{lines}
];
"""


def main() -> int:
    """Write both files; print an error if this Python has another version of Unicode."""
    if unicodedata.unidata_version != VERSION:
        print(f"error: needs Unicode {VERSION}, this Python has {unicodedata.unidata_version}; use Python 3.11")
        return 1
    ranges = unassigned_ranges()
    PYTHON_TABLE.write_text(python_table(ranges), encoding="utf-8")
    RUST_TABLE.write_text(rust_table(ranges), encoding="utf-8")
    print(f"{len(ranges)} ranges in {PYTHON_TABLE.relative_to(ROOT)} and {RUST_TABLE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
