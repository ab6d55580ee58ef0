"""Lossless readers and writers of Iceberg metadata and manifests, formats 1, 2 and 3; calls models and errors only."""
