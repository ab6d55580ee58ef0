"""The ledger: the Steward's database. May import `model`, `lake.paths`, `errors` and `fault`, besides itself."""

from pvdm.ledger.engine import Ledger, ledger_file, open_ledger
from pvdm.ledger.unit import Unit

__all__ = ["Ledger", "Unit", "ledger_file", "open_ledger"]
