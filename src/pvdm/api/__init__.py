"""The Steward's HTTP API, declared once for server and client. Calls `model` and `errors` only."""
