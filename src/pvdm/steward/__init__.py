"""The Steward: keys, log and ledger behind an HTTP service. Imports no code of `cli`, `evaluation` and `durable`."""
