"""The ledger's tables and triggers as values, from which the SQL in `migrations/` is generated."""

from pvdm.ledger.schema import catalog, protection, upstream, verify, views, work

__all__ = ["catalog", "protection", "upstream", "verify", "views", "work"]
