"""The catalog's tables: namespaces, the tables' pointers, and answers kept for repeated requests."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ForeignKey, Index, text

from pvdm.store.columns import hex_text, number, table, time, word

namespaces: Final = table(
    "namespaces",
    word("namespace_id", primary_key=True),
    word("levels"),
    word("parent"),
    word("domain"),
    word("properties"),
    word("protected_by", nullable=True),
    number("dropped_micros", nullable=True),
    time(),
    *hex_text("namespace_id", 32),
    Index("namespaces_parent", "parent"),
    changes=("properties", "protected_by", "dropped_micros", "at_micros"),
)
_there = text("dropped_micros IS NULL")
Index("namespaces_levels_once", namespaces.c.levels, unique=True, sqlite_where=_there, postgresql_where=_there)

tables: Final = table(
    "tables",
    word("table_id", primary_key=True),
    word("namespace_id", ForeignKey("namespaces.namespace_id")),
    word("name"),
    word("domain"),
    word("table_uuid"),
    word("location"),
    word("metadata_location"),
    word("metadata_sha256"),
    word("previous_location", nullable=True),
    number("revision"),
    word("contract_hash", nullable=True),
    number("dropped_micros", nullable=True),
    time(),
    *hex_text("table_id", 32),
    *hex_text("metadata_sha256", 64),
    changes=(
        "namespace_id",
        "name",
        "location",
        "metadata_location",
        "metadata_sha256",
        "previous_location",
        "revision",
        "contract_hash",
        "dropped_micros",
        "at_micros",
    ),
)
Index(
    "tables_name_once",
    tables.c.namespace_id,
    tables.c.name,
    unique=True,
    sqlite_where=_there,
    postgresql_where=_there,
)
Index("tables_uuid_once", tables.c.table_uuid, unique=True, sqlite_where=_there, postgresql_where=_there)

catalog_requests: Final = table(
    "catalog_requests",
    word("identity", primary_key=True),
    word("idempotency_key", primary_key=True),
    word("request_sha256"),
    number("status"),
    word("answer"),
    time(),
    unlogged=("answer",),
)
