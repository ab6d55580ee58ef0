"""Iceberg's REST compatibility kit, run against the served catalog."""
