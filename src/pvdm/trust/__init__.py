"""Keys, signed statements and the transparency log."""
