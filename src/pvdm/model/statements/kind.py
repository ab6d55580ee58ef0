"""The kinds of signed statements."""

from enum import StrEnum


class StatementKind(StrEnum):
    """The kind of a signed and logged statement, as the ledger stores it and the log's entries name it."""

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
    CLAIM_RELEASE = "claim-release"
