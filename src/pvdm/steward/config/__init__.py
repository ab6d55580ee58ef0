"""`steward.toml`: its sections as values, and what they name."""
