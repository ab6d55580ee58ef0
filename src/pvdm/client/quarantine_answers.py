"""What the Steward answers of its quarantine."""

from __future__ import annotations

from dataclasses import dataclass

from pvdm.client.reading import Reading


@dataclass(frozen=True, slots=True)
class QuarantinedView:
    """A failed attempt whose files are kept; `undecided` says why they cannot be removed yet, None where they can.

    Workload and chunk are None where the ledger does not know the attempt; `failed_at` is when its files were written.
    """

    attempt_id: str
    workload_id: str | None
    chunk_id: str | None
    table: str | None
    table_uuid: str
    verdict: str | None
    proof_id: str | None
    failed_at: int
    age_seconds: int
    files: int
    bytes: int
    folder: str
    undecided: str | None

    @classmethod
    def read(cls, value: object) -> QuarantinedView:
        """The answer's value."""
        fields = Reading(value, "what is in quarantine")
        return cls(
            fields.hex("attempt_id", 16),
            fields.optional_text("workload_id"),
            fields.optional_text("chunk_id"),
            fields.optional_text("table"),
            fields.text("table_uuid"),
            fields.optional_text("verdict"),
            fields.optional_hex("proof_id", 32),
            fields.number("failed_at"),
            fields.number("age_seconds"),
            fields.number("files"),
            fields.decimal("bytes"),
            fields.text("folder"),
            fields.optional_text("undecided"),
        )


@dataclass(frozen=True, slots=True)
class QuarantineRemovalView:
    """What was removed of one attempt, by whom and why."""

    attempt_id: str
    files: int
    bytes: int
    name: str
    reason: str

    @classmethod
    def read(cls, value: object) -> QuarantineRemovalView:
        """The answer's value."""
        fields = Reading(value, "what was removed")
        return cls(
            fields.hex("attempt_id", 16),
            fields.number("files"),
            fields.decimal("bytes"),
            fields.text("name"),
            fields.text("reason"),
        )
