"""Rows about restores from a backup: which are under way, and which claims and ids the backup does not know."""
