"""Commands about evidence: `proof`, `attest`, `audit` and `log`."""
