"""The gate, which alone moves `main` of protected tables, and the audit of such tables. May call `verify` and below."""
