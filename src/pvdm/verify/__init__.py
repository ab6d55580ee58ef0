"""Freezes, reads, digests and compares staged data; Steward side. May call `trust`, `ledger`, `digest` and `lake`."""
