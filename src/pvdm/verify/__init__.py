"""V: freeze, read, digest, compare. May call `trust`, `ledger`, `digest`, `lake` and below; Steward side only."""
