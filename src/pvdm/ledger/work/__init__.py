"""Rows about work: workloads, chunks, attempts, nonces, claims and what verification found."""
