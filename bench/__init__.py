"""Benchmarks. Each prints its figures and writes them as JSON."""
