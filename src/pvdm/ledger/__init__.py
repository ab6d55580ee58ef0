"""The ledger: one database of workloads, nonces, proofs and events. May call `model`, `lake.paths` and `errors`."""

from pvdm.ledger.engine import Ledger, open_ledger
from pvdm.ledger.unit import Unit

__all__ = ["Ledger", "Unit", "open_ledger"]
