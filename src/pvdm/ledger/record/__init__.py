"""Rows of the record: statements, proofs, receipts, approvals, tokens, the step log and the transparency log."""
