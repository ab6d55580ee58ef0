"""Spark sessions that reach tables through a Steward's catalog. The one place that starts Spark."""
