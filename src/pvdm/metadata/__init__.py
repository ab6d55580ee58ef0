"""M: the gate and what it writes. May call `trust`, `store`, `digest`, `lake`."""
