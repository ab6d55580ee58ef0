"""Workloads and attempts of producers: open, read and end them."""
