"""The ledger's tables and triggers as values, from which the SQL in `migrations/` is generated."""

from pvdm.ledger.schema import catalog, record, work

__all__ = ["catalog", "record", "work"]
