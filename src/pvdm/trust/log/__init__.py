"""The transparency log (spec/log.md), one module a task; nothing is loaded here, so that `fsck` can run alone."""
