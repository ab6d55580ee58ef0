"""The transparency log (spec/log.md). Nothing is imported here, so that `fsck` runs alone."""
