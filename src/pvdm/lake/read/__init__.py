"""Reading a snapshot: entries, deletes, scans, and columns brought to a schema."""
