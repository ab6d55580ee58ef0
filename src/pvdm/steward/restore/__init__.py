"""Restoring the ledger from a backup and the archive."""
