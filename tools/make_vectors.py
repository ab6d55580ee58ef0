"""Writes vectors/values.json and vectors/multisets.json through the reference engine; `--check` compares only.

Run it from the root of the repository: `python -m tools.make_vectors`, or `make vectors`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pvdm.digest import reference_engine
from tests.vectors.loader import VECTORS
from tools import vector_multisets, vector_values
from tools.vector_draw import Json

_MADE: Final = "by tools/make_vectors.py through the reference engine. To make it again: `make vectors`."
_VALUES: Final = (
    f"Edges of every type and values drawn from a fixed seed, with their canonical cells, written {_MADE} "
    "Format: vectors/README.md."
)
_MULTISETS: Final = (
    f"Multisets of rows with their digests under published test keys, written {_MADE} "
    "The keys protect nothing and must not be used. Format: vectors/README.md."
)


def files() -> dict[str, str]:
    """The text of each generated file by its name."""
    engine = reference_engine()
    return {
        "values.json": _text(_VALUES, "canonical/1", vector_values.entries(engine)),
        "multisets.json": _text(_MULTISETS, "digest/1", vector_multisets.entries(engine)),
    }


def _text(note: str, spec: str, entries: Iterable[Json]) -> str:
    # One entry a line, so that a difference shows which entries it touches.
    lines = ",\n".join(f"    {json.dumps(entry)}" for entry in entries)
    return f'{{\n  "note": {json.dumps(note)},\n  "spec": {json.dumps(spec)},\n  "vectors": [\n{lines}\n  ]\n}}\n'


def stale() -> Iterator[str]:
    """A sentence for each committed file that is missing, or differs from what this tool writes."""
    for name, text in files().items():
        path = VECTORS / name
        if not path.exists():
            yield f"vectors/{name} is not there"
            continue
        stored, made = path.read_text("utf-8").splitlines(), text.splitlines()
        if stored != made:
            pairs = enumerate(zip(stored, made, strict=False), 1)
            line = next((number for number, (old, new) in pairs if old != new), None)
            where = f"line {line} differs" if line is not None else f"{len(made)} lines expected, got {len(stored)}"
            yield f"vectors/{name} is not what this tool writes: {where}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write both files, or compare them."""
    parser = argparse.ArgumentParser(prog="python -m tools.make_vectors", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the committed files and write nothing")
    if parser.parse_args(arguments).check:
        faults = list(stale())
        for fault in faults:
            print(f"error: {fault}; `make vectors` writes it again")
        return 1 if faults else 0
    for name, text in files().items():
        (VECTORS / name).write_text(text, encoding="utf-8")
        print(f"vectors/{name}: {len(json.loads(text)['vectors'])} entries")
    return 0


if __name__ == "__main__":
    sys.exit(main())
