"""View documents and updates that tests start from."""

from __future__ import annotations

from typing import Any

from tests.support.lake.metadata import LOCATION, NOW, UUID, column, schema

Doc = dict[str, Any]

SCHEMA = schema(0, column(1, "id"))
OTHER = schema(7, column(1, "id"), column(2, "town", "string"))


def query(sql: str = "select 1", dialect: str = "spark") -> Doc:
    return {"type": "sql", "sql": sql, "dialect": dialect}


def version(version_id: int = 1, *queries: Doc, schema_id: int = 0, **more: Any) -> Doc:
    return {
        "version-id": version_id,
        "timestamp-ms": NOW + version_id,
        "schema-id": schema_id,
        "summary": {"engine-name": "spark"},
        "default-namespace": ["sales"],
        "representations": list(queries) or [query(f"select {version_id}")],
        **more,
    }


def request(name: str = "v", *queries: Doc, **more: Any) -> Doc:
    """The request that an engine sends for CREATE VIEW."""
    return {"name": name, "schema": SCHEMA, "view-version": version(1, *queries), "properties": {}, **more}


def document(**more: Any) -> Doc:
    """A view document of two versions, with an unknown field at every level."""
    first, second = version(1), version(2, surprise=True)
    return {
        "view-uuid": UUID,
        "format-version": 1,
        "location": LOCATION,
        "properties": {"comment": "orders of a week"},
        "schemas": [{**SCHEMA, "surprise": 1}],
        "current-version-id": 2,
        "versions": [first, second],
        "version-log": [
            {"timestamp-ms": NOW + 1, "version-id": 1},
            {"timestamp-ms": NOW + 2, "version-id": 2, "surprise": None},
        ],
        "surprise": [1, {"x": 1}],
        **more,
    }


def add_version(added: Doc) -> Doc:
    return {"action": "add-view-version", "view-version": added}


def set_current(version_id: int = -1) -> Doc:
    return {"action": "set-current-view-version", "view-version-id": version_id}


def replaced(version_id: int = 3, *queries: Doc, schema_id: int = 0) -> list[Doc]:
    """The updates that an engine sends for CREATE OR REPLACE VIEW."""
    return [add_version(version(version_id, *queries, schema_id=schema_id)), set_current()]
