"""An order carried out: check 12 as what it leads to, and the note that the receipt is made from."""

from __future__ import annotations

from typing import Final

from pvdm.errors import PvdmError
from pvdm.ledger.record import events
from pvdm.ledger.unit import Unit
from pvdm.metadata.gate import checks_ledger
from pvdm.metadata.gate.context import check
from pvdm.metadata.gate.order import Order
from pvdm.metadata.gate.proposal import Shown

PUBLISHED: Final = "published"
"""Kind and subject of the note in the step log that holds what a receipt has to say; the key is `UUID/snapshot`."""


def carry_out(unit: Unit, order: Order) -> Shown:
    """Nonces, chunks, claim and override are used up, source and note are kept: all of it, or the unit undoes it."""
    shown = order.shown
    snapshot_id = str(shown.new_snapshot_id)
    with check(12):
        for part in order.parts:
            try:
                checks_ledger.check_12_once(unit, part, snapshot_id)
            except PvdmError as error:
                error.details.setdefault("attempt_id", part.attempt_id)
                raise
        checks_ledger.check_12_source(unit, shown.workload_id, order.source)
        checks_ledger.check_12_claim(unit, shown.workload_id, order.claim)
        if order.override_nonce is not None:
            checks_ledger.check_12_override(unit, order.override_nonce, snapshot_id)
    checks_ledger.complete(unit, shown.workload_id)
    events.note(unit, PUBLISHED, PUBLISHED, f"{shown.table.uuid}/{snapshot_id}", shown.facts())
    return shown
