"""The audit of a table's history. Needs no ledger."""
