"""Lossless readers and writers of Iceberg metadata documents and manifests, formats 1, 2 and 3; calls models only."""
