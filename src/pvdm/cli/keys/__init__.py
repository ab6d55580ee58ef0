"""`pvdm keys`: key pairs, epochs and trust roots."""
