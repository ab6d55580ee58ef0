"""Restoring the ledger from a backup."""
