"""Iceberg as pvdm reads and writes it: formats, tables, files. Imports only `model`, `errors` and `fault` of pvdm."""
