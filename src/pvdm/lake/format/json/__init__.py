"""Lossless JSON documents and typed reading of their objects."""
