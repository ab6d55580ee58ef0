"""Collects the lines that a Steward logs while a test runs."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from typing import Any

from pvdm.steward.logs import LOGGER


class LogLines(logging.Handler):
    """Keeps every line, as text (`texts`) and as parsed JSON (`found`)."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())

    @property
    def parsed(self) -> list[dict[str, Any]]:
        """Every line, oldest first."""
        return [json.loads(text) for text in self.texts]

    def select(self, *events: str) -> list[dict[str, Any]]:
        """The lines of these events."""
        return [line for line in self.parsed if line["event"] in events]


@contextlib.contextmanager
def collected_lines() -> Iterator[LogLines]:
    """Collect what is logged from level INFO on."""
    handler, before = LogLines(), LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    try:
        yield handler
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(before)
