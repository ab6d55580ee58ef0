"""The catalog's tables: namespaces, tables, views, requests, files to delete, and publications to upstream catalogs."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from sqlalchemy import Column, ForeignKey, ForeignKeyConstraint, Index, Text

from pvdm.ledger.schema import hex_text, index_where, number, one_of, state_column, table, time, word, words
from pvdm.model.states import ANNOUNCED

namespaces: Final = table(
    "namespaces",
    word("namespace_id", primary_key=True),
    *words("levels", "parent", "domain"),
    word("properties", changes=True),
    word("protected_by", nullable=True, changes=True),
    number("dropped_micros", nullable=True, changes=True),
    time(),
    *hex_text(32, "namespace_id"),
    Index("namespaces_parent", "parent"),
)
_LIVE: Final = "dropped_micros IS NULL"
index_where("namespaces_levels_once", _LIVE, namespaces.c.levels, unique=True)

tables: Final = table(
    "tables",
    word("table_id", primary_key=True),
    word("namespace_id", ForeignKey("namespaces.namespace_id"), changes=True),
    word("name", changes=True),
    *words("domain", "table_uuid"),
    word("location", changes=True),
    # Both databases order it byte by byte, so that a common prefix is a range.
    Column("place", Text().with_variant(Text(collation="C"), "postgresql"), nullable=False, info={"changes": True}),
    *words("metadata_location", "metadata_sha256", changes=True),
    word("previous_location", nullable=True, changes=True),
    number("revision", changes=True),
    word("upstream", nullable=True),  # the upstream that owns the table; the pointer here is the last one seen there
    word("contract_hash", nullable=True, changes=True),
    number("protected_micros", nullable=True, changes=True),
    number("dropped_micros", nullable=True, changes=True),
    time(),
    *hex_text(32, "table_id"),
    *hex_text(64, "metadata_sha256"),
)
index_where("tables_name_once", _LIVE, tables.c.namespace_id, tables.c.name, unique=True)
index_where("tables_uuid_once", _LIVE, tables.c.table_uuid, unique=True)
Index("tables_uuid", tables.c.table_uuid)
index_where("tables_place", _LIVE, tables.c.place)
index_where("tables_place_dropped", "dropped_micros IS NOT NULL", tables.c.place)
# Proofs, claims and nonces name a protected table by its UUID: no second table ever has it.
index_where("tables_protected_uuid_once", "protected_micros IS NOT NULL", tables.c.table_uuid, unique=True)


class StagedKind(StrEnum):
    """What a producer makes on a protected table."""

    BRANCH = "branch"
    SNAPSHOT = "snapshot"


staging_owners: Final = table(
    "staging_owners",
    word("table_id", ForeignKey("tables.table_id"), primary_key=True),
    *words("kind", "name", primary_key=True),
    word("owner", changes=True),
    time(),
    one_of("kind", StagedKind),
    unlogged=None,  # the row itself holds owner and time, and every commit adds some
)

pending_deletes: Final = table(
    "pending_deletes",
    word("name", primary_key=True),
    word("table_uuid"),
    time(),
    unlogged=None,  # the row itself holds name and time
)

catalog_requests: Final = table(
    "catalog_requests",
    *words("identity", "idempotency_key", primary_key=True),
    word("request_sha256"),
    number("status"),
    word("answer"),
    time(),
    Index("catalog_requests_at_micros", "at_micros"),
    unlogged=("answer",),
    deletable=True,
)


views: Final = table(
    "views",
    word("view_id", primary_key=True),
    word("namespace_id", ForeignKey("namespaces.namespace_id"), changes=True),
    word("name", changes=True),
    *words("domain", "view_uuid"),
    *words("location", "metadata_location", "metadata_sha256", changes=True),
    number("revision", changes=True),
    number("dropped_micros", nullable=True, changes=True),
    time(),
    *hex_text(32, "view_id"),
    *hex_text(64, "metadata_sha256"),
)
index_where("views_name_once", _LIVE, views.c.namespace_id, views.c.name, unique=True)
index_where("views_uuid_once", _LIVE, views.c.view_uuid, unique=True)


announced: Final = table(
    "announced",
    word("announced_id", primary_key=True),
    word("table_uuid"),
    word("workload_id", ForeignKey("workloads.workload_id")),
    word("snapshot_id"),
    word("override_nonce", nullable=True),
    *words("holder", "order_text"),
    *state_column(ANNOUNCED),
    word("reason", changes=True),
    time(),
    *hex_text(32, "announced_id"),
    unlogged=("order_text",),
)
# One open publication for each table, across Stewards.
index_where("announced_open_once", "state = 'OPEN'", announced.c.table_uuid, unique=True)
Index("announced_snapshot_once", announced.c.table_uuid, announced.c.snapshot_id, unique=True)
index_where("announced_open", "state = 'OPEN'", announced.c.state)

announced_attempts: Final = table(
    "announced_attempts",
    word("announced_id", ForeignKey("announced.announced_id"), primary_key=True),
    word("attempt_id", primary_key=True),
    word("nonce"),
    time(),
    ForeignKeyConstraint(["attempt_id", "nonce"], ["nonces.attempt_id", "nonces.nonce"]),
    Index("announced_attempts_attempt_id", "attempt_id"),
)

known_snapshots: Final = table(
    "known_snapshots",
    *words("table_uuid", "snapshot_id", "facts_sha256", primary_key=True),
    word("structure_sha256"),
    time(),
    *hex_text(64, "facts_sha256", "structure_sha256"),
    unlogged=None,  # a history may be long; the protection or publication behind it is logged
)
