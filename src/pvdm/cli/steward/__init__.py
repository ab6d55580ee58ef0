"""`pvdm steward`: the service on its own host."""
