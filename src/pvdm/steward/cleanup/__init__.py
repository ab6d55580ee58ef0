"""What ended attempts leave behind: clean-up, quarantine, orphans and the vault."""
