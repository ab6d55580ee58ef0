"""The ledger: the Steward's database. May import `model`, `lake.paths`, `errors` and `fault`, besides itself."""

from pvdm.ledger.engine import Ledger, open_ledger
from pvdm.ledger.unit import Unit

__all__ = ["Ledger", "Unit", "open_ledger"]
