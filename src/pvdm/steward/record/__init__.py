"""Signed statements and the log: recorded, archived, and handed out to readers."""
