"""The tables of work: workloads, chunks, attempts, nonces, claims and what verification found."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from sqlalchemy import CheckConstraint, ForeignKey, ForeignKeyConstraint, Index, UniqueConstraint

from pvdm.ledger.schema import binary, hex_text, index_where, number, one_of, state_column, table, time, word, words
from pvdm.model.contract import Atomicity
from pvdm.model.states import ATTEMPT, NONCE, WORKLOAD, HandleState, NonceState


class NoncePurpose(StrEnum):
    """What a nonce is good for."""

    ATTEMPT = "attempt"
    BREAK_GLASS = "break-glass"
    SOURCE_ATTESTATION = "source-attestation"
    PROTECTION = "protection"
    MIGRATION = "migration"


workloads: Final = table(
    "workloads",
    word("workload_id", primary_key=True),
    *words("contract_hash", "table_uuid", "source"),
    word("source_snapshot_id", nullable=True),
    *words("parameters", "atomicity", "domain", "plan_hash"),
    number("epoch"),
    word("newer_columns"),
    *state_column(WORKLOAD),
    word("reason", changes=True),
    time(),
    one_of("atomicity", Atomicity),
    CheckConstraint("length(workload_id) BETWEEN 1 AND 128", name="workload_id_length"),
    *hex_text(64, "contract_hash", "plan_hash"),
    Index("workloads_table_uuid", "table_uuid"),
    Index("workloads_domain", "domain"),
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
    *words("workload_id", "chunk_id"),
    number("number", CheckConstraint("number >= 1", name="number_positive")),
    *words("branch", "prefix"),
    *state_column(ATTEMPT),
    word("staged_snapshot_id", nullable=True, changes=True),
    word("reason", changes=True),
    time(),
    *hex_text(32, "attempt_id"),
    ForeignKeyConstraint(["workload_id", "chunk_id"], ["chunks.workload_id", "chunks.chunk_id"]),
    UniqueConstraint("workload_id", "chunk_id", "number", name="attempts_number_once"),
    UniqueConstraint("workload_id", "chunk_id", "attempt_id", name="attempts_of_chunk"),
    UniqueConstraint("prefix", name="attempts_prefix_once"),
    Index("attempts_at_micros", "at_micros"),
)
# A second live attempt of a chunk cannot be stored, even if the code fails to check it.
_LIVE: Final = f"state IN ({', '.join(repr(str(state)) for state in ATTEMPT.live())})"
index_where("attempts_one_live", _LIVE, attempts.c.workload_id, attempts.c.chunk_id, unique=True)

nonces: Final = table(
    "nonces",
    word("nonce", primary_key=True),
    *words("purpose", "holder"),
    word("attempt_id", ForeignKey("attempts.attempt_id"), nullable=True),
    *state_column(NONCE),
    word("snapshot_id", nullable=True, changes=True),
    word("reason", changes=True),
    time(),
    *hex_text(32, "nonce"),
    one_of("purpose", NoncePurpose),
    CheckConstraint(f"(purpose = '{NoncePurpose.ATTEMPT}') = (attempt_id IS NOT NULL)", name="attempt_has_nonce"),
    CheckConstraint(
        f"state <> '{NonceState.COMMITTED}' OR attempt_id IS NULL OR snapshot_id IS NOT NULL", name="committed_as"
    ),
    UniqueConstraint("attempt_id", "nonce", name="nonces_of_attempt"),
)
index_where("nonces_one_held", f"state <> '{NonceState.ABORTED}'", nonces.c.attempt_id, unique=True)

published: Final = table(
    "published",
    *words("workload_id", "chunk_id", primary_key=True),
    *words("attempt_id", "nonce", "snapshot_id"),
    # All four, or none if a restore knows the publication only by its receipt.
    number("rows_added", nullable=True),
    number("files_added", nullable=True),
    number("rows_removed", nullable=True),
    number("files_removed", nullable=True),
    time(),
    ForeignKeyConstraint(
        ["workload_id", "chunk_id", "attempt_id"], ["attempts.workload_id", "attempts.chunk_id", "attempts.attempt_id"]
    ),
    ForeignKeyConstraint(["attempt_id", "nonce"], ["nonces.attempt_id", "nonces.nonce"]),
    UniqueConstraint("nonce", name="published_nonce_once"),
    Index("published_at_micros", "at_micros"),
)

claims: Final = table(
    "claims",
    word("workload_id", primary_key=True),  # no foreign key: a restored ledger may know it only from a receipt
    word("target", primary_key=True),
    *words("claim_column", "column_kind", nullable=True),
    binary("lower_bound"),
    binary("upper_bound", nullable=True),
    word("extent"),
    time(),
    CheckConstraint("upper_bound IS NULL OR lower_bound < upper_bound", name="extent_not_empty"),
    CheckConstraint("(claim_column IS NULL) = (column_kind IS NULL)", name="column_typed"),
    Index("claims_target", "target"),
)

# The source table that a target last published from, under each source name of its contracts.
target_sources: Final = table(
    "target_sources",
    *words("target", "source_name", primary_key=True),
    *words("source", "workload_id", changes=True),
    time(),
)

handles: Final = table(
    "handles",
    word("handle_sha256", primary_key=True),
    word("job_id"),
    number("redemptions"),
    word("state", changes=True),
    word("context", nullable=True, changes=True),
    time(),
    *hex_text(64, "handle_sha256"),
    one_of("state", HandleState),
    UniqueConstraint("job_id", name="handles_job_once"),
)

handle_workers: Final = table(
    "handle_workers",
    word("handle_sha256", ForeignKey("handles.handle_sha256"), primary_key=True),
    word("worker", primary_key=True),
    time(),
)


class DisposalOutcome(StrEnum):
    """What became of an ended attempt's files. LEFT: they stay as they are, because the table was dropped."""

    PUBLISHED = "published"
    QUARANTINED = "quarantined"
    DELETED = "deleted"
    LEFT = "left"


# One row a nonce; it may be replaced until its proof is signed. `location` is that of the verified manifest.
verified: Final = table(
    "verified",
    word("nonce", primary_key=True),
    word("attempt_id"),
    word("core_sha256", changes=True),
    *words("location", "sha256", nullable=True, changes=True),
    number("files", changes=True),
    number("rows", nullable=True, changes=True),
    word("findings", changes=True),
    number("findings_more", changes=True),
    word("located", nullable=True, changes=True),
    time(),
    *hex_text(64, "core_sha256", "sha256"),
    CheckConstraint("(location IS NULL) = (sha256 IS NULL)", name="manifest_hashed"),
    ForeignKeyConstraint(["attempt_id", "nonce"], ["nonces.attempt_id", "nonces.nonce"]),
    Index("verified_attempt_id", "attempt_id"),
    unlogged=("findings", "located"),
)

disposals: Final = table(
    "disposals",
    word("attempt_id", ForeignKey("attempts.attempt_id"), primary_key=True),
    word("outcome"),
    number("removed"),
    number("kept"),
    word("note"),
    time(),
    one_of("outcome", DisposalOutcome),
)

# One row an attempt whose files are removed from quarantine, written before the first file is deleted.
quarantine_removals: Final = table(
    "quarantine_removals",
    word("attempt_id", ForeignKey("disposals.attempt_id"), primary_key=True),
    *words("token_id", "name", "reason"),
    number("files"),
    number("bytes"),
    number("done", changes=True),
    time(),
    CheckConstraint("done IN (0, 1)", name="done_known"),
    CheckConstraint("files >= 0 AND bytes >= 0", name="counts_not_negative"),
)
