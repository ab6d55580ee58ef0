"""Locations of files in one normal form, and errors that name the file they are about."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pvdm.errors import Code, InputError, VerificationError

LOCATION_MAX_CHARACTERS: Final = 4_096
_CACHED_MAX: Final = 4_096
_CACHED_MAX_CHARACTERS: Final = 512

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_ALIASES: Final = {"s3a": "s3", "s3n": "s3"}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
# A star would mean every bucket in a policy, and a name before an @ is a credential.
_AUTHORITY: Final = re.compile(r"[A-Za-z0-9._:\[\]-]+")
# An escaped letter, digit or dot would be a second name of a file, and some readers take an escaped slash as a folder.
_NEEDLESS: Final = re.compile(r"%(?:3[0-9]|[46][1-9a-f]|[57][0-9a]|2[def]|5f)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Location:
    """A place in normal form: scheme, authority (a bucket, or nothing), and path parts without `.` or `..`."""

    scheme: str
    authority: str
    parts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}/{'/'.join(self.parts)}"

    def is_under(self, folder: Location) -> bool:
        """Whether this is the folder itself or a place in it."""
        same = (self.scheme, self.authority) == (folder.scheme, folder.authority)
        return same and self.parts[: len(folder.parts)] == folder.parts

    def overlaps(self, other: Location) -> bool:
        """Whether one of the two is in the other, or both are the same."""
        return self.is_under(other) or other.is_under(self)

    @property
    def parent(self) -> Location:
        """The folder that this is in."""
        return Location(self.scheme, self.authority, self.parts[:-1])

    def around(self) -> Iterator[Location]:
        """This place, and every folder around it."""
        for end in range(len(self.parts), -1, -1):
            yield Location(self.scheme, self.authority, self.parts[:end])

    def child(self, *parts: str) -> Location:
        """A place inside this one."""
        return Location(self.scheme, self.authority, (*self.parts, *parts))

    def link_below(self, folder: Location) -> Path | None:
        """The first symbolic link between the folder and this place; None if there is none, or in an object store."""
        if self.scheme != "file" or not self.is_under(folder):
            return None
        path = str(folder.local)
        for part in self.parts[len(folder.parts) :]:
            path = os.path.join(path, part)  # noqa: PTH118 - runs in every commit, and is several times as fast
            if os.path.islink(path):  # noqa: PTH114 - False for names that the system cannot have
                return Path(path)
        return None

    @property
    def local(self) -> Path:
        """The path on this machine. Raises for other schemes than `file`."""
        if self.scheme != "file":
            raise _invalid("a local file", str(self))
        return Path("/", *self.parts)


def parse_location(text: str) -> Location:
    """The normal form of a location. Raises if it has `..`, control characters or needless percent escapes."""
    return _parse_short(text) if len(text) <= _CACHED_MAX_CHARACTERS else _parse(text)


def _parse(text: str) -> Location:
    if not 0 < len(text) <= LOCATION_MAX_CHARACTERS or _CONTROL.search(text):
        raise _invalid(f"1 to {LOCATION_MAX_CHARACTERS} printable characters", text)
    found = _SCHEME.fullmatch(text)
    scheme, rest = ("file", text) if found is None else (found[1].lower(), found[2])
    scheme = _ALIASES.get(scheme, scheme)
    if scheme == "file":
        return _file(rest, text)
    if not rest.startswith("//"):
        raise _invalid("scheme://bucket/key", text)
    authority, _, path = rest[2:].partition("/")
    # A bucket has no port: a colon starts the secret of a credential that a slash cuts off.
    if _AUTHORITY.fullmatch(authority) is None or (scheme == "s3" and ":" in authority):
        raise _invalid("a bucket by its plain name, without credentials", text)
    # In an object store `a//b` is another object than `a/b`, and both would have one normal form.
    if "" in path.rstrip("/").split("/")[:-1] or path.startswith("/") or path.endswith("//"):
        raise _invalid("a path without empty parts", text)
    return Location(scheme, authority, _parts(path, text))


# Every commit has the same paths of lists, manifests and folders. Errors are not cached.
_parse_short: Final = functools.lru_cache(maxsize=_CACHED_MAX)(_parse)


def _file(rest: str, text: str) -> Location:
    if rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        if authority not in ("", "localhost") or not slash:
            raise _invalid("an absolute path on this machine", text)
        rest = f"/{path}"
    if not rest.startswith("/"):
        raise _invalid("an absolute path", text)
    return Location("file", "", _parts(rest, text))


def _parts(path: str, text: str) -> tuple[str, ...]:
    if any(mark in path for mark in ("?", "#", "\\")):
        raise _invalid("a plain path", text)
    parts = tuple(part for part in path.split("/") if part)
    for part in parts:
        if part in (".", ".."):
            raise _invalid("a path without `.` and `..`", text)
        if _NEEDLESS.search(part):
            raise _invalid("a path without needless percent signs", text)
    return parts


def _invalid(expected: str, text: str) -> InputError:
    # A location may hold a credential, which must not get into a log.
    shown = re.sub(r"\?.*", "?...", re.sub(r"//.*@", "//...@", text, flags=re.DOTALL), flags=re.DOTALL)
    return InputError(Code.LOCATION_INVALID, "the location is not valid", expected=expected, got=ascii(shown[:200]))


_HINTS: Final[dict[str, str]] = {
    Code.FIELD_ID_MISSING: (
        "files of a source need Iceberg's field ids: write it as an Iceberg table, or with field ids"
    ),
    Code.FIELD_NAME_UNKNOWN: (
        "a file without field ids is read by exact names: put the column into the manifest's schema"
    ),
}


@contextlib.contextmanager
def in_file(location: str) -> Iterator[None]:
    """Add the file's location to errors that are raised inside."""
    try:
        yield
    except (InputError, VerificationError) as error:
        if "file" in error.details:
            raise
        raise type(error)(
            error.reason,
            f"{location}: {error.message}",
            expected=error.expected,
            got=error.got,
            hint=error.hint or _HINTS.get(error.reason),
            **error.details,
            file=location,
        ) from None
