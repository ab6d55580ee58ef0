"""The ledger: one database of workloads, attempts, nonces, proofs and events. May call `model` and `errors`."""

from pvdm.ledger.engine import Ledger, open_ledger
from pvdm.ledger.unit import Unit

__all__ = ["Ledger", "Unit", "open_ledger"]
