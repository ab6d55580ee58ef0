"""The gate: proposals, the numbered checks, and the one way in which `main` moves."""
