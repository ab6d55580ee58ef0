"""Iceberg's own Java library as a reader of metadata documents, called in the JVM of the running Spark session."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Doc = dict[str, Any]

_UNKNOWN = "x-"
"""Fields that tests make up begin with this; Java drops them, and nothing else."""


class JavaParser:
    """`TableMetadataParser`, from text to a table's metadata and back."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._parser = jvm.org.apache.iceberg.TableMetadataParser

    def reads(self, document: bytes) -> None:
        """Java takes the document, and what it would write is what it read."""
        ours = json.loads(document)
        theirs = json.loads(self._parser.toJson(self._parser.fromJson(document.decode())))
        assert _known(ours) == _known(theirs)


def _known(document: Doc) -> Doc:
    """Without what tests made up, and with one spelling of what has several."""
    found: Doc = _without_unknown(document)
    for key in ("statistics", "partition-statistics", "snapshots", "snapshot-log", "metadata-log", "encryption-keys"):
        found.setdefault(key, [])
    if found.get("current-snapshot-id") in (None, -1):
        found["current-snapshot-id"] = None
    for snapshot in found["snapshots"]:
        # Snapshots of format 1 have none; the number that Java writes for them then is 0.
        snapshot.setdefault("sequence-number", 0)
    return found


def _without_unknown(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_unknown(each) for key, each in value.items() if not key.startswith(_UNKNOWN)}
    return [_without_unknown(each) for each in value] if isinstance(value, list) else value
