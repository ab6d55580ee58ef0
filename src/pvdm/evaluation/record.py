"""What every experiment reports: its progress, and machine, versions and seed beside its figures."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TypeAlias

from pvdm.errors import Code, PvdmError
from pvdm.version import __version__

OnProgress: TypeAlias = Callable[[str, int, int], None]
"""Called often, with the name of a part, its steps done and its steps in all."""


def ignore_progress(_part: str, _done: int, _total: int, /) -> None:
    """Ignore the progress."""


_PACKAGES = ("pvdm-kernel", "pyarrow", "blake3", "python-flint")


def machine() -> dict[str, object]:
    """The processor and system, without the host's name."""
    return {
        "system": platform.system(),
        "release": platform.release(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def versions() -> dict[str, str | None]:
    """Python and the packages that compute; a package that is not installed is null."""
    found: dict[str, str | None] = {"python": platform.python_version(), "pvdm": __version__}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def require_writable(path: Path) -> None:
    """Raise unless the file can be written. Called before the work, so that its result is not lost."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(path, error.strerror or type(error).__name__) from error
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise _not_writable(path, "no permission")


def write_json(path: Path, record: dict[str, object]) -> None:
    """Write the record to the file, and make missing folders above it."""
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _not_writable(path, error.strerror or type(error).__name__) from error


def _not_writable(path: Path, got: str) -> PvdmError:
    message = f"{path} cannot be written"
    return Code.OUTPUT_REFUSED(message, reason="output_not_writable", got=got, hint="name another file")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or "unknown"
