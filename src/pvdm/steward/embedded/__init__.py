"""A Steward inside the caller's process."""
