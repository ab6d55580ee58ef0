"""Signed statements and the transparency log: record, archive and read them."""
