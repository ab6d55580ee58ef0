"""`pvdm demo`, `pvdm quickstart` and `pvdm eval`."""
