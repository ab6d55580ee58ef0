"""`pvdm demo` and `pvdm eval`."""
