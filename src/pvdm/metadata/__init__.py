"""M: the gate and what it writes. May call `trust`, `ledger`, `digest`, `lake`."""
