"""Partition specs, transforms and partition values."""
