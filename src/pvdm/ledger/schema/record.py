"""The tables of the record: step log, transparency log, statements, approvals, tokens, restores and shared settings."""

from __future__ import annotations

from typing import Final

from sqlalchemy import CheckConstraint, Column, ForeignKey, ForeignKeyConstraint, Identity, Index, UniqueConstraint

from pvdm.ledger import schema
from pvdm.model.role import Role
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.migration import ProtectionAction
from pvdm.model.statements.verdict import Outcome

# The step log: triggers add an event for each change of a row in another table. `subject`: that other table;
# `row_key`: the key of the changed row; `old`, `new`: the changed row's values before and after, as JSON.
events: Final = schema.table(
    "events",
    Column("event_id", schema.big_integer(), Identity(always=True), primary_key=True),
    schema.time_column(),
    *schema.text_columns("kind", "subject", "row_key"),
    *schema.text_columns("old", "new", nullable=True),
    Index("events_at_micros", "at_micros"),
    Index("events_subject", "subject", "row_key"),
    in_step_log=False,
    sqlite_autoincrement=True,
)

# The transparency log (spec/log.md): entries, hashes of complete subtrees of its hash tree, and signed checkpoints.
log_entries: Final = schema.table(
    "log_entries",
    schema.number_column("entry_index", primary_key=True, autoincrement=False),
    schema.bytes_column("entry"),
    in_step_log=False,
)

log_hashes: Final = schema.table(
    "log_hashes",
    schema.number_column("level", primary_key=True, autoincrement=False),
    schema.number_column("position", primary_key=True, autoincrement=False),
    schema.bytes_column("hash"),
    CheckConstraint("length(hash) = 32", name="hash_length"),
    in_step_log=False,
)

log_checkpoints: Final = schema.table(
    "log_checkpoints",
    schema.number_column("size", primary_key=True, autoincrement=False),
    schema.bytes_column("note"),
    in_step_log=False,
)

statements: Final = schema.table(
    "statements",
    schema.text_column("statement_id", primary_key=True),
    schema.text_column("kind"),
    schema.bytes_column("envelope"),
    schema.number_column("log_index", ForeignKey("log_entries.entry_index")),
    schema.time_column(),
    *schema.hex_checks(64, "statement_id"),
    schema.one_of_check("kind", StatementKind),
    UniqueConstraint("log_index", name="statements_log_index_once"),
    Index("statements_kind", "kind"),
    not_in_step_log=("envelope",),
)

proofs: Final = schema.table(
    "proofs",
    schema.text_column("proof_id", ForeignKey("statements.statement_id"), primary_key=True),
    *schema.text_columns("workload_id", "domain", "attempt_id", "nonce"),
    # `held_nonce`: the nonce again, as a foreign key; null if a restore brought back the proof of a lost attempt.
    schema.text_column("held_nonce", nullable=True),
    *schema.text_columns("verdict", "notary"),
    schema.number_column("expires_micros"),
    schema.text_column("summary"),  # JSON, for lists of proofs
    schema.text_column("context", nullable=True),  # JSON of the facts from which the attempt's keys are derived
    schema.time_column(),
    schema.one_of_check("verdict", Outcome),
    ForeignKeyConstraint(["attempt_id", "held_nonce"], ["nonces.attempt_id", "nonces.nonce"]),
    CheckConstraint("held_nonce IS NULL OR held_nonce = nonce", name="one_nonce"),
    UniqueConstraint("nonce", "notary", name="proofs_notary_once"),
    Index("proofs_at_micros", "at_micros"),
    Index("proofs_attempt_id", "attempt_id"),
    Index("proofs_workload_id", "workload_id"),
)

receipts: Final = schema.table(
    "receipts",
    schema.text_column("receipt_id", ForeignKey("statements.statement_id"), primary_key=True),
    schema.text_column("workload_id"),  # no foreign key: a restored ledger may know it only from the receipt
    *schema.text_columns("table_uuid", "snapshot_id"),
    schema.time_column(),
    UniqueConstraint("table_uuid", "snapshot_id", name="receipts_snapshot_once"),
    Index("receipts_workload_id", "workload_id"),
)

# Chunks that were, or may have been, published in the lost time (docs/restore.md). Their workload ids are refused.
used_chunks: Final = schema.table(
    "used_chunks",
    *schema.text_columns("workload_id", "chunk_id", primary_key=True),
    schema.text_column("snapshot_id"),
    schema.text_column("receipt_id", ForeignKey("statements.statement_id")),
    schema.time_column(),
)

overrides: Final = schema.table(
    "overrides",
    schema.text_column("override_id", ForeignKey("statements.statement_id"), primary_key=True),
    schema.text_column("fail_proof_id", ForeignKey("proofs.proof_id")),
    schema.text_column("nonce", ForeignKey("nonces.nonce")),
    schema.text_column("operator"),
    schema.number_column("expires_micros"),
    schema.time_column(),
    UniqueConstraint("nonce", name="overrides_nonce_once"),
    Index("overrides_fail_proof_id", "fail_proof_id"),
)

# Challenges to attestors of sources. `request`: JSON of the facts from which the challenge's keys are derived.
challenges: Final = schema.table(
    "challenges",
    schema.text_column("nonce", ForeignKey("nonces.nonce"), primary_key=True),
    schema.text_column("attestor"),
    schema.number_column("epoch"),
    schema.text_column("request"),
    schema.number_column("expires_micros"),
    schema.time_column(),
)

attestations: Final = schema.table(
    "attestations",
    schema.text_column("attestation_id", ForeignKey("statements.statement_id"), primary_key=True),
    schema.text_column("nonce", ForeignKey("challenges.nonce")),
    *schema.text_columns("attestor", "catalog", "table_uuid", "snapshot_id"),
    schema.time_column(),
    UniqueConstraint("nonce", name="attestations_nonce_once"),
    Index("attestations_source", "table_uuid", "snapshot_id"),
)

# Revisions of the epoch book (the list of key generations). Unused if the keys are in a keystore file.
epoch_books: Final = schema.table(
    "epoch_books",
    schema.number_column("revision", primary_key=True, autoincrement=False),
    schema.bytes_column("book"),
    schema.time_column(),
    not_in_step_log=("book",),
)

tokens: Final = schema.table(
    "tokens",
    schema.text_column("token_id", primary_key=True),
    *schema.text_columns("secret_sha256", "role", "domain", "name"),
    schema.text_column("attempt_id", ForeignKey("attempts.attempt_id"), nullable=True),
    schema.text_column("parent_id", ForeignKey("tokens.token_id"), nullable=True),  # the token it is derived from
    schema.number_column("issued_micros"),
    schema.number_column("expires_micros"),
    schema.number_column("replaced_micros", nullable=True, changes=True),
    schema.text_column("successor_id", ForeignKey("tokens.token_id"), nullable=True, changes=True),
    schema.number_column("revoked_micros", nullable=True, changes=True),
    schema.time_column(),
    *schema.hex_checks(32, "token_id"),
    *schema.hex_checks(64, "secret_sha256"),
    schema.one_of_check("role", Role),
    UniqueConstraint("secret_sha256", name="tokens_secret_once"),
    CheckConstraint("(replaced_micros IS NULL) = (successor_id IS NULL)", name="tokens_replaced_by"),
    not_in_step_log=("secret_sha256",),
)

# Restores from a backup. Until `finished_micros` is set, nothing else runs on this ledger.
restores: Final = schema.table(
    "restores",
    schema.number_column("restore_id", primary_key=True, autoincrement=False),
    *schema.text_columns("operator", "reason"),
    schema.number_column("backup_size"),  # the number of log entries in the backup
    schema.bytes_column("outside_note"),  # the outside checkpoint's signed note
    schema.number_column("epoch_before"),
    *schema.text_columns("log_keys", "outcome"),  # JSON: log keys that an operator gave; what the restore changed
    schema.number_column("finished_micros", nullable=True, changes=True),
    schema.time_column(),
)

# Publications of the lost time whose claims are lost: each may have claimed any part of its target. `receipt_id` may be
# the id of a proof. `release_id`: the claim release; null while the lost claim blocks claims on the target.
lost_claims: Final = schema.table(
    "lost_claims",
    schema.text_column("receipt_id", ForeignKey("statements.statement_id"), primary_key=True),
    *schema.text_columns("workload_id", "target"),
    schema.text_column("release_id", ForeignKey("statements.statement_id"), nullable=True, changes=True),
    schema.time_column(),
    Index("lost_claims_target", "target"),
)

# Events for other systems, and their delivery. `body`: JSON; `due_micros`: when the next delivery is due.
outbox: Final = schema.table(
    "outbox",
    schema.text_column("event_id", primary_key=True),
    *schema.text_columns("channel", "kind", "domain", "body"),  # `domain`: empty if the event is of none
    *(schema.number_column(name, changes=True) for name in ("due_micros", "tries")),
    schema.text_column("problem", nullable=True, changes=True),  # why the last delivery failed
    # When the event was delivered, or, if it has a problem, when it was set aside.
    schema.number_column("done_micros", nullable=True, changes=True),
    schema.number_column("created_micros"),
    schema.time_column(),
    *schema.hex_checks(32, "event_id"),
    Index("outbox_done_micros", "done_micros"),
    in_step_log=False,
    deletable=True,
)
schema.index_where("outbox_pending", "done_micros IS NULL", outbox.c.channel, outbox.c.created_micros)
schema.index_where("outbox_places", "done_micros IS NULL", outbox.c.channel, outbox.c.kind, outbox.c.domain)

# Settings that all Stewards of this ledger share: one row. A setting that no Steward has set yet is null.
shared_settings: Final = schema.table(
    "shared_settings",
    schema.number_column(
        "settings_id", CheckConstraint("settings_id = 1", name="one_row"), primary_key=True, autoincrement=False
    ),
    schema.text_column("notary"),  # the Steward's name
    schema.text_column("origin", changes=True),  # the name of the transparency log
    *schema.text_columns("catalog", "warehouse", "metadata", "vault", nullable=True, changes=True),
    schema.time_column(),
)

# Contracts that were ever in force. `body`: the contract's bytes; `statement_id`: the first approval that has it.
contracts: Final = schema.table(
    "contracts",
    schema.text_column("contract_sha256", primary_key=True),
    schema.bytes_column("body"),
    schema.text_column("statement_id", ForeignKey("statements.statement_id")),
    schema.time_column(),
    *schema.hex_checks(64, "contract_sha256"),
    not_in_step_log=("body",),
)

# Approvals that begin or end a protection. `found_sha256`: the hash of the manifests of `main` at the protection.
protections: Final = schema.table(
    "protections",
    schema.text_column("protection_id", ForeignKey("statements.statement_id"), primary_key=True),
    schema.text_column("action"),
    *schema.text_columns("table_uuid", "namespace_id", nullable=True),
    *schema.text_columns("name", "domain", "contract_sha256", "operator"),
    schema.text_column("nonce", ForeignKey("nonces.nonce")),
    schema.text_column("found_sha256", nullable=True),
    schema.time_column(),
    schema.one_of_check("action", ProtectionAction),
    *schema.hex_checks(64, "contract_sha256", "found_sha256"),
    CheckConstraint("(table_uuid IS NULL) <> (namespace_id IS NULL)", name="one_target"),
    UniqueConstraint("nonce", name="protections_nonce_once"),
    Index("protections_table_uuid", "table_uuid"),
    Index("protections_domain", "domain"),
)

# Migrations. `metadata_sha256`: hash of the table's metadata file afterwards; null if a restore brought the row back.
table_migrations: Final = schema.table(
    "table_migrations",
    schema.text_column("migration_id", ForeignKey("statements.statement_id"), primary_key=True),
    *schema.text_columns("table_uuid", "name", "domain", "contract_sha256"),
    schema.text_column("metadata_sha256", nullable=True),
    schema.text_column("operator"),
    schema.text_column("nonce", ForeignKey("nonces.nonce")),
    schema.time_column(),
    *schema.hex_checks(64, "contract_sha256"),
    UniqueConstraint("nonce", name="table_migrations_nonce_once"),
    Index("table_migrations_table_uuid", "table_uuid"),
    Index("table_migrations_domain", "domain"),
)
