"""Writing the next snapshot of a branch, and removing branches."""
