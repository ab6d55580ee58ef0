"""Iceberg's own Java library as a reader of metadata documents, called in the JVM of the running Spark session."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Doc = dict[str, Any]

_UNKNOWN = "x-"
"""The names of fields that tests invent begin with this. Java drops these fields, and no others."""


class JavaParser:
    """Java's `TableMetadataParser`: parses a metadata document and writes it again."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._parser = jvm.org.apache.iceberg.TableMetadataParser

    def require_unchanged(self, document: bytes) -> None:
        """Require that Java parses the document, and writes the same facts again."""
        ours = json.loads(document)
        theirs = json.loads(self._parser.toJson(self._parser.fromJson(document.decode())))
        assert _comparable(ours) == _comparable(theirs)


def _comparable(document: Doc) -> Doc:
    """The document without invented fields. A field that is left out or has several spellings gets one value."""
    found: Doc = _without_unknown(document)
    for key in ("statistics", "partition-statistics", "snapshots", "snapshot-log", "metadata-log", "encryption-keys"):
        found.setdefault(key, [])
    if found.get("current-snapshot-id") in (None, -1):
        found["current-snapshot-id"] = None
    for snapshot in found["snapshots"]:
        # Snapshots of format 1 have no sequence number. Java writes 0 for them.
        snapshot.setdefault("sequence-number", 0)
    return found


def _without_unknown(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_unknown(each) for key, each in value.items() if not key.startswith(_UNKNOWN)}
    return [_without_unknown(each) for each in value] if isinstance(value, list) else value
