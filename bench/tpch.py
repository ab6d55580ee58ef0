"""TPC-H lineitem as Parquet, generated once with tpchgen-cli and kept under build/tpch."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HOME = Path("build/tpch")
ROWS_AT_SCALE_FACTOR = {1: 6_001_215, 10: 59_986_052}


def lineitem(scale_factor: float, *, parts: int = 1, home: Path = HOME) -> list[Path]:
    """The files of lineitem at a scale factor, generated if they do not exist."""
    folder = home / f"sf{scale_factor:g}-{parts}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        print(f"generating lineitem at scale factor {scale_factor:g} with tpchgen-cli", file=sys.stderr)
        program = Path(sys.executable).with_name("tpchgen-cli")
        options = ["--scale-factor", f"{scale_factor:g}", "--tables", "lineitem", "--output-dir", str(folder)]
        if parts > 1:
            options += ["--parts", str(parts)]
        subprocess.run([str(program), "parquet", *options], check=True)
        (folder / "complete").touch()
    return sorted(folder.rglob("*.parquet"))
