"""The ledger's tables, as values; `rules.py` adds the triggers, `migrations/` holds the frozen SQL of both."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    LargeBinary,
    Table,
    UniqueConstraint,
    text,
)

from pvdm.ledger.schema.columns import big, hex_text, metadata, number, one_of, states, table, time, word
from pvdm.model.role import Role
from pvdm.model.states import ATTEMPT, NONCE, WORKLOAD, NonceState


class Atomicity(StrEnum):
    """What is published at once."""

    CHUNK = "chunk"
    WORKLOAD = "workload"


class NoncePurpose(StrEnum):
    """What a nonce is good for."""

    ATTEMPT = "attempt"
    BREAK_GLASS = "break-glass"
    SOURCE_ATTESTATION = "source-attestation"
    PROTECTION = "protection"
    MIGRATION = "migration"


class HandleWord(StrEnum):
    """Where a key handle stands."""

    ISSUED = "ISSUED"
    FROZEN = "FROZEN"
    ENDED = "ENDED"


class StatementKind(StrEnum):
    """What a signed and logged document says; the names are those of the log's entries."""

    PROOF = "proof"
    RECEIPT = "receipt"
    WORKLOAD = "workload"
    BREAK_GLASS = "break-glass"
    EPOCH = "epoch"
    TRUST_ROOT = "trust-root"
    PROTECTION = "protection"
    MIGRATION = "migration"
    SOURCE_ATTESTATION = "source-attestation"
    RESTORE = "restore"


class VerdictWord(StrEnum):
    """The two verdicts."""

    PASS = "PASS"  # noqa: S105 - the verdict
    FAIL = "FAIL"


events: Final = Table(
    "events",
    metadata,
    Column("event_id", big(), Identity(always=True), primary_key=True),
    time(),
    word("kind"),
    word("subject"),
    word("row_key"),
    word("old", nullable=True),
    word("new", nullable=True),
    Index("events_at_micros", "at_micros"),
    Index("events_subject", "subject", "row_key"),
    sqlite_strict=True,
    sqlite_autoincrement=True,
    info={"changes": (), "unlogged": None},
)

workloads: Final = table(
    "workloads",
    word("workload_id", primary_key=True),
    word("contract_hash"),
    word("table_uuid"),
    word("source"),
    word("source_snapshot_id", nullable=True),
    word("parameters"),
    word("atomicity"),
    word("domain"),
    word("plan_hash"),
    number("epoch"),
    word("newer_columns"),
    *states(WORKLOAD),
    word("reason"),
    time(),
    one_of("atomicity", Atomicity),
    CheckConstraint("length(workload_id) BETWEEN 1 AND 128", name="workload_id_length"),
    *hex_text("contract_hash", 64),
    *hex_text("plan_hash", 64),
    Index("workloads_table_uuid", "table_uuid"),
    Index("workloads_domain", "domain"),
    changes=("state", "reason", "at_micros"),
)

chunks: Final = table(
    "chunks",
    word("workload_id", ForeignKey("workloads.workload_id"), primary_key=True),
    word("chunk_id", primary_key=True),
    number("ordinal"),
    word("definition"),
    time(),
    UniqueConstraint("workload_id", "ordinal", name="chunks_ordinal_once"),
)

attempts: Final = table(
    "attempts",
    word("attempt_id", primary_key=True),
    word("workload_id"),
    word("chunk_id"),
    number("number", CheckConstraint("number >= 1", name="number_positive")),
    word("branch"),
    word("prefix"),
    *states(ATTEMPT),
    word("staged_snapshot_id", nullable=True),
    word("reason"),
    time(),
    *hex_text("attempt_id", 32),
    ForeignKeyConstraint(["workload_id", "chunk_id"], ["chunks.workload_id", "chunks.chunk_id"]),
    UniqueConstraint("workload_id", "chunk_id", "number", name="attempts_number_once"),
    UniqueConstraint("workload_id", "chunk_id", "attempt_id", name="attempts_of_chunk"),
    UniqueConstraint("prefix", name="attempts_prefix_once"),
    Index("attempts_at_micros", "at_micros"),
    changes=("state", "staged_snapshot_id", "reason", "at_micros"),
)
# One try at a time: a second live attempt of a chunk cannot be stored, whatever the code believes.
_live = text(f"state IN ({', '.join(repr(str(state)) for state in ATTEMPT.live())})")
Index(
    "attempts_one_live",
    attempts.c.workload_id,
    attempts.c.chunk_id,
    unique=True,
    sqlite_where=_live,
    postgresql_where=_live,
)

nonces: Final = table(
    "nonces",
    word("nonce", primary_key=True),
    word("purpose"),
    word("holder"),
    word("attempt_id", ForeignKey("attempts.attempt_id"), nullable=True),
    *states(NONCE),
    word("snapshot_id", nullable=True),
    word("reason"),
    time(),
    *hex_text("nonce", 32),
    one_of("purpose", NoncePurpose),
    CheckConstraint(f"(purpose = '{NoncePurpose.ATTEMPT}') = (attempt_id IS NOT NULL)", name="attempt_has_nonce"),
    CheckConstraint(
        f"state <> '{NonceState.COMMITTED}' OR attempt_id IS NULL OR snapshot_id IS NOT NULL", name="committed_as"
    ),
    UniqueConstraint("attempt_id", "nonce", name="nonces_of_attempt"),
    changes=("state", "snapshot_id", "reason", "at_micros"),
)
_held = text(f"state <> '{NonceState.ABORTED}'")
Index("nonces_one_held", nonces.c.attempt_id, unique=True, sqlite_where=_held, postgresql_where=_held)

published: Final = table(
    "published",
    word("workload_id", primary_key=True),
    word("chunk_id", primary_key=True),
    word("attempt_id"),
    word("nonce"),
    word("snapshot_id"),
    # How much it is: all four or none, where a restore knows of the publication by its receipt alone.
    number("rows_added", nullable=True),
    number("files_added", nullable=True),
    number("rows_removed", nullable=True),
    number("files_removed", nullable=True),
    time(),
    ForeignKeyConstraint(
        ["workload_id", "chunk_id", "attempt_id"],
        ["attempts.workload_id", "attempts.chunk_id", "attempts.attempt_id"],
    ),
    ForeignKeyConstraint(["attempt_id", "nonce"], ["nonces.attempt_id", "nonces.nonce"]),
    UniqueConstraint("nonce", name="published_nonce_once"),
    Index("published_at_micros", "at_micros"),
)

claims: Final = table(
    "claims",
    word("workload_id", primary_key=True),  # a restored ledger may know it from a receipt alone
    word("target", primary_key=True),
    word("claim_column", nullable=True),
    word("column_kind", nullable=True),
    Column("lower_bound", LargeBinary(), nullable=False),
    Column("upper_bound", LargeBinary(), nullable=True),
    word("extent"),
    time(),
    CheckConstraint("upper_bound IS NULL OR lower_bound < upper_bound", name="extent_not_empty"),
    CheckConstraint("(claim_column IS NULL) = (column_kind IS NULL)", name="column_typed"),
    Index("claims_target", "target"),
)

# Which table a target last published from under a name that its contracts give to a source.
target_sources: Final = table(
    "target_sources",
    word("target", primary_key=True),
    word("source_name", primary_key=True),
    word("source"),
    word("workload_id"),
    time(),
    changes=("source", "workload_id", "at_micros"),
)

log_entries: Final = table(
    "log_entries",
    number("entry_index", primary_key=True, autoincrement=False),
    Column("entry", LargeBinary(), nullable=False),
    unlogged=None,
)

log_hashes: Final = table(
    "log_hashes",
    number("level", primary_key=True, autoincrement=False),
    number("position", primary_key=True, autoincrement=False),
    Column("hash", LargeBinary(), nullable=False),
    CheckConstraint("length(hash) = 32", name="hash_length"),
    unlogged=None,
)

log_checkpoints: Final = table(
    "log_checkpoints",
    number("size", primary_key=True, autoincrement=False),
    Column("note", LargeBinary(), nullable=False),
    unlogged=None,
)

statements: Final = table(
    "statements",
    word("statement_id", primary_key=True),
    word("kind"),
    Column("envelope", LargeBinary(), nullable=False),
    number("log_index", ForeignKey("log_entries.entry_index")),
    time(),
    *hex_text("statement_id", 64),
    one_of("kind", StatementKind),
    UniqueConstraint("log_index", name="statements_log_index_once"),
    Index("statements_kind", "kind"),
    unlogged=("envelope",),
)

proofs: Final = table(
    "proofs",
    word("proof_id", ForeignKey("statements.statement_id"), primary_key=True),
    word("workload_id"),
    word("domain"),
    word("attempt_id"),
    word("nonce"),
    # The same nonce, which is the attempt's; null where a restore brought back a proof of an attempt that is lost.
    word("held_nonce", nullable=True),
    word("verdict"),
    word("notary"),
    number("expires_micros"),
    word("summary"),
    word("context", nullable=True),
    time(),
    one_of("verdict", VerdictWord),
    ForeignKeyConstraint(["attempt_id", "held_nonce"], ["nonces.attempt_id", "nonces.nonce"]),
    CheckConstraint("held_nonce IS NULL OR held_nonce = nonce", name="one_nonce"),
    UniqueConstraint("nonce", "notary", name="proofs_notary_once"),
    Index("proofs_attempt_id", "attempt_id"),
    Index("proofs_workload_id", "workload_id"),
)

receipts: Final = table(
    "receipts",
    word("receipt_id", ForeignKey("statements.statement_id"), primary_key=True),
    word("workload_id"),  # a restored ledger may know it from the receipt alone
    word("table_uuid"),
    word("snapshot_id"),
    time(),
    UniqueConstraint("table_uuid", "snapshot_id", name="receipts_snapshot_once"),
    Index("receipts_workload_id", "workload_id"),
)

# What receipts of a lost time say was published: these ids are used up, though their own rows are gone.
spent: Final = table(
    "spent",
    word("workload_id", primary_key=True),
    word("chunk_id", primary_key=True),
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
    word("attestor"),
    word("catalog"),
    word("table_uuid"),
    word("snapshot_id"),
    time(),
    UniqueConstraint("nonce", name="attestations_nonce_once"),
    Index("attestations_source", "table_uuid", "snapshot_id"),
)

epoch_books: Final = table(
    "epoch_books",
    number("revision", primary_key=True, autoincrement=False),
    Column("book", LargeBinary(), nullable=False),
    time(),
    unlogged=("book",),
)

handles: Final = table(
    "handles",
    word("handle_sha256", primary_key=True),
    word("job_id"),
    number("redemptions"),
    word("state"),
    word("context", nullable=True),
    time(),
    *hex_text("handle_sha256", 64),
    one_of("state", HandleWord),
    UniqueConstraint("job_id", name="handles_job_once"),
    changes=("state", "context", "at_micros"),
)

handle_workers: Final = table(
    "handle_workers",
    word("handle_sha256", ForeignKey("handles.handle_sha256"), primary_key=True),
    word("worker", primary_key=True),
    time(),
)

tokens: Final = table(
    "tokens",
    word("token_id", primary_key=True),
    word("secret_sha256"),
    word("role"),
    word("domain"),
    word("name"),
    word("attempt_id", ForeignKey("attempts.attempt_id"), nullable=True),
    word("parent_id", ForeignKey("tokens.token_id"), nullable=True),
    number("issued_micros"),
    number("expires_micros"),
    number("replaced_micros", nullable=True),
    word("successor_id", ForeignKey("tokens.token_id"), nullable=True),
    number("revoked_micros", nullable=True),
    time(),
    *hex_text("token_id", 32),
    *hex_text("secret_sha256", 64),
    one_of("role", Role),
    UniqueConstraint("secret_sha256", name="tokens_secret_once"),
    CheckConstraint("(replaced_micros IS NULL) = (successor_id IS NULL)", name="tokens_replaced_by"),
    changes=("replaced_micros", "successor_id", "revoked_micros", "at_micros"),
    unlogged=("secret_sha256",),
)

# Restores under way and done; until one has its finishing time, nothing but the restore itself runs on this ledger.
restores: Final = table(
    "restores",
    number("restore_id", primary_key=True, autoincrement=False),
    word("operator"),
    word("reason"),
    number("backup_size"),
    Column("outside_note", LargeBinary(), nullable=False),
    number("epoch_before"),
    word("log_keys"),
    word("outcome"),
    number("finished_micros", nullable=True),
    time(),
    changes=("finished_micros", "at_micros"),
)

# What receipts of a lost time published without a claim that is left: any part of the target.
lost_claims: Final = table(
    "lost_claims",
    word("receipt_id", ForeignKey("statements.statement_id"), primary_key=True),
    word("workload_id"),
    word("target"),
    word("released_by", nullable=True),
    word("reason"),
    time(),
    Index("lost_claims_target", "target"),
    changes=("released_by", "reason", "at_micros"),
)

# What all Stewards of this ledger have in common: one row. The catalog's part is null until a Steward has a catalog.
common_settings: Final = table(
    "common_settings",
    number("settings_id", CheckConstraint("settings_id = 1", name="one_row"), primary_key=True, autoincrement=False),
    word("notary"),
    word("origin"),
    word("catalog", nullable=True),
    word("warehouse", nullable=True),
    word("metadata", nullable=True),
    word("vault", nullable=True),
    time(),
    changes=("origin", "catalog", "warehouse", "metadata", "vault", "at_micros"),
)
