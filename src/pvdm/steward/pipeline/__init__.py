"""What happens to staged data: verification, publication and overrides, run by background jobs."""
