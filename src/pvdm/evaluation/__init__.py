"""The paper's experiments and ours, seeded and written as JSON. May call `pvdm.digest` and below."""
