"""The notary service: keys, log and ledger joined behind an HTTP door. Calls `trust`, `ledger`, `digest`, `client`."""
