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
_CACHED_LOCATIONS_MAX: Final = 4_096
_CACHED_LOCATION_MAX_CHARACTERS: Final = 512  # longer locations are parsed each time

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_SCHEME_ALIASES: Final = {"s3a": "s3", "s3n": "s3"}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
# Without `*`, which in an access policy would mean every bucket, and without `@`, which follows a credential.
_AUTHORITY: Final = re.compile(r"[A-Za-z0-9._:\[\]-]+")
# An escaped letter, digit or dot would be a second name of a file. Some readers take an escaped slash for a separator.
_NEEDLESS_ESCAPE: Final = re.compile(r"%(?:3[0-9]|[46][1-9a-f]|[57][0-9a]|2[def]|5f)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Location:
    """A file or folder in normal form: scheme, authority (a bucket, or nothing), path parts without `.` or `..`."""

    scheme: str
    authority: str
    parts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}/{'/'.join(self.parts)}"

    def is_under(self, folder: Location) -> bool:
        """Whether this is the folder itself or in it."""
        same_store = (self.scheme, self.authority) == (folder.scheme, folder.authority)
        return same_store and self.parts[: len(folder.parts)] == folder.parts

    def overlaps(self, other: Location) -> bool:
        """Whether one of the two is in the other, or both are the same."""
        return self.is_under(other) or other.is_under(self)

    @property
    def parent(self) -> Location:
        """The folder that this is in."""
        return Location(self.scheme, self.authority, self.parts[:-1])

    @property
    def without_links(self) -> Location:
        """This location after resolving symbolic links, if it is on this machine."""
        return self if self.scheme != "file" else Location("file", "", Path(os.path.realpath(self.local)).parts[1:])

    def self_and_parents(self) -> Iterator[Location]:
        """This location, and every folder that contains it, innermost first."""
        for end in range(len(self.parts), -1, -1):
            yield Location(self.scheme, self.authority, self.parts[:end])

    def child(self, *parts: str) -> Location:
        """A location below this folder."""
        return Location(self.scheme, self.authority, (*self.parts, *parts))

    def link_below(self, folder: Location) -> Path | None:
        """The first symbolic link on the path from the folder to this location; None if there is none."""
        if self.scheme != "file" or not self.is_under(folder):
            return None
        path = str(folder.local)
        for part in self.parts[len(folder.parts) :]:
            path = os.path.join(path, part)  # noqa: PTH118 - runs in every commit; Path is several times slower
            if os.path.islink(path):  # noqa: PTH114 - False for a name that is too long, where Path may raise
                return Path(path)
        return None

    @property
    def local(self) -> Path:
        """The path on this machine. Raises for other schemes than `file`."""
        if self.scheme != "file":
            raise _invalid("a local file", str(self))
        return Path("/", *self.parts)


@dataclass(frozen=True, slots=True)
class Pointer:
    """A metadata file: its location and the SHA-256 of its bytes."""

    location: str
    sha256: str

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.location.rpartition("/")[2]


def parse_location(text: str) -> Location:
    """The normal form of a location. Raises for example for relative paths, `..`, credentials and needless escapes."""
    return _parse_cached(text) if len(text) <= _CACHED_LOCATION_MAX_CHARACTERS else _parse(text)


def _parse(text: str) -> Location:
    if not 0 < len(text) <= LOCATION_MAX_CHARACTERS or _CONTROL.search(text):
        raise _invalid(f"1 to {LOCATION_MAX_CHARACTERS} printable characters", text)
    found = _SCHEME.fullmatch(text)
    scheme, rest = ("file", text) if found is None else (found[1].lower(), found[2])
    scheme = _SCHEME_ALIASES.get(scheme, scheme)
    if scheme == "file":
        return _parse_file(rest, text)
    if not rest.startswith("//"):
        raise _invalid("scheme://bucket/key", text)
    authority, _, path = rest[2:].partition("/")
    # A bucket has no port. A colon may belong to a credential whose secret has a slash: `key:sec/ret@bucket`.
    if _AUTHORITY.fullmatch(authority) is None or (scheme == "s3" and ":" in authority):
        raise _invalid("a bucket by its plain name, without credentials", text)
    # In an object store `a//b` is another object than `a/b`, but both would have the same normal form.
    if path.startswith("/") or "//" in path:
        raise _invalid("a path without empty parts", text)
    return Location(scheme, authority, _split(path, text))


# Commits to one table repeat the paths of lists, manifests and folders. Errors are not cached.
_parse_cached: Final = functools.lru_cache(maxsize=_CACHED_LOCATIONS_MAX)(_parse)


def _parse_file(rest: str, text: str) -> Location:
    """The local file of a location: `rest` is the part after the scheme; `text` is the whole location, for errors."""
    if rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        if authority not in ("", "localhost") or not slash:
            raise _invalid("an absolute path on this machine", text)
        rest = f"/{path}"
    if not rest.startswith("/"):
        raise _invalid("an absolute path", text)
    return Location("file", "", _split(rest, text))


def _split(path: str, text: str) -> tuple[str, ...]:
    """The parts of the path, checked; `text` is the whole location, for errors."""
    if any(mark in path for mark in ("?", "#", "\\")):
        raise _invalid("a path without `?`, `#` and backslashes", text)
    parts = tuple(part for part in path.split("/") if part)
    for part in parts:
        if part in (".", ".."):
            raise _invalid("a path without `.` and `..`", text)
        if _NEEDLESS_ESCAPE.search(part):
            raise _invalid("a path without percent escapes of letters, digits, `-`, `.`, `/` and `_`", text)
    return parts


def _invalid(expected: str, text: str) -> InputError:
    # A location may hold a credential, which must not get into a log.
    redacted = re.sub(r"\?.*", "?...", re.sub(r"//.*@", "//...@", text, flags=re.DOTALL), flags=re.DOTALL)
    return InputError(Code.LOCATION_INVALID, "the location is not valid", expected=expected, got=ascii(redacted[:200]))


# Key: the reason of an error. Value: its hint.
_HINTS: Final[dict[str, str]] = {
    "field_id_missing": "write the source as an Iceberg table, or write its files with Iceberg's field ids",
    "field_name_unknown": "a file without field ids is read by exact names: put the column into the manifest's schema",
}


@contextlib.contextmanager
def in_file(location: str) -> Iterator[None]:
    """Add the file's location, and a hint if there is one, to errors of the `with` block that name no file yet."""
    try:
        yield
    except (InputError, VerificationError) as error:
        if "file" in error.details:
            raise
        raise error.with_context(f"{location}: {error.message}", hint=_HINTS.get(error.reason), file=location) from None
