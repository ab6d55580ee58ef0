"""Writes tests/assets/proofs: hostile assets from the published test keys, and the manifest of their codes.

Run it from the root of the repository: `python -m tools.make_hostile_proofs`; `--check` compares only.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tools import hostile_others, hostile_proofs
from tools.hostile_case import GZIP_OVER_BYTES, Case

ASSETS: Final = Path(__file__).parents[1] / "tests" / "assets" / "proofs"
_NOTE: Final = (
    "Each asset is refused at its door with exactly this code. Made by tools/make_hostile_proofs.py from the good "
    "documents and published test keys of tools/proof_kit.py; the keys protect nothing and must not be used. To make "
    "them again: python -m tools.make_hostile_proofs. Files that end in .gz are packed because of their size."
)


def cases() -> list[Case]:
    """Every hostile asset, in order of its name."""
    return sorted([*hostile_proofs.cases(), *hostile_others.cases()], key=lambda case: case.name)


def files() -> dict[str, bytes]:
    """The bytes of each file by its name."""
    made = {}
    entries: dict[str, dict[str, object]] = {}
    for case in cases():
        packed = len(case.data) > GZIP_OVER_BYTES
        name = f"{case.name}.gz" if packed else case.name
        made[name] = gzip.compress(case.data, mtime=0) if packed else case.data
        entries[name] = case.facts
    text = ",\n".join(f"    {json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items())
    made["manifest.json"] = f'{{\n  "note": {json.dumps(_NOTE)},\n  "assets": {{\n{text}\n  }}\n}}\n'.encode()
    return made


def load(name: str) -> bytes:
    """The asset's bytes, unpacked."""
    data = (ASSETS / name).read_bytes()
    return gzip.decompress(data) if name.endswith(".gz") else data


def stale() -> Iterator[str]:
    """A sentence for each committed file that is missing, differs, or is not made by this tool."""
    made = files()
    for name, data in made.items():
        if not (ASSETS / name).exists():
            yield f"{name} is not there"
        elif load(name) != (gzip.decompress(data) if name.endswith(".gz") else data):
            yield f"{name} is not what this tool writes"
    for path in sorted(ASSETS.iterdir()) if ASSETS.exists() else ():
        if path.name not in made:
            yield f"{path.name} is not made by this tool"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the assets, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    if parser.parse_args(arguments).check:
        wrong = list(stale())
        print("\n".join(wrong) or f"{len(files())} files are as this tool writes them")
        return 1 if wrong else 0
    ASSETS.mkdir(parents=True, exist_ok=True)
    for path in ASSETS.iterdir():
        path.unlink()
    for name, data in files().items():
        (ASSETS / name).write_bytes(data)
    print(f"{len(files()) - 1} assets and their manifest in {ASSETS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
