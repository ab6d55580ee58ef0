"""The session that all integration tests share; `tests/conftest.py` gives them all to one worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.spark.session import compiled_queries, spark

__all__ = ["compiled_queries", "spark"]

_HERE = Path(__file__).parent
# PySpark leaves the socket of every collected result to the collector, which warns of it.
_SOCKETS = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(_SOCKETS)
