"""Rows of the catalog: namespaces, tables, views, snapshots, idempotent requests and files to delete."""
