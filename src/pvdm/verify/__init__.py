"""The Steward's verification: freezes, reads, digests and compares data. May call `trust`, `client` and below."""
