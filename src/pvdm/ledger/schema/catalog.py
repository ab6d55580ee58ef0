"""The catalog's tables: namespaces, the tables' pointers, files that are to go, and answers for repeated requests."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from sqlalchemy import ForeignKey, Index, text

from pvdm.ledger.schema.columns import exact, hex_text, number, one_of, table, time, word

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
    exact("place"),
    word("metadata_location"),
    word("metadata_sha256"),
    word("previous_location", nullable=True),
    number("revision"),
    word("upstream", nullable=True),  # the catalog that has the pointer; what is here of it was only seen
    word("contract_hash", nullable=True),
    number("protected_micros", nullable=True),
    number("dropped_micros", nullable=True),
    time(),
    *hex_text("table_id", 32),
    *hex_text("metadata_sha256", 64),
    changes=(
        "namespace_id",
        "name",
        "location",
        "place",
        "metadata_location",
        "metadata_sha256",
        "previous_location",
        "revision",
        "contract_hash",
        "protected_micros",
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
Index("tables_uuid", tables.c.table_uuid)
Index("tables_place", tables.c.place, sqlite_where=_there, postgresql_where=_there)
_gone = text("dropped_micros IS NOT NULL")
Index("tables_place_dropped", tables.c.place, sqlite_where=_gone, postgresql_where=_gone)
# Proofs, claims and nonces name a protected table by its UUID: no second table ever has it.
_gated = text("protected_micros IS NOT NULL")
Index("tables_protected_uuid_once", tables.c.table_uuid, unique=True, sqlite_where=_gated, postgresql_where=_gated)


class StagedKind(StrEnum):
    """What a producer makes on a protected table."""

    BRANCH = "branch"
    SNAPSHOT = "snapshot"


staging_makers: Final = table(
    "staging_makers",
    word("table_id", ForeignKey("tables.table_id"), primary_key=True),
    word("kind", primary_key=True),
    word("name", primary_key=True),
    word("maker"),
    time(),
    one_of("kind", StagedKind),
    changes=("maker", "at_micros"),
    unlogged=None,  # the row says who and when, and every commit adds some
)

doomed_files: Final = table(
    "doomed_files",
    word("name", primary_key=True),
    word("table_uuid"),
    time(),
    unlogged=None,  # the row says which and when
)

catalog_requests: Final = table(
    "catalog_requests",
    word("identity", primary_key=True),
    word("idempotency_key", primary_key=True),
    word("request_sha256"),
    number("status"),
    word("answer"),
    time(),
    Index("catalog_requests_at_micros", "at_micros"),
    unlogged=("answer",),
    passing=True,
)
