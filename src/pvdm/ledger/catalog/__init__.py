"""Rows of the catalog: namespaces, tables, views, repeated requests and files to delete."""
