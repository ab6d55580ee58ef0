"""Runs workloads from their opening to their outcome, and continues interrupted runs. Producer side."""
