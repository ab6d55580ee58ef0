"""Benchmarks: each prints its figures and writes them as JSON; none is a test."""
