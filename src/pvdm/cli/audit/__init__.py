"""`pvdm audit`."""
