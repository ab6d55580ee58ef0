"""Iceberg as pvdm reads and writes it: formats, tables and files; calls models, errors and fault points only."""
