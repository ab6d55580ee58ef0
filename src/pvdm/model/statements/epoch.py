"""Statements about the Steward itself: the steps of an epoch (a generation of its keys), and restores from a backup."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pvdm.errors import Code
from pvdm.model.codec import DecimalText, Document, Identity, JsonNumber, Pairs, Sha256, Text


class EpochStage(Enum):
    """The stages of an epoch, in order."""

    CREATED = "CREATED"
    ACTIVE = "ACTIVE"
    RETIRED = "RETIRED"
    REVOKED = "REVOKED"


@dataclass(frozen=True, slots=True)
class EpochStatement(Document, title="the epoch statement"):
    """One step of one epoch, with the ids of its keys by their roles. `before` is None for a new epoch."""

    notary: Identity
    epoch: DecimalText
    before: EpochStage | None
    after: EpochStage
    reason: Text
    key_ids: Pairs
    issued_at: JsonNumber

    def require_consistent(self) -> None:
        """An epoch only goes forward."""
        require_step(self.before, self.after)


@dataclass(frozen=True, slots=True)
class RestoreStatement(Document, title="the restore statement"):
    """A restore of the ledger: the log's size in the backup, the checkpoint outside the ledger, and the new epoch.

    Log entries are counted by `refilled` (from the archive), `missing` (refilled without envelope), `lost` (given up).
    """

    notary: Identity
    operator: Identity
    reason: Text
    backup_size: DecimalText
    outside_origin: Text
    outside_size: DecimalText
    outside_root: Sha256
    refilled: DecimalText
    missing: DecimalText
    lost: DecimalText
    new_epoch: DecimalText
    issued_at: JsonNumber


def require_step(before: EpochStage | None, after: EpochStage) -> None:
    """Raise `epoch_step_invalid` unless `after` is a later stage than `before`."""
    stages = list(EpochStage)
    if before is not None and stages.index(after) <= stages.index(before):
        raise Code.EPOCH_INVALID(reason="epoch_step_invalid", got=f"{before.value} to {after.value}")
