"""The routes under `/v1` and their models."""
