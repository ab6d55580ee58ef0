"""Files of keys and other secrets: written atomically and durably, checked when they are read, and locked."""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pvdm import fault
from pvdm.errors import Code, NotAllowedError, PvdmError
from pvdm.model.secret import Secret
from pvdm.trust.log.disk import sync_folder

PRIVATE_MODE: Final = 0o600
PUBLIC_MODE: Final = 0o644


def read_own(path: Path, *, size_max_bytes: int, private: bool = True) -> bytes:
    """The content of a plain file of this user. The checks use the open file, so that replacing the path has no effect.

    With `private` the file must have mode 0600. Without `private` other users may read the file, but not write it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise _missing_error(path) from None
    except OSError as error:
        if path.is_symlink():
            raise _not_plain_error(path, "a symbolic link") from None
        raise _unavailable_error(path, error) from None
    try:
        _require_safe(path, os.fstat(descriptor), private=private)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(size_max_bytes + 1)
    finally:
        os.close(descriptor)
    if len(content) > size_max_bytes:
        del content
        message = f"{path.name} is too large"
        raise Code.KEY_INVALID(message, reason="key_file_too_large", expected=f"{size_max_bytes} bytes", got="more")
    return content


def write(path: Path, content: Secret, *, mode: int, fresh: bool = False) -> None:
    """Write the file atomically and durably. With `fresh` it must not exist yet."""
    temporary = path.with_name(f"{_temporary_prefix(path)}{secrets.token_hex(8)}")
    try:
        _write_synced(temporary, content, mode)
        fault.point("keys.disk.after_temp")
        if fresh:
            os.link(temporary, path)  # unlike a rename, it fails if the name exists
        else:
            temporary.replace(path)
    except FileExistsError:
        raise file_exists_error(path) from None
    except OSError as error:
        raise _unavailable_error(path, error) from None
    finally:
        temporary.unlink(missing_ok=True)
    fault.point("keys.disk.after_rename")
    _sync_folder(path)


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock of this file against other processes and threads. Removes temporary files of a crashed writer."""
    try:
        lock = path.with_name(f".{path.name}.lock")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_MODE)
    except OSError as error:
        raise _unavailable_error(path, error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for leftover in path.parent.glob(f"{_temporary_prefix(path)}*"):
            leftover.unlink(missing_ok=True)
        yield
    finally:
        os.close(descriptor)


def stamp(path: Path) -> tuple[int, int, int, int]:
    """A value that changes if the file is written, replaced, or gets another mode. It only serves to be compared."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        raise _missing_error(path) from None
    except OSError as error:
        raise _unavailable_error(path, error) from None
    return found.st_ino, found.st_mtime_ns, found.st_size, found.st_ctime_ns


def file_exists_error(path: Path) -> PvdmError:
    """The error for an existing file, which is not overwritten."""
    return Code.KEY_FILE_REFUSED(f"{path.name} exists already", reason="key_file_exists", got=str(path))


def _require_safe(path: Path, found: os.stat_result, *, private: bool) -> None:
    """The file is plain, belongs to this user, and has a mode that `read_own` allows."""
    if not stat.S_ISREG(found.st_mode):
        raise _not_plain_error(path, stat.filemode(found.st_mode))
    if found.st_uid != os.geteuid():
        message, owner = f"{path.name} belongs to another user", f"user {found.st_uid}"
        raise Code.KEY_FILE_REFUSED(message, reason="key_file_owner", expected=f"user {os.geteuid()}", got=owner)
    mode = stat.S_IMODE(found.st_mode)
    got = f"mode {mode:04o}"
    if private and mode != PRIVATE_MODE:
        message = f"{path.name} does not have the mode with which it was created: others may be able to read it"
        hint = f"find out who could read it; then chmod 600 {path.name}, or create new keys"
        raise Code.KEY_FILE_REFUSED(message, reason="key_file_mode", expected="mode 0600", got=got, hint=hint)
    if mode & 0o022:
        message, expected = f"{path.name} may be written by others", "no write for group and others"
        raise Code.KEY_FILE_REFUSED(message, reason="key_file_mode", expected=expected, got=got)


def _temporary_prefix(path: Path) -> str:
    return f".{path.name}.new-"


def _write_synced(path: Path, content: Secret, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # the umask may have cleared bits of the mode, which `read_own` checks
        file.write(content.reveal())
        file.flush()
        os.fsync(descriptor)


def _sync_folder(path: Path) -> None:
    try:
        sync_folder(path.parent)
    except OSError as error:
        message = f"{path.name} was written, but its folder could not be synced"
        raise Code.KEY_FILE_UNSYNCED(message, got=str(error.strerror)) from None


def _missing_error(path: Path) -> PvdmError:
    return Code.KEY_FILE_MISSING(f"{path.name} does not exist", expected=str(path), got="nothing")


def _not_plain_error(path: Path, got: str) -> NotAllowedError:
    return NotAllowedError("key_file_kind", f"{path.name} is not a plain file", expected="a plain file", got=got)


def _unavailable_error(path: Path, error: OSError) -> PvdmError:
    return Code.KEY_FILE_UNAVAILABLE(f"{path.name} cannot be used", got=str(error.strerror))
