"""Commands about tables and contracts: `init`, `validate`, `protect`, `migrate` and others."""
