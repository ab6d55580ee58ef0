"""Read-only SQL views in the layout of PyIceberg's SqlCatalog, for operators and auditors who read the ledger itself.

That layout joins the levels of a namespace by dots, so that `("a", "b")` and `("a.b",)` would be one. A namespace with
a dot in one of its levels is therefore not in the two views of the layout; `iceberg_left_out` names each such one with
its levels and says how many tables and views it holds. A dot in a table's name does no harm: that is a column.
Tables of upstream catalogs are in none of them: the ledger does not have their pointers.
"""

from __future__ import annotations

from typing import Final

LAYOUT_CATALOG: Final = "pvdm"
"""The layout's `catalog_name`: one ledger holds one catalog."""

LAYOUT_VIEWS: Final = ("iceberg_tables", "iceberg_namespace_properties", "iceberg_left_out")

# What the two databases say differently: a namespace's levels joined, one of them with a dot, its properties as rows.
_JOINED: Final = {
    "sqlite": "(SELECT group_concat(value, '.') FROM (SELECT value FROM json_each(n.levels) ORDER BY key))",
    "postgresql": "(SELECT string_agg(level, '.' ORDER BY at)"
    " FROM json_array_elements_text(n.levels::json) WITH ORDINALITY AS each_level (level, at))",
}
_DOTTED: Final = {
    "sqlite": "EXISTS (SELECT 1 FROM json_each(n.levels) WHERE instr(value, '.') > 0)",
    "postgresql": "EXISTS (SELECT 1 FROM json_array_elements_text(n.levels::json) AS level"
    " WHERE strpos(level, '.') > 0)",
}
_PROPERTIES: Final = {
    "sqlite": "json_each(n.properties)",
    "postgresql": "json_each_text(n.properties::json) AS property (key, value)",
}
_NONE: Final = "'{}'"


def views(dialect: str) -> list[str]:
    """The statements that make them; neither database writes through a union or a DISTINCT."""
    joined, dotted, properties = _JOINED[dialect], _DOTTED[dialect], _PROPERTIES[dialect]
    return [
        f"""CREATE VIEW iceberg_tables AS
SELECT '{LAYOUT_CATALOG}' AS catalog_name,
    {joined} AS table_namespace,
    t.name AS table_name,
    t.metadata_location AS metadata_location,
    t.previous_location AS previous_metadata_location,
    'TABLE' AS iceberg_type
FROM tables t JOIN namespaces n ON n.namespace_id = t.namespace_id
WHERE t.dropped_micros IS NULL AND t.upstream IS NULL AND NOT {dotted}
UNION ALL
SELECT '{LAYOUT_CATALOG}', {joined}, v.name, v.metadata_location, NULL, 'VIEW'
FROM views v JOIN namespaces n ON n.namespace_id = v.namespace_id
WHERE v.dropped_micros IS NULL AND NOT {dotted}""",  # noqa: S608 - no value in it
        f"""CREATE VIEW iceberg_namespace_properties AS
SELECT '{LAYOUT_CATALOG}' AS catalog_name,
    {joined} AS namespace,
    key AS property_key,
    value AS property_value
FROM namespaces n, {properties}
WHERE n.dropped_micros IS NULL AND NOT {dotted}
UNION ALL
SELECT '{LAYOUT_CATALOG}', {joined}, 'exists', 'true'
FROM namespaces n
WHERE n.dropped_micros IS NULL AND n.properties = {_NONE} AND NOT {dotted}""",  # noqa: S608 - no value in it
        f"""CREATE VIEW iceberg_left_out AS
SELECT DISTINCT '{LAYOUT_CATALOG}' AS catalog_name,
    n.levels AS levels,
    (SELECT count(*) FROM tables t WHERE t.namespace_id = n.namespace_id AND t.dropped_micros IS NULL
        AND t.upstream IS NULL) AS table_count,
    (SELECT count(*) FROM views v WHERE v.namespace_id = n.namespace_id AND v.dropped_micros IS NULL) AS view_count
FROM namespaces n
WHERE n.dropped_micros IS NULL AND {dotted}""",  # noqa: S608 - no value in it  # noqa: S608 - no value in it
    ]
