"""Signed statements as values: the proof and its core, receipts, approvals, overrides and the rest."""
