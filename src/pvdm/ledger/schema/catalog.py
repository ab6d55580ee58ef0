"""The catalog's tables: namespaces, tables, views, requests, files to delete, and publications to upstream catalogs."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from sqlalchemy import Column, ForeignKey, ForeignKeyConstraint, Index, Text

from pvdm.ledger import schema
from pvdm.model.states import ANNOUNCED

namespaces: Final = schema.table(
    "namespaces",
    schema.text_column("namespace_id", primary_key=True),
    *schema.text_columns("levels", "parent", "domain"),  # `levels`, `parent`: own and parent's levels, in JSON
    schema.text_column("properties", changes=True),
    schema.text_column("protected_by", nullable=True, changes=True),  # hash of the contract for new tables, or null
    schema.number_column("dropped_micros", nullable=True, changes=True),
    schema.time_column(),
    *schema.hex_checks(32, "namespace_id"),
    Index("namespaces_parent", "parent"),
)
_LIVE: Final = "dropped_micros IS NULL"
schema.index_where("namespaces_levels_once", _LIVE, namespaces.c.levels, unique=True)

tables: Final = schema.table(
    "tables",
    schema.text_column("table_id", primary_key=True),
    schema.text_column("namespace_id", ForeignKey("namespaces.namespace_id"), changes=True),
    schema.text_column("name", changes=True),
    *schema.text_columns("domain", "table_uuid"),
    schema.text_column("location", changes=True),
    # `place`: the location in normal form. Both databases sort it by bytes, so all places below a folder are a range.
    Column("place", Text().with_variant(Text(collation="C"), "postgresql"), nullable=False, info={"changes": True}),
    *schema.text_columns("metadata_location", "metadata_sha256", changes=True),
    schema.text_column("previous_location", nullable=True, changes=True),  # the metadata file before the current one
    schema.number_column("revision", changes=True),
    schema.text_column("upstream", nullable=True),  # the name of the upstream that owns the table, or null
    schema.text_column("contract_hash", nullable=True, changes=True),
    schema.number_column("protected_micros", nullable=True, changes=True),
    schema.number_column("dropped_micros", nullable=True, changes=True),
    schema.time_column(),
    *schema.hex_checks(32, "table_id"),
    *schema.hex_checks(64, "metadata_sha256"),
)
schema.index_where("tables_name_once", _LIVE, tables.c.namespace_id, tables.c.name, unique=True)
schema.index_where("tables_uuid_once", _LIVE, tables.c.table_uuid, unique=True)
Index("tables_uuid", tables.c.table_uuid)
schema.index_where("tables_place", _LIVE, tables.c.place)
schema.index_where("tables_place_dropped", "dropped_micros IS NOT NULL", tables.c.place)
# Proofs and claims name a protected table by its UUID. So no two tables that were ever protected have the same UUID.
schema.index_where("tables_protected_uuid_once", "protected_micros IS NOT NULL", tables.c.table_uuid, unique=True)


class StagedKind(StrEnum):
    """What a producer makes on a protected table."""

    BRANCH = "branch"
    SNAPSHOT = "snapshot"


# The producer who made each branch or snapshot of a protected table.
staging_owners: Final = schema.table(
    "staging_owners",
    schema.text_column("table_id", ForeignKey("tables.table_id"), primary_key=True),
    *schema.text_columns("kind", "name", primary_key=True),
    schema.text_column("owner", changes=True),
    schema.time_column(),
    schema.one_of_check("kind", StagedKind),
    in_step_log=False,  # every commit adds rows, and a row itself has owner and time
)

# Metadata files scheduled for deletion. No later commit may make such a file current, so rows are never deleted.
pending_deletes: Final = schema.table(
    "pending_deletes",
    schema.text_column("name", primary_key=True),
    schema.text_column("table_uuid"),
    schema.time_column(),
    in_step_log=False,  # the row itself holds name and time
)

# Requests with an idempotency key that were executed, and how they were answered.
catalog_requests: Final = schema.table(
    "catalog_requests",
    *schema.text_columns("identity", "idempotency_key", primary_key=True),
    schema.text_column("request_sha256"),
    schema.number_column("status"),
    schema.text_column("answer"),
    schema.time_column(),
    Index("catalog_requests_at_micros", "at_micros"),
    not_in_step_log=("answer",),
    deletable=True,
)

views: Final = schema.table(
    "views",
    schema.text_column("view_id", primary_key=True),
    schema.text_column("namespace_id", ForeignKey("namespaces.namespace_id"), changes=True),
    schema.text_column("name", changes=True),
    *schema.text_columns("domain", "view_uuid"),
    *schema.text_columns("location", "metadata_location", "metadata_sha256", changes=True),
    schema.number_column("revision", changes=True),
    schema.number_column("dropped_micros", nullable=True, changes=True),
    schema.time_column(),
    *schema.hex_checks(32, "view_id"),
    *schema.hex_checks(64, "metadata_sha256"),
)
schema.index_where("views_name_once", _LIVE, views.c.namespace_id, views.c.name, unique=True)
schema.index_where("views_uuid_once", _LIVE, views.c.view_uuid, unique=True)

# Publications that an upstream catalog is asked to make, stored before the request is sent.
announced: Final = schema.table(
    "announced",
    schema.text_column("announced_id", primary_key=True),
    schema.text_column("table_uuid"),
    schema.text_column("workload_id", ForeignKey("workloads.workload_id")),
    schema.text_column("snapshot_id"),
    schema.text_column("override_nonce", nullable=True),
    schema.text_column("holder"),  # the id of the process that sends the request
    schema.text_column("order_text"),  # JSON: the ledger's changes, to make once the upstream shows the snapshot
    *schema.state_column(ANNOUNCED),
    schema.text_column("reason", changes=True),
    schema.time_column(),
    *schema.hex_checks(32, "announced_id"),
    not_in_step_log=("order_text",),
)
# At most one publication to a table is open, across all Stewards.
schema.index_where("announced_open_once", "state = 'OPEN'", announced.c.table_uuid, unique=True)
Index("announced_snapshot_once", announced.c.table_uuid, announced.c.snapshot_id, unique=True)
schema.index_where("announced_open", "state = 'OPEN'", announced.c.state)

announced_attempts: Final = schema.table(
    "announced_attempts",
    schema.text_column("announced_id", ForeignKey("announced.announced_id"), primary_key=True),
    schema.text_column("attempt_id", primary_key=True),
    schema.text_column("nonce"),
    schema.time_column(),
    ForeignKeyConstraint(["attempt_id", "nonce"], ["nonces.attempt_id", "nonces.nonce"]),
    Index("announced_attempts_attempt_id", "attempt_id"),
)

# Snapshots that `main` of an upstream's protected table may have. `facts_sha256`: hash of the fields that readers use;
# `structure_sha256`: hash of the table's structure (schemas, partition specs and more) when the row was written.
known_snapshots: Final = schema.table(
    "known_snapshots",
    *schema.text_columns("table_uuid", "snapshot_id", "facts_sha256", primary_key=True),
    schema.text_column("structure_sha256"),
    schema.time_column(),
    *schema.hex_checks(64, "facts_sha256", "structure_sha256"),
    in_step_log=False,  # a protection may add many rows; the protection itself is logged
)
