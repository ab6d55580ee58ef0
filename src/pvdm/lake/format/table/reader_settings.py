"""Properties that a protected table may not have: readers would connect, sign or load code by them."""

from __future__ import annotations

from typing import Final

from pvdm.errors import Code
from pvdm.lake.format.table.metadata import TableMetadata

# What PyIceberg's readers of files take from a table's properties, and puts above the settings of its user.
_PREFIXES: Final = (
    "adls.",
    "auth.",
    "client.",
    "encryption.kms",
    "gcs.",
    "hdfs.",
    "header.",
    "hf.",
    "oauth2",
    "oss.",
    "rest.",
    "s3.",
    "ssl.",
)
_NAMES: Final = frozenset(
    {
        "credential",
        "default_netloc",
        "default_scheme",
        "io-impl",
        "py-catalog-impl",
        "py-io-impl",
        "token",
        "uri",
        "warehouse",
        "write.py-location-provider.impl",
    }
)


def is_reader_setting(name: str) -> bool:
    """Whether some reader uses a property of this name when it opens files."""
    plain = name.strip().lower()
    return plain in _NAMES or plain.startswith(_PREFIXES)


def require_no_reader_settings(metadata: TableMetadata) -> None:
    """Where files are read from, and by which code, is for the catalog and its user to say.

    PyIceberg puts a table's properties above the settings of its user: with `s3.endpoint` it reads the files from
    another address, which serves any rows, and with `py-io-impl` it loads a class.
    """
    found = sorted(name for name in metadata.properties if is_reader_setting(name))
    if found:
        raise Code.READER_SETTING_REFUSED(got=ascii(found[0][:80]))
