"""Errors told with the name of the file that they are about."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from pvdm.errors import Code, InputError, VerificationError

_HINTS: Final[dict[str, str]] = {
    Code.FIELD_ID_MISSING: (
        "files of a source carry Iceberg's field ids: write it as an Iceberg table, or with field ids"
    ),
    Code.FIELD_NAME_UNKNOWN: (
        "a file without field ids is read by exact names: put the column into the manifest's schema"
    ),
}


@contextlib.contextmanager
def in_file(location: str) -> Iterator[None]:
    """What is wrong with a file is told with the file's name."""
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
