"""Filters, their grammar and literals; and claims, the values of a column that an append workload reserves."""
