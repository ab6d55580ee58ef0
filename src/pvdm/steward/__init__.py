"""The notary service: keys, log and ledger behind an HTTP service. Calls `trust`, `ledger`, `digest`, `client`."""
