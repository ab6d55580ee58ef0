"""`pvdm proof` and `pvdm attest`: signed statements shown, checked and made."""
