"""The epochs of a restored Steward: caught up with the log, a new one above all, the old ones retired or revoked."""

from __future__ import annotations

from pvdm.ledger import Ledger
from pvdm.ledger.record import statements
from pvdm.ledger.record.restores import Restore
from pvdm.ledger.schema.record import StatementKind
from pvdm.model.statements.epoch import EpochStage, EpochStatement
from pvdm.trust.keys.epochs import Epoch
from pvdm.trust.keys.service import KeyService
from pvdm.trust.statement import read_signed


def bump(ledger: Ledger, keys: KeyService, marker: Restore) -> int:
    """The new epoch's number; run again after a crash it goes on with the epoch it has made.

    With entries lost nobody knows what was revoked meanwhile, so every epoch of before is: only the new keys sign.
    """
    told = _told(ledger)
    lost = bool(marker.outcome["lost"])

    def old() -> list[Epoch]:
        return [epoch for epoch in keys.book().epochs if epoch.number <= marker.epoch_before]

    def ends(epoch: Epoch) -> bool:
        return lost or told.get(epoch.number) is EpochStage.REVOKED

    for epoch in old():
        behind = told.get(epoch.number, EpochStage.CREATED) is not EpochStage.CREATED
        # Only what was active can be retired or revoked; nothing is signed with it in between.
        if epoch.state is EpochStage.CREATED and (lost or behind):
            keys.activate_epoch(epoch.number, marker.reason)
    made = _made(keys, marker, max(told, default=0))
    left = any(epoch.can_sign and not ends(epoch) for epoch in old())
    if not left and keys.book().epoch(made).state is EpochStage.CREATED:
        # Only the new keys are left to sign with; the Steward is not ready until a trust root names them.
        keys.activate_epoch(made, marker.reason)
    for epoch in old():
        if epoch.can_sign and ends(epoch):
            keys.revoke_epoch(epoch.number, marker.reason)
    active = keys.book().active
    if active is not None and active.number != made:
        keys.retire_epoch(active.number, marker.reason)
    return made


def _made(keys: KeyService, marker: Restore, above: int) -> int:
    """The epoch that an interrupted restore has made, or a new one."""
    newest = keys.book().epochs[-1].number
    if newest > max(marker.epoch_before, above):
        return newest
    return keys.create_epoch(marker.reason, above=above)[0].epoch


def _told(ledger: Ledger) -> dict[int, EpochStage]:
    """What the log, refilled as far as it could be, says of each epoch last."""
    with ledger.read() as unit:
        stored = statements.of_kind(unit, StatementKind.EPOCH)
    said = [read_signed(each.envelope, EpochStatement) for each in stored]
    return {each.epoch: each.after for each in said}
