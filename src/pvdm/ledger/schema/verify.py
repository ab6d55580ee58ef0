"""The tables of verification: what was found for each nonce, and which ended attempts were cleaned up."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from sqlalchemy import CheckConstraint, ForeignKey, ForeignKeyConstraint, Index

from pvdm.ledger.schema.columns import hex_text, number, one_of, table, time, word


class DisposalWord(StrEnum):
    """What became of an ended attempt's files."""

    PUBLISHED = "published"
    QUARANTINED = "quarantined"
    DELETED = "deleted"
    LEFT = "left"


# One row a nonce, which may be found again until its proof is signed; `location` is the verified manifest's.
verified: Final = table(
    "verified",
    word("nonce", primary_key=True),
    word("attempt_id"),
    word("core_sha256"),
    word("location", nullable=True),
    word("sha256", nullable=True),
    number("files"),
    number("rows", nullable=True),
    word("findings"),
    number("findings_more"),
    word("located", nullable=True),
    time(),
    *hex_text("core_sha256", 64),
    *hex_text("sha256", 64),
    CheckConstraint("(location IS NULL) = (sha256 IS NULL)", name="manifest_hashed"),
    ForeignKeyConstraint(["attempt_id", "nonce"], ["nonces.attempt_id", "nonces.nonce"]),
    Index("verified_attempt_id", "attempt_id"),
    changes=("core_sha256", "location", "sha256", "files", "rows", "findings", "findings_more", "located", "at_micros"),
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
    one_of("outcome", DisposalWord),
)

# One row an attempt whose files were removed from quarantine, written before the first file goes.
quarantine_removals: Final = table(
    "quarantine_removals",
    word("attempt_id", ForeignKey("disposals.attempt_id"), primary_key=True),
    word("token_id"),
    word("name"),
    word("reason"),
    number("files"),
    number("bytes"),
    number("done"),
    time(),
    CheckConstraint("done IN (0, 1)", name="done_known"),
    CheckConstraint("files >= 0 AND bytes >= 0", name="counts_not_negative"),
    changes=("done", "at_micros"),
)
