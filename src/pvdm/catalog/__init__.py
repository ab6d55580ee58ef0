"""The catalog is the gate: Iceberg tables that show nothing unproved. May call `metadata`, `trust`, `store`, `lake`."""
