"""The tables of operators' approvals: contracts, protections and migrations; none of their rows ever changes."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, LargeBinary, UniqueConstraint

from pvdm.ledger.schema.columns import hex_text, one_of, table, time, word


class ActionWord(StrEnum):
    """Into a contract or out of it."""

    PROTECT = "protect"
    UNPROTECT = "unprotect"


contracts: Final = table(
    "contracts",
    word("contract_sha256", primary_key=True),
    Column("body", LargeBinary(), nullable=False),
    word("statement_id", ForeignKey("statements.statement_id")),
    time(),
    *hex_text("contract_sha256", 64),
    unlogged=("body",),
)

# `found_sha256` binds the manifest list and the manifests that `main` showed when the table came under a contract.
protections: Final = table(
    "protections",
    word("protection_id", ForeignKey("statements.statement_id"), primary_key=True),
    word("action"),
    word("table_uuid", nullable=True),
    word("namespace_id", nullable=True),
    word("name"),
    word("domain"),
    word("contract_sha256"),
    word("operator"),
    word("nonce", ForeignKey("nonces.nonce")),
    word("found_sha256", nullable=True),
    time(),
    one_of("action", ActionWord),
    *hex_text("contract_sha256", 64),
    *hex_text("found_sha256", 64),
    CheckConstraint("(table_uuid IS NULL) <> (namespace_id IS NULL)", name="one_target"),
    UniqueConstraint("nonce", name="protections_nonce_once"),
    Index("protections_table_uuid", "table_uuid"),
    Index("protections_domain", "domain"),
)

# `metadata_sha256` is the file that the migration led to; of one that a restore brought back it is not known.
table_migrations: Final = table(
    "table_migrations",
    word("migration_id", ForeignKey("statements.statement_id"), primary_key=True),
    word("table_uuid"),
    word("name"),
    word("domain"),
    word("contract_sha256"),
    word("metadata_sha256", nullable=True),
    word("operator"),
    word("nonce", ForeignKey("nonces.nonce")),
    time(),
    *hex_text("contract_sha256", 64),
    UniqueConstraint("nonce", name="table_migrations_nonce_once"),
    Index("table_migrations_table_uuid", "table_uuid"),
    Index("table_migrations_domain", "domain"),
)
