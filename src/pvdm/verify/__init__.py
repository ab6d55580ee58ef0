"""V: freeze, read, digest, compare. May call `trust`, `store`, `digest`, `lake` and below; Steward side only."""
