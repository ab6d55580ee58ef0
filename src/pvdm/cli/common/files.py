"""Reads files up to a size limit, and writes files whole; only `write_over` replaces an existing file."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path

from pvdm.errors import Code, PvdmError

# An object, an empty array or an array of objects. A bracket alone is not enough: TOML can begin with `[table]`.
_JSON_START = re.compile(rb"\s*(\{|\[\s*[{\]])")
_CHOOSE_ANOTHER_NAME = "name another file with --out, or move the old one away"


def read_file(path: Path, *, size_max_bytes: int) -> bytes:
    """The whole file. Raises if it cannot be read or is over the limit."""
    try:
        with path.open("rb") as file:
            data = file.read(size_max_bytes + 1)
    except OSError as error:
        raise _unreadable_error(path, error) from error
    if len(data) > size_max_bytes:
        expected = f"at most {size_max_bytes} bytes"
        raise Code.INPUT_FILE_INVALID(f"{path} is too large", reason="input_too_large", expected=expected, got="more")
    return data


def require_json(path: Path, data: bytes, what: str) -> None:
    """Raise unless the file's data begins as pvdm's JSON does; nothing else is checked. `what` is the expected file."""
    if _JSON_START.match(data) is None:
        got = "another kind of file" if data else "an empty file"
        raise Code.INPUT_FILE_INVALID(f"{path} is not {what}", reason="file_kind_wrong", expected=what, got=got)


def require_folder(path: Path) -> None:
    """Raise unless the path is a folder."""
    if not path.is_dir():
        message = f"{path} cannot be read"
        raise Code.INPUT_FILE_INVALID(message, reason="input_not_readable", expected="a folder", got="no such folder")


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable_error(path, error) from error


def require_new(path: Path, *, next_step: str = _CHOOSE_ANOTHER_NAME) -> None:
    """Raise unless a new file can be written at the path. Called before the work, so that its result is not lost."""
    if os.path.lexists(path):
        raise _exists_error(path, next_step)
    if not path.parent.is_dir():
        raise _unwritable_error(path, "no such folder")
    if not os.access(path.parent, os.W_OK):
        raise _unwritable_error(path, "no permission")


def write_new(path: Path, data: bytes) -> bool:
    """Write a new file whole. Returns False if a file there already has this data; raises if it has other data."""
    with contextlib.suppress(OSError):
        if path.stat().st_size == len(data) and path.read_bytes() == data:
            return False
    # Unlike a rename, a link never replaces an existing file.
    _write_whole(path, data, os.link)
    return True


def write_over(path: Path, data: bytes) -> None:
    """Replace the file atomically: readers see the old data or the new data, whole."""
    _write_whole(path, data, os.replace)


def _write_whole(path: Path, data: bytes, give_name: Callable[[Path, Path], None]) -> None:
    """Write and sync a temporary file; then `give_name(temporary, path)` links or renames it to the path."""
    temporary = path.with_name(f".{path.name}.new-{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        give_name(temporary, path)
    except FileExistsError:
        raise _exists_error(path) from None
    except OSError as error:
        raise _unwritable_error(path, error.strerror or type(error).__name__) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    # The file itself is synced. Some network mounts cannot sync a folder; that error is ignored.
    with contextlib.suppress(OSError):
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unreadable_error(path: Path, error: OSError) -> PvdmError:
    got = error.strerror or type(error).__name__
    return Code.INPUT_FILE_INVALID(f"{path} cannot be read", reason="input_not_readable", got=got)


def _exists_error(path: Path, next_step: str = _CHOOSE_ANOTHER_NAME) -> PvdmError:
    hint = f"nothing was overwritten; {next_step}"
    return Code.OUTPUT_REFUSED(f"{path} exists already", reason="output_exists", got="an existing file", hint=hint)


def _unwritable_error(path: Path, got: str) -> PvdmError:
    return Code.OUTPUT_REFUSED(f"{path} cannot be written", reason="output_not_writable", got=got)
