"""Workloads and attempts as producers ask for them: opened, looked at and given up."""
