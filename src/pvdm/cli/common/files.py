"""Files that commands read and write: read within a limit, written whole, never over another one."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path

from pvdm.errors import Code, InputError

# An object, or an array that is empty or of objects: TOML can begin with a bracket too.
_OURS = re.compile(rb"\s*(\{|\[\s*[{\]])")
PUBLIC_MODE = 0o644
PRIVATE_MODE = 0o600
_ANOTHER_NAME = "name another file with --out, or move the old one away"


def read_file(path: Path, *, size_max_bytes: int) -> bytes:
    """The whole file; one that cannot be read, or is over the limit, is bad input."""
    try:
        with path.open("rb") as file:
            data = file.read(size_max_bytes + 1)
    except OSError as error:
        raise _not_readable(path, error) from error
    if len(data) > size_max_bytes:
        raise Code.INPUT_TOO_LARGE(f"{path} is too large", expected=f"at most {size_max_bytes} bytes", got="more")
    return data


def require_json(path: Path, data: bytes, what: str) -> None:
    """A file that does not even begin as one of ours is bad input; what is wrong inside one is for its reader."""
    if _OURS.match(data) is None:
        raise Code.FILE_KIND_WRONG(
            f"{path} is not {what}", expected=what, got="another kind of file" if data else "no bytes"
        )


def require_folder(path: Path) -> None:
    """A folder to read; what is none is bad input, not a damaged one."""
    if not path.is_dir():
        raise Code.INPUT_NOT_READABLE(f"{path} cannot be read", expected="a folder", got="nothing of that name")


def sha256_of(path: Path) -> str:
    """The hash of a file's bytes, however large it is."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _not_readable(path, error) from error


def require_new(path: Path, *, way_on: str = _ANOTHER_NAME) -> None:
    """Raise before the work is done, not after it, where its result has no place."""
    if os.path.lexists(path):
        raise _exists(path, way_on)
    if not path.parent.is_dir():
        raise _not_writable(path, "no such folder")
    if not os.access(path.parent, os.W_OK):
        raise _not_writable(path, "no permission")


def write_new(path: Path, data: bytes, *, mode: int = PUBLIC_MODE) -> bool:
    """Put the data under the name, whole or not at all; the same data again is nothing to do, other data is refused."""
    if mode == PUBLIC_MODE and _holds(path, data):
        return False
    # A link never replaces what is there, as a rename would.
    _put(path, data, mode, os.link)
    return True


def write_over(path: Path, data: bytes) -> None:
    """Put the data in the place of what is under the name: whoever reads it sees the one or the other, whole."""
    _put(path, data, PUBLIC_MODE, os.replace)


def _put(path: Path, data: bytes, mode: int, named: Callable[[Path, Path], None]) -> None:
    """Write the data aside, durable, and have it `named` as it is meant to be."""
    temporary = path.with_name(f".{path.name}.new-{secrets.token_hex(8)}")
    try:
        _write_synced(temporary, data, mode)
        named(temporary, path)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        raise _not_writable(path, error.strerror or type(error).__name__) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    _sync(path.parent)


def _write_synced(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def _sync(folder: Path) -> None:
    # The file is there; a folder that cannot be synced (some network mounts) is no reason to say it is not.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except OSError:
        return False


def _not_readable(path: Path, error: OSError) -> InputError:
    return InputError(
        Code.INPUT_NOT_READABLE,
        f"{path} cannot be read",
        expected="a file to read",
        got=error.strerror or type(error).__name__,
    )


def _exists(path: Path, way_on: str = _ANOTHER_NAME) -> InputError:
    return InputError(
        Code.OUTPUT_EXISTS,
        f"{path} is there already",
        expected="a new name",
        got="a file in use",
        hint=f"nothing was overwritten; {way_on}",
    )


def _not_writable(path: Path, why: str) -> InputError:
    return InputError(
        Code.OUTPUT_NOT_WRITABLE,
        f"{path} cannot be written",
        expected="a place for the result",
        got=why,
        hint="name another file with --out",
    )
