"""Delivery of the outbox's events to other systems, and the watch for what only time makes an event."""
