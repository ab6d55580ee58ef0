"""Commands about workloads: `run`, `publish`, `repair`, `status`, `abandon` and others."""
