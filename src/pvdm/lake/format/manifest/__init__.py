"""Manifests and manifest lists of formats 1, 2 and 3, read and written."""
