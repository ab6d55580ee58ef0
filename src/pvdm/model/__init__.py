"""Frozen types for all packages, without input or output. It imports only `pvdm.errors`."""
