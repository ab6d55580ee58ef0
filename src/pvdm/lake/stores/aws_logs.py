"""Keeps what AWS's library sends and gets out of every log: session tokens and derived keys are in it."""

from __future__ import annotations

import logging
from typing import Final

# At level DEBUG these write headers and bodies to the log.
_TALKATIVE: Final = (
    "botocore.auth",
    "botocore.credentials",
    "botocore.endpoint",
    "botocore.hooks",
    "botocore.httpsession",
    "botocore.parsers",
    "botocore.retryhandler",
)


class _NoBodies(logging.Filter):
    """Lets nothing below INFO through."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record may be written."""
        return record.levelno >= logging.INFO


_no_bodies: Final = _NoBodies()


def quieten() -> None:
    """Whoever opens a client of the library calls this first; once more does no harm."""
    for name in _TALKATIVE:
        logging.getLogger(name).addFilter(_no_bodies)
