"""Avro object container files, read within limits and written reproducibly."""
