"""The ledger: one database of workloads, attempts, nonces, proofs and events. May call `model` and `errors`."""

from pvdm.store.engine import Ledger, open_ledger
from pvdm.store.unit import Unit

__all__ = ["Ledger", "Unit", "open_ledger"]
