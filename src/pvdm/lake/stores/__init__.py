"""Where files lie: this machine's folders, or an S3-compatible object store, behind one small interface."""
