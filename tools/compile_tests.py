"""Compiles the sources, and the tests with pytest's rewritten assertions, so that not every test worker has to."""

from __future__ import annotations

import compileall
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from _pytest.assertion import rewrite

WORKERS: Final = 2
# What most tests import. The packages are installed without compiled modules; importing them writes these.
IMPORTED: Final = (
    "boto3 duckdb fastapi hypothesis moto.server polars psycopg pvdm.cli.app pvdm.steward.server pyiceberg.catalog.rest"
    " pyspark.sql schemathesis"
)


def compile_test(path: Path) -> None:
    """Write the rewritten module where pytest's import hook looks for it, unless it is there."""
    config: Any = SimpleNamespace(getini=lambda _: False, trace=None)
    compiled = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
    if rewrite._read_pyc(path, compiled) is not None:
        return
    compiled.parent.mkdir(parents=True, exist_ok=True)
    stat, code = rewrite._rewrite_test(path, config)
    rewrite._write_pyc(SimpleNamespace(trace=lambda *_: None), code, stat, compiled)  # type: ignore[arg-type]


def main() -> int:
    """Compile src as Python does and tests as pytest does."""
    compileall.compile_dir("src", quiet=1, workers=WORKERS)
    rewritten = [*Path("tests").rglob("test_*.py"), *Path("tests").rglob("conftest.py")]
    others = [path for path in Path("tests").rglob("*.py") if path not in set(rewritten)]
    importing = subprocess.Popen([sys.executable, "-W", "ignore", "-c", f"import {', '.join(IMPORTED.split())}"])
    with ProcessPoolExecutor(WORKERS) as pool:
        list(pool.map(compile_test, map(Path.absolute, rewritten), chunksize=20))
        list(pool.map(compileall.compile_file, others, chunksize=20))
    importing.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
