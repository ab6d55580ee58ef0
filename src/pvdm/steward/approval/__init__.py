"""Operators' signed approvals: protections and migrations."""
