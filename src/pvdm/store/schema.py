"""The ledger's tables, as values; `rules.py` adds the triggers, `migrations/` holds the frozen SQL of both."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.schema import SchemaItem

from pvdm.model.role import Role
from pvdm.model.states import ATTEMPT, NONCE, WORKLOAD, Machine, NonceState

metadata: Final = MetaData()


class Atomicity(StrEnum):
    """What is published at once."""

    CHUNK = "chunk"
    WORKLOAD = "workload"


class NoncePurpose(StrEnum):
    """What a nonce is good for."""

    ATTEMPT = "attempt"
    BREAK_GLASS = "break-glass"
    SOURCE_ATTESTATION = "source-attestation"


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


def _big() -> BigInteger:
    """64 bits on both; SQLite's STRICT tables call that INTEGER."""
    return BigInteger().with_variant(Integer(), "sqlite")


def _word(name: str, *more: Any, **options: Any) -> Column[str]:
    options.setdefault("nullable", False)
    return Column(name, Text(), *more, **options)


def _number(name: str, *more: Any, **options: Any) -> Column[int]:
    options.setdefault("nullable", False)
    return Column(name, _big(), *more, **options)


def _time(name: str = "at_micros") -> Column[int]:
    return _number(name, CheckConstraint(f"{name} >= 0", name=f"{name}_not_negative"))


def _table(
    name: str, *items: SchemaItem, changes: tuple[str, ...] = (), unlogged: tuple[str, ...] | None = ()
) -> Table:
    """`changes` are the columns that may change at all; `unlogged` those an event leaves out, None for no events."""
    return Table(name, metadata, *items, sqlite_strict=True, info={"changes": changes, "unlogged": unlogged})


def _one_of(column: str, words: type[StrEnum]) -> CheckConstraint:
    listed = ", ".join(f"'{word}'" for word in words)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_known")


def _states(machine: Machine) -> tuple[SchemaItem, ...]:
    return (_word("state"), _one_of("state", machine.states))


def _hex(column: str, length: int) -> tuple[SchemaItem, SchemaItem]:
    """Lower-case hexadecimal of one length, said in each database's own words."""
    glob = CheckConstraint(f"length({column}) = {length} AND {column} NOT GLOB '*[^0-9a-f]*'", name=f"{column}_hex")
    regular = CheckConstraint(f"{column} ~ '^[0-9a-f]{{{length}}}$'", name=f"{column}_hex")
    return glob.ddl_if(dialect="sqlite"), regular.ddl_if(dialect="postgresql")


events: Final = Table(
    "events",
    metadata,
    Column("event_id", _big(), Identity(always=True), primary_key=True),
    _time(),
    _word("kind"),
    _word("subject"),
    _word("row_key"),
    _word("old", nullable=True),
    _word("new", nullable=True),
    Index("events_at_micros", "at_micros"),
    Index("events_subject", "subject", "row_key"),
    sqlite_strict=True,
    sqlite_autoincrement=True,
    info={"changes": (), "unlogged": None},
)

workloads: Final = _table(
    "workloads",
    _word("workload_id", primary_key=True),
    _word("contract_hash"),
    _word("table_uuid"),
    _word("source"),
    _word("source_snapshot_id", nullable=True),
    _word("parameters"),
    _word("atomicity"),
    _word("domain"),
    _word("plan_hash"),
    _number("epoch"),
    *_states(WORKLOAD),
    _word("reason"),
    _time(),
    _one_of("atomicity", Atomicity),
    CheckConstraint("length(workload_id) BETWEEN 1 AND 128", name="workload_id_length"),
    *_hex("contract_hash", 64),
    *_hex("plan_hash", 64),
    Index("workloads_table_uuid", "table_uuid"),
    Index("workloads_domain", "domain"),
    changes=("state", "reason", "at_micros"),
)

chunks: Final = _table(
    "chunks",
    _word("workload_id", ForeignKey("workloads.workload_id"), primary_key=True),
    _word("chunk_id", primary_key=True),
    _number("ordinal"),
    _word("definition"),
    _time(),
    UniqueConstraint("workload_id", "ordinal", name="chunks_ordinal_once"),
)

attempts: Final = _table(
    "attempts",
    _word("attempt_id", primary_key=True),
    _word("workload_id"),
    _word("chunk_id"),
    _number("number", CheckConstraint("number >= 1", name="number_positive")),
    _word("branch"),
    _word("prefix"),
    *_states(ATTEMPT),
    _word("staged_snapshot_id", nullable=True),
    _word("reason"),
    _time(),
    *_hex("attempt_id", 32),
    ForeignKeyConstraint(["workload_id", "chunk_id"], ["chunks.workload_id", "chunks.chunk_id"]),
    UniqueConstraint("workload_id", "chunk_id", "number", name="attempts_number_once"),
    UniqueConstraint("workload_id", "chunk_id", "attempt_id", name="attempts_of_chunk"),
    UniqueConstraint("prefix", name="attempts_prefix_once"),
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

nonces: Final = _table(
    "nonces",
    _word("nonce", primary_key=True),
    _word("purpose"),
    _word("holder"),
    _word("attempt_id", ForeignKey("attempts.attempt_id"), nullable=True),
    *_states(NONCE),
    _word("snapshot_id", nullable=True),
    _word("reason"),
    _time(),
    *_hex("nonce", 32),
    _one_of("purpose", NoncePurpose),
    CheckConstraint(f"(purpose = '{NoncePurpose.ATTEMPT}') = (attempt_id IS NOT NULL)", name="attempt_has_nonce"),
    CheckConstraint(
        f"state <> '{NonceState.COMMITTED}' OR attempt_id IS NULL OR snapshot_id IS NOT NULL", name="committed_as"
    ),
    UniqueConstraint("attempt_id", "nonce", name="nonces_of_attempt"),
    changes=("state", "snapshot_id", "reason", "at_micros"),
)
_held = text(f"state <> '{NonceState.ABORTED}'")
Index("nonces_one_held", nonces.c.attempt_id, unique=True, sqlite_where=_held, postgresql_where=_held)

published: Final = _table(
    "published",
    _word("workload_id", primary_key=True),
    _word("chunk_id", primary_key=True),
    _word("attempt_id"),
    _word("nonce"),
    _word("snapshot_id"),
    _time(),
    ForeignKeyConstraint(
        ["workload_id", "chunk_id", "attempt_id"],
        ["attempts.workload_id", "attempts.chunk_id", "attempts.attempt_id"],
    ),
    ForeignKeyConstraint(["attempt_id", "nonce"], ["nonces.attempt_id", "nonces.nonce"]),
    UniqueConstraint("nonce", name="published_nonce_once"),
)

claims: Final = _table(
    "claims",
    _word("workload_id", ForeignKey("workloads.workload_id"), primary_key=True),
    _word("target", primary_key=True),
    _word("source", primary_key=True),
    _word("column_name", nullable=True),
    _word("column_kind", nullable=True),
    Column("lower_bound", LargeBinary(), nullable=False),
    Column("upper_bound", LargeBinary(), nullable=True),
    _word("extent"),
    _time(),
    CheckConstraint("upper_bound IS NULL OR lower_bound < upper_bound", name="extent_not_empty"),
    CheckConstraint("(column_name IS NULL) = (column_kind IS NULL)", name="column_typed"),
    Index("claims_scope", "target", "source"),
)

log_entries: Final = _table(
    "log_entries",
    _number("entry_index", primary_key=True, autoincrement=False),
    Column("entry", LargeBinary(), nullable=False),
    unlogged=None,
)

log_hashes: Final = _table(
    "log_hashes",
    _number("level", primary_key=True, autoincrement=False),
    _number("position", primary_key=True, autoincrement=False),
    Column("hash", LargeBinary(), nullable=False),
    CheckConstraint("length(hash) = 32", name="hash_length"),
    unlogged=None,
)

log_checkpoints: Final = _table(
    "log_checkpoints",
    _number("size", primary_key=True, autoincrement=False),
    Column("note", LargeBinary(), nullable=False),
    unlogged=None,
)

statements: Final = _table(
    "statements",
    _word("statement_id", primary_key=True),
    _word("kind"),
    Column("envelope", LargeBinary(), nullable=False),
    _number("log_index", ForeignKey("log_entries.entry_index")),
    _time(),
    *_hex("statement_id", 64),
    _one_of("kind", StatementKind),
    UniqueConstraint("log_index", name="statements_log_index_once"),
    Index("statements_kind", "kind"),
    unlogged=("envelope",),
)

proofs: Final = _table(
    "proofs",
    _word("proof_id", ForeignKey("statements.statement_id"), primary_key=True),
    _word("attempt_id"),
    _word("nonce"),
    _word("verdict"),
    _word("notary"),
    _number("expires_micros"),
    _word("summary"),
    _word("context", nullable=True),
    _time(),
    _one_of("verdict", VerdictWord),
    ForeignKeyConstraint(["attempt_id", "nonce"], ["nonces.attempt_id", "nonces.nonce"]),
    UniqueConstraint("nonce", "notary", name="proofs_notary_once"),
    Index("proofs_attempt_id", "attempt_id"),
)

receipts: Final = _table(
    "receipts",
    _word("receipt_id", ForeignKey("statements.statement_id"), primary_key=True),
    _word("workload_id", ForeignKey("workloads.workload_id")),
    _word("table_uuid"),
    _word("snapshot_id"),
    _time(),
    UniqueConstraint("table_uuid", "snapshot_id", name="receipts_snapshot_once"),
    Index("receipts_workload_id", "workload_id"),
)

# What receipts of a lost time say was published: these ids are used up, though their own rows are gone.
spent: Final = _table(
    "spent",
    _word("workload_id", primary_key=True),
    _word("chunk_id", primary_key=True),
    _word("snapshot_id"),
    _word("receipt_id", ForeignKey("statements.statement_id")),
    _time(),
)

overrides: Final = _table(
    "overrides",
    _word("override_id", ForeignKey("statements.statement_id"), primary_key=True),
    _word("fail_proof_id", ForeignKey("proofs.proof_id")),
    _word("nonce", ForeignKey("nonces.nonce")),
    _word("operator"),
    _number("expires_micros"),
    _time(),
    UniqueConstraint("nonce", name="overrides_nonce_once"),
    Index("overrides_fail_proof_id", "fail_proof_id"),
)

challenges: Final = _table(
    "challenges",
    _word("nonce", ForeignKey("nonces.nonce"), primary_key=True),
    _word("attestor"),
    _number("epoch"),
    _word("request"),
    _number("expires_micros"),
    _time(),
)

attestations: Final = _table(
    "attestations",
    _word("attestation_id", ForeignKey("statements.statement_id"), primary_key=True),
    _word("nonce", ForeignKey("challenges.nonce")),
    _word("attestor"),
    _word("catalog"),
    _word("table_uuid"),
    _word("snapshot_id"),
    _time(),
    UniqueConstraint("nonce", name="attestations_nonce_once"),
    Index("attestations_source", "table_uuid", "snapshot_id"),
)

epoch_books: Final = _table(
    "epoch_books",
    _number("revision", primary_key=True, autoincrement=False),
    Column("book", LargeBinary(), nullable=False),
    _time(),
    unlogged=("book",),
)

handles: Final = _table(
    "handles",
    _word("handle_sha256", primary_key=True),
    _word("job_id"),
    _number("redemptions"),
    _word("state"),
    _word("context", nullable=True),
    _time(),
    *_hex("handle_sha256", 64),
    _one_of("state", HandleWord),
    UniqueConstraint("job_id", name="handles_job_once"),
    changes=("state", "context", "at_micros"),
)

handle_workers: Final = _table(
    "handle_workers",
    _word("handle_sha256", ForeignKey("handles.handle_sha256"), primary_key=True),
    _word("worker", primary_key=True),
    _time(),
)

tokens: Final = _table(
    "tokens",
    _word("token_id", primary_key=True),
    _word("secret_sha256"),
    _word("role"),
    _word("domain"),
    _word("name"),
    _word("attempt_id", ForeignKey("attempts.attempt_id"), nullable=True),
    _word("parent_id", ForeignKey("tokens.token_id"), nullable=True),
    _number("expires_micros"),
    _number("revoked_micros", nullable=True),
    _time(),
    *_hex("token_id", 32),
    *_hex("secret_sha256", 64),
    _one_of("role", Role),
    UniqueConstraint("secret_sha256", name="tokens_secret_once"),
    changes=("revoked_micros", "at_micros"),
    unlogged=("secret_sha256",),
)

# Restores under way and done; until one has its finishing time, nothing but the restore itself runs on this ledger.
restores: Final = _table(
    "restores",
    _number("restore_id", primary_key=True, autoincrement=False),
    _word("operator"),
    _word("reason"),
    _number("backup_size"),
    Column("outside_note", LargeBinary(), nullable=False),
    _number("epoch_before"),
    _word("log_keys"),
    _word("outcome"),
    _number("finished_micros", nullable=True),
    _time(),
    changes=("finished_micros", "at_micros"),
)

# What receipts of a lost time published without a claim that is left: the whole target, or one source of it.
lost_claims: Final = _table(
    "lost_claims",
    _word("receipt_id", ForeignKey("statements.statement_id"), primary_key=True),
    _word("workload_id"),
    _word("target"),
    _word("source", nullable=True),
    _word("released_by", nullable=True),
    _word("reason"),
    _time(),
    Index("lost_claims_target", "target"),
    changes=("released_by", "reason", "at_micros"),
)
