"""The credential by which Spark's reader reads a store: in a file of the Steward's user, while one job runs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pvdm.lake.stores.s3_client import ACCESS_KEY_ID, SECRET_ACCESS_KEY, SESSION_TOKEN

FILE_VARIABLE: Final = "AWS_SHARED_CREDENTIALS_FILE"
_NAME: Final = "store.credentials"
_WORDS: Final = {
    ACCESS_KEY_ID: "aws_access_key_id",
    SECRET_ACCESS_KEY: "aws_secret_access_key",
    SESSION_TOKEN: "aws_session_token",
}


def credential_file(scratch: Path) -> Path:
    """Where it lies, in the words of AWS's own files of profiles."""
    return scratch / _NAME


@contextlib.contextmanager
def lent(scratch: Path, store: Mapping[str, str] | None) -> Iterator[None]:
    """The file is there within; a job that reads local files alone has none."""
    path = credential_file(scratch)
    path.unlink(missing_ok=True)  # of a Steward that was killed
    if store is None:
        yield
        return
    lines = ["[default]", *(f"{word} = {store[name]}" for name, word in _WORDS.items() if name in store), ""]
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write("\n".join(lines))
        yield
    finally:
        path.unlink(missing_ok=True)
