"""The tables of the record: step log, transparency log, statements, approvals, tokens, restores and shared settings."""

from __future__ import annotations

from typing import Final

from sqlalchemy import CheckConstraint, Column, ForeignKey, ForeignKeyConstraint, Identity, Index, UniqueConstraint

from pvdm.ledger.schema import big, binary, hex_text, number, one_of, table, time, word, words
from pvdm.model.role import Role
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.migration import ProtectionAction
from pvdm.model.statements.verdict import Outcome

events: Final = table(
    "events",
    Column("event_id", big(), Identity(always=True), primary_key=True),
    time(),
    *words("kind", "subject", "row_key"),
    *words("old", "new", nullable=True),
    Index("events_at_micros", "at_micros"),
    Index("events_subject", "subject", "row_key"),
    unlogged=None,
    sqlite_autoincrement=True,
)

log_entries: Final = table(
    "log_entries",
    number("entry_index", primary_key=True, autoincrement=False),
    binary("entry"),
    unlogged=None,
)

log_hashes: Final = table(
    "log_hashes",
    number("level", primary_key=True, autoincrement=False),
    number("position", primary_key=True, autoincrement=False),
    binary("hash"),
    CheckConstraint("length(hash) = 32", name="hash_length"),
    unlogged=None,
)

log_checkpoints: Final = table(
    "log_checkpoints",
    number("size", primary_key=True, autoincrement=False),
    binary("note"),
    unlogged=None,
)

statements: Final = table(
    "statements",
    word("statement_id", primary_key=True),
    word("kind"),
    binary("envelope"),
    number("log_index", ForeignKey("log_entries.entry_index")),
    time(),
    *hex_text(64, "statement_id"),
    one_of("kind", StatementKind),
    UniqueConstraint("log_index", name="statements_log_index_once"),
    Index("statements_kind", "kind"),
    unlogged=("envelope",),
)

proofs: Final = table(
    "proofs",
    word("proof_id", ForeignKey("statements.statement_id"), primary_key=True),
    *words("workload_id", "domain", "attempt_id", "nonce"),
    # The same nonce as a foreign key; null if a restore brought back the proof of a lost attempt.
    word("held_nonce", nullable=True),
    *words("verdict", "notary"),
    number("expires_micros"),
    word("summary"),
    word("context", nullable=True),
    time(),
    one_of("verdict", Outcome),
    ForeignKeyConstraint(["attempt_id", "held_nonce"], ["nonces.attempt_id", "nonces.nonce"]),
    CheckConstraint("held_nonce IS NULL OR held_nonce = nonce", name="one_nonce"),
    UniqueConstraint("nonce", "notary", name="proofs_notary_once"),
    Index("proofs_attempt_id", "attempt_id"),
    Index("proofs_workload_id", "workload_id"),
)

receipts: Final = table(
    "receipts",
    word("receipt_id", ForeignKey("statements.statement_id"), primary_key=True),
    word("workload_id"),  # no foreign key: a restored ledger may know it only from the receipt
    *words("table_uuid", "snapshot_id"),
    time(),
    UniqueConstraint("table_uuid", "snapshot_id", name="receipts_snapshot_once"),
    Index("receipts_workload_id", "workload_id"),
)

# Chunks that receipts of the time lost by a restore name: their workload ids cannot be used again.
used_chunks: Final = table(
    "used_chunks",
    *words("workload_id", "chunk_id", primary_key=True),
    word("snapshot_id"),
    word("receipt_id", ForeignKey("statements.statement_id")),
    time(),
)

overrides: Final = table(
    "overrides",
    word("override_id", ForeignKey("statements.statement_id"), primary_key=True),
    word("fail_proof_id", ForeignKey("proofs.proof_id")),
    word("nonce", ForeignKey("nonces.nonce")),
    word("operator"),
    number("expires_micros"),
    time(),
    UniqueConstraint("nonce", name="overrides_nonce_once"),
    Index("overrides_fail_proof_id", "fail_proof_id"),
)

challenges: Final = table(
    "challenges",
    word("nonce", ForeignKey("nonces.nonce"), primary_key=True),
    word("attestor"),
    number("epoch"),
    word("request"),
    number("expires_micros"),
    time(),
)

attestations: Final = table(
    "attestations",
    word("attestation_id", ForeignKey("statements.statement_id"), primary_key=True),
    word("nonce", ForeignKey("challenges.nonce")),
    *words("attestor", "catalog", "table_uuid", "snapshot_id"),
    time(),
    UniqueConstraint("nonce", name="attestations_nonce_once"),
    Index("attestations_source", "table_uuid", "snapshot_id"),
)

epoch_books: Final = table(
    "epoch_books",
    number("revision", primary_key=True, autoincrement=False),
    binary("book"),
    time(),
    unlogged=("book",),
)

tokens: Final = table(
    "tokens",
    word("token_id", primary_key=True),
    *words("secret_sha256", "role", "domain", "name"),
    word("attempt_id", ForeignKey("attempts.attempt_id"), nullable=True),
    word("parent_id", ForeignKey("tokens.token_id"), nullable=True),
    number("issued_micros"),
    number("expires_micros"),
    number("replaced_micros", nullable=True, changes=True),
    word("successor_id", ForeignKey("tokens.token_id"), nullable=True, changes=True),
    number("revoked_micros", nullable=True, changes=True),
    time(),
    *hex_text(32, "token_id"),
    *hex_text(64, "secret_sha256"),
    one_of("role", Role),
    UniqueConstraint("secret_sha256", name="tokens_secret_once"),
    CheckConstraint("(replaced_micros IS NULL) = (successor_id IS NULL)", name="tokens_replaced_by"),
    unlogged=("secret_sha256",),
)

# Until a restore has its finishing time, nothing else runs on this ledger.
restores: Final = table(
    "restores",
    number("restore_id", primary_key=True, autoincrement=False),
    *words("operator", "reason"),
    number("backup_size"),
    binary("outside_note"),
    number("epoch_before"),
    *words("log_keys", "outcome"),
    number("finished_micros", nullable=True, changes=True),
    time(),
)

# Receipts of the time lost by a restore whose claim is lost, too: they may cover any part of the target.
lost_claims: Final = table(
    "lost_claims",
    word("receipt_id", ForeignKey("statements.statement_id"), primary_key=True),
    *words("workload_id", "target"),
    word("released_by", nullable=True, changes=True),
    word("reason", changes=True),
    time(),
    Index("lost_claims_target", "target"),
)

# Settings that all Stewards of this ledger share: one row. Null if no Steward has set it yet.
shared_settings: Final = table(
    "shared_settings",
    number("settings_id", CheckConstraint("settings_id = 1", name="one_row"), primary_key=True, autoincrement=False),
    word("notary"),
    word("origin", changes=True),
    *words("catalog", "warehouse", "metadata", "vault", nullable=True, changes=True),
    time(),
)


contracts: Final = table(
    "contracts",
    word("contract_sha256", primary_key=True),
    binary("body"),
    word("statement_id", ForeignKey("statements.statement_id")),
    time(),
    *hex_text(64, "contract_sha256"),
    unlogged=("body",),
)

# `found_sha256` binds the manifest list and the manifests of `main` when the table was protected.
protections: Final = table(
    "protections",
    word("protection_id", ForeignKey("statements.statement_id"), primary_key=True),
    word("action"),
    *words("table_uuid", "namespace_id", nullable=True),
    *words("name", "domain", "contract_sha256", "operator"),
    word("nonce", ForeignKey("nonces.nonce")),
    word("found_sha256", nullable=True),
    time(),
    one_of("action", ProtectionAction),
    *hex_text(64, "contract_sha256", "found_sha256"),
    CheckConstraint("(table_uuid IS NULL) <> (namespace_id IS NULL)", name="one_target"),
    UniqueConstraint("nonce", name="protections_nonce_once"),
    Index("protections_table_uuid", "table_uuid"),
    Index("protections_domain", "domain"),
)

# `metadata_sha256` is the metadata file after the migration; null if a restore brought the migration back.
table_migrations: Final = table(
    "table_migrations",
    word("migration_id", ForeignKey("statements.statement_id"), primary_key=True),
    *words("table_uuid", "name", "domain", "contract_sha256"),
    word("metadata_sha256", nullable=True),
    word("operator"),
    word("nonce", ForeignKey("nonces.nonce")),
    time(),
    *hex_text(64, "contract_sha256"),
    UniqueConstraint("nonce", name="table_migrations_nonce_once"),
    Index("table_migrations_table_uuid", "table_uuid"),
    Index("table_migrations_domain", "domain"),
)
