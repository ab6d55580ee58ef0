"""Frozen types that every room speaks. No input or output; may call `pvdm.errors` only."""
