"""The Iceberg REST catalog: tables that show nothing unproved. May call `metadata`, `trust`, `ledger` and `lake`."""
