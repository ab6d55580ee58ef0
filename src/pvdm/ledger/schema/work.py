"""The tables of work: workloads, chunks, attempts, nonces, claims and what verification found."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from sqlalchemy import CheckConstraint, ForeignKey, ForeignKeyConstraint, Index, UniqueConstraint

from pvdm.ledger import schema
from pvdm.model.contract import Atomicity
from pvdm.model.states import ATTEMPT, NONCE, WORKLOAD, HandleState, NonceState, WorkloadState


class NoncePurpose(StrEnum):
    """What a nonce may be used for, once."""

    ATTEMPT = "attempt"
    BREAK_GLASS = "break-glass"
    SOURCE_ATTESTATION = "source-attestation"
    PROTECTION = "protection"
    MIGRATION = "migration"
    CLAIM_RELEASE = "claim-release"


workloads: Final = schema.table(
    "workloads",
    schema.text_column("workload_id", primary_key=True),
    *schema.text_columns("contract_hash", "table_uuid", "source"),  # `source`: a table's UUID
    schema.text_column("source_snapshot_id", nullable=True),
    *schema.text_columns("parameters", "atomicity", "domain", "plan_hash"),
    schema.number_column("epoch"),  # the generation of the Steward's keys
    schema.text_column("newer_columns"),  # JSON: the source's columns that the pinned snapshot's schema lacks
    *schema.state_column(WORKLOAD),
    schema.text_column("reason", changes=True),
    schema.time_column(),
    schema.one_of_check("atomicity", Atomicity),
    CheckConstraint("length(workload_id) BETWEEN 1 AND 128", name="workload_id_length"),
    *schema.hex_checks(64, "contract_hash", "plan_hash"),
    Index("workloads_table_uuid", "table_uuid"),
    Index("workloads_domain", "domain"),
    Index("workloads_at_micros", "at_micros"),
)
WORKLOAD_IS_OPEN: Final = f"state = '{WorkloadState.OPEN}'"
schema.index_where("workloads_open", WORKLOAD_IS_OPEN, workloads.c.workload_id)

# Plans in the making. A workload becomes open when all `files` of its source have been read. `found` are the values of
# the first `files_read` files. `file_hashes` are the hashes of these files, one after another. `error` is why no plan
# was made. The step log has no plans in the making.
plannings: Final = schema.table(
    "plannings",
    schema.text_column("workload_id", primary_key=True),
    *schema.text_columns("contract_hash", "table_uuid", "source"),
    schema.text_column("source_snapshot_id"),
    *schema.text_columns("parameters", "atomicity", "domain", "newer_columns"),
    schema.number_column("timeout_seconds", nullable=True),
    schema.number_column("files"),
    schema.number_column("files_read", changes=True),
    schema.number_column("starts", changes=True),
    schema.bytes_column("found", changes=True),
    schema.bytes_column("file_hashes", changes=True),
    schema.text_column("error", nullable=True, changes=True),
    schema.number_column("error_reported", changes=True),
    schema.time_column(),
    schema.one_of_check("atomicity", Atomicity),
    *schema.hex_checks(64, "contract_hash"),
    CheckConstraint("error_reported IN (0, 1)", name="error_reported_flag"),
    CheckConstraint("files_read BETWEEN 0 AND files", name="files_read_counted"),
    in_step_log=False,
    deletable=True,
)

chunks: Final = schema.table(
    "chunks",
    schema.text_column("workload_id", ForeignKey("workloads.workload_id"), primary_key=True),
    schema.text_column("chunk_id", primary_key=True),
    schema.number_column("ordinal"),
    schema.text_column("definition"),
    schema.time_column(),
    UniqueConstraint("workload_id", "ordinal", name="chunks_ordinal_once"),
)

# Until when the runs of a workload may stage chunks. A workload without a row has no limit.
deadlines: Final = schema.table(
    "deadlines",
    schema.text_column("workload_id", ForeignKey("workloads.workload_id"), primary_key=True),
    schema.number_column("seconds", CheckConstraint("seconds > 0", name="seconds_positive"), changes=True),
    schema.number_column("deadline_micros", changes=True),
    schema.time_column(),
    Index("deadlines_deadline_micros", "deadline_micros"),
)

# One row for each lease. Of a workload's leases, only the one with the largest number counts. Renewals change
# `expires_micros` several times a minute, so the step log has only a note of each new row.
leases: Final = schema.table(
    "leases",
    schema.text_column("workload_id", ForeignKey("workloads.workload_id"), primary_key=True),
    schema.number_column(
        "lease_number", CheckConstraint("lease_number >= 1", name="lease_number_positive"), primary_key=True
    ),
    *schema.text_columns("run_id", "holder", "runner"),  # `holder`: the token's name; `runner`: process and host
    schema.text_column("process", nullable=True),  # identifies the runner's process on its host
    schema.number_column("seconds", CheckConstraint("seconds > 0", name="seconds_positive")),
    schema.number_column("expires_micros", changes=True),
    schema.time_column(),
    *schema.hex_checks(32, "run_id"),
    Index("leases_expires_micros", "expires_micros"),
    in_step_log=False,
)

attempts: Final = schema.table(
    "attempts",
    schema.text_column("attempt_id", primary_key=True),
    *schema.text_columns("workload_id", "chunk_id"),
    schema.number_column("number", CheckConstraint("number >= 1", name="number_positive")),
    *schema.text_columns("branch", "prefix"),
    schema.number_column("lease_number", nullable=True),  # null if the Steward, and not a run, opened the attempt
    schema.text_column("producer"),  # the name of the token that opened the attempt
    *schema.state_column(ATTEMPT),
    schema.text_column("staged_snapshot_id", nullable=True, changes=True),
    schema.number_column("handed_in_micros", nullable=True, changes=True),  # when the attempt was reported as staged
    schema.text_column("reason", changes=True),
    schema.time_column(),
    *schema.hex_checks(32, "attempt_id"),
    ForeignKeyConstraint(["workload_id", "chunk_id"], ["chunks.workload_id", "chunks.chunk_id"]),
    ForeignKeyConstraint(["workload_id", "lease_number"], ["leases.workload_id", "leases.lease_number"]),
    UniqueConstraint("workload_id", "chunk_id", "number", name="attempts_number_once"),
    UniqueConstraint("workload_id", "chunk_id", "attempt_id", name="attempts_of_chunk"),
    UniqueConstraint("prefix", name="attempts_prefix_once"),
    Index("attempts_at_micros", "at_micros"),
)
# As text: if the values were parameters, a database could not use the index below for a query of these rows.
ATTEMPT_IS_LIVE: Final = f"state IN ({', '.join(repr(str(state)) for state in ATTEMPT.live())})"
# The database refuses a second live attempt at a chunk, even if the code fails to check this.
schema.index_where("attempts_one_live", ATTEMPT_IS_LIVE, attempts.c.workload_id, attempts.c.chunk_id, unique=True)

nonces: Final = schema.table(
    "nonces",
    schema.text_column("nonce", primary_key=True),
    *schema.text_columns("purpose", "holder"),
    schema.text_column("attempt_id", ForeignKey("attempts.attempt_id"), nullable=True),
    *schema.state_column(NONCE),
    schema.text_column("snapshot_id", nullable=True, changes=True),
    schema.text_column("reason", changes=True),
    schema.time_column(),
    *schema.hex_checks(32, "nonce"),
    schema.one_of_check("purpose", NoncePurpose),
    CheckConstraint(f"(purpose = '{NoncePurpose.ATTEMPT}') = (attempt_id IS NOT NULL)", name="attempt_has_nonce"),
    CheckConstraint(
        f"state <> '{NonceState.COMMITTED}' OR attempt_id IS NULL OR snapshot_id IS NOT NULL", name="committed_as"
    ),
    UniqueConstraint("attempt_id", "nonce", name="nonces_of_attempt"),
)
schema.index_where("nonces_one_held", f"state <> '{NonceState.ABORTED}'", nonces.c.attempt_id, unique=True)

published: Final = schema.table(
    "published",
    *schema.text_columns("workload_id", "chunk_id", primary_key=True),
    *schema.text_columns("attempt_id", "nonce", "snapshot_id"),
    # A restore that stores a publication leaves these four counts null. Otherwise all four are set.
    schema.number_column("rows_added", nullable=True),
    schema.number_column("files_added", nullable=True),
    schema.number_column("rows_removed", nullable=True),
    schema.number_column("files_removed", nullable=True),
    schema.time_column(),
    ForeignKeyConstraint(
        ["workload_id", "chunk_id", "attempt_id"], ["attempts.workload_id", "attempts.chunk_id", "attempts.attempt_id"]
    ),
    ForeignKeyConstraint(["attempt_id", "nonce"], ["nonces.attempt_id", "nonces.nonce"]),
    UniqueConstraint("nonce", name="published_nonce_once"),
    Index("published_at_micros", "at_micros"),
)

claims: Final = schema.table(
    "claims",
    # No foreign key: a restored ledger may lack the workload.
    schema.text_column("workload_id", primary_key=True),
    schema.text_column("target", primary_key=True),
    *schema.text_columns("claim_column", "column_kind", nullable=True),
    schema.bytes_column("lower_bound"),
    schema.bytes_column("upper_bound", nullable=True),
    schema.text_column("extent"),  # the claim as text, for messages
    schema.time_column(),
    CheckConstraint("upper_bound IS NULL OR lower_bound < upper_bound", name="extent_not_empty"),
    CheckConstraint("(claim_column IS NULL) = (column_kind IS NULL)", name="column_typed"),
    Index("claims_target", "target"),
)

# `source`: the UUID of the table from which `target` last got rows under a contract with this `source_name`.
target_sources: Final = schema.table(
    "target_sources",
    *schema.text_columns("target", "source_name", primary_key=True),
    *schema.text_columns("source", "workload_id", changes=True),
    schema.time_column(),
)

# Workers exchange a handle for the digest keys of a verification job. `handle_workers` has the workers that did this.
handles: Final = schema.table(
    "handles",
    schema.text_column("handle_sha256", primary_key=True),
    schema.text_column("job_id"),
    schema.number_column("redemptions"),  # how many workers may get the keys
    schema.text_column("state", changes=True),
    schema.text_column("context", nullable=True, changes=True),  # JSON of the facts from which the keys are derived
    schema.time_column(),
    *schema.hex_checks(64, "handle_sha256"),
    schema.one_of_check("state", HandleState),
    UniqueConstraint("job_id", name="handles_job_once"),
)

handle_workers: Final = schema.table(
    "handle_workers",
    schema.text_column("handle_sha256", ForeignKey("handles.handle_sha256"), primary_key=True),
    schema.text_column("worker", primary_key=True),
    schema.time_column(),
)


class DisposalOutcome(StrEnum):
    """What became of an ended attempt's files. LEFT: nothing was done, because the table was dropped."""

    PUBLISHED = "published"
    QUARANTINED = "quarantined"
    DELETED = "deleted"
    LEFT = "left"


# The results of verification (`VerifiedRecord`), by nonce. A result may change until its proof is signed.
verified: Final = schema.table(
    "verified",
    schema.text_column("nonce", primary_key=True),
    schema.text_column("attempt_id"),
    schema.text_column("core_sha256", changes=True),
    *schema.text_columns("location", "sha256", nullable=True, changes=True),
    schema.number_column("files", changes=True),
    schema.number_column("rows", nullable=True, changes=True),
    schema.text_column("findings", changes=True),
    schema.number_column("findings_more", changes=True),
    schema.text_column("located", nullable=True, changes=True),
    schema.time_column(),
    *schema.hex_checks(64, "core_sha256", "sha256"),
    CheckConstraint("(location IS NULL) = (sha256 IS NULL)", name="manifest_hashed"),
    ForeignKeyConstraint(["attempt_id", "nonce"], ["nonces.attempt_id", "nonces.nonce"]),
    Index("verified_attempt_id", "attempt_id"),
    not_in_step_log=("findings", "located"),
)

disposals: Final = schema.table(
    "disposals",
    schema.text_column("attempt_id", ForeignKey("attempts.attempt_id"), primary_key=True),
    schema.text_column("outcome"),
    schema.number_column("removed"),  # number of files
    schema.number_column("kept"),  # number of files that stay because they are referenced
    schema.text_column("note"),
    schema.time_column(),
    schema.one_of_check("outcome", DisposalOutcome),
)

# Attempts whose files are removed from quarantine. A row is written before the first file is deleted. `done` is 0 or 1.
quarantine_removals: Final = schema.table(
    "quarantine_removals",
    schema.text_column("attempt_id", ForeignKey("disposals.attempt_id"), primary_key=True),
    *schema.text_columns("token_id", "name", "reason"),
    schema.number_column("files"),
    schema.number_column("bytes"),
    schema.number_column("done", changes=True),
    schema.time_column(),
    CheckConstraint("done IN (0, 1)", name="done_known"),
    CheckConstraint("files >= 0 AND bytes >= 0", name="counts_not_negative"),
)
