"""Freezes, reads, digests and compares staged data; Steward side. May call `trust`, `digest` and `lake`."""
