"""Errors told with the name of the file that they are about."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from pvdm.errors import InputError, VerificationError

_HINTS: Final = {
    "field_id_missing": "files of a source carry Iceberg's field ids: write it as an Iceberg table, or with field ids",
    "field_name_unknown": "a file without field ids is read by exact names: put the column into the manifest's schema",
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
            error.code,
            f"{location}: {error.message}",
            expected=error.expected,
            got=error.got,
            hint=error.hint or _HINTS.get(error.code),
            **error.details,
            file=location,
        ) from None
