"""Iceberg as pvdm reads and writes it: formats, tables, branches and files; calls models and errors only."""
