"""Iceberg schemas: their JSON, logical types, defaults, single values and bounds."""
