"""Clean-up after ended attempts: disposal, quarantine, orphans and the vault."""
