"""Schemas in files: Iceberg's JSON of a schema, a table's metadata, or a manifest of source files."""

from __future__ import annotations

from typing import Any

from pvdm.errors import Code


def iceberg_schema(value: Any, named: str) -> dict[str, Any]:
    """Iceberg's JSON of the schema that the document holds; of a table's metadata the current one."""
    match value:
        case {"kind": _, "schema": dict(found)}:
            return dict(found)
        case {"type": "struct", "fields": list()}:
            return dict(value)
        case {"schemas": list(schemas), "current-schema-id": wanted}:
            for each in schemas:
                if isinstance(each, dict) and each.get("schema-id") == wanted:
                    return dict(each)
    raise Code.SCHEMA_FILE_INVALID(
        f"{named} has no schema",
        expected="Iceberg's schema, a table's metadata, or a manifest of source files",
        got="something else",
    )
