"""pvdm and its kernel as an archive that Spark unpacks beside each executor: a native library loads from no zip."""

from __future__ import annotations

import importlib.util
import os
import tarfile
from pathlib import Path
from typing import Final

from pvdm.digest.digester import kernel_missing
from pvdm.version import __version__

ARCHIVE_FOLDER: Final = "pvdm_archive"
_PACKAGES: Final = ("pvdm", "pvdm_kernel")


def build_archive(folder: Path) -> Path:
    """A tar of both packages as they are installed here; what they need besides is in the workers' own Python."""
    path = folder / f"pvdm-{__version__}.tar.gz"
    temporary = folder / f".{path.name}.{os.getpid()}"
    with tarfile.open(temporary, "w:gz", compresslevel=1) as archive:
        for name in _PACKAGES:
            archive.add(_folder_of(name), name, filter=_wanted)
    temporary.replace(path)
    return path


def _folder_of(name: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise kernel_missing(f"no package {name}")
    return Path(found.origin).parent


def _wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in member.name else member
