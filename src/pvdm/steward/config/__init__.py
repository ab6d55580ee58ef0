"""Reads `steward.toml`, compares it with the ledger, and opens the files and services that it names."""
