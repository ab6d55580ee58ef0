"""The version, in a module that every package may import."""

from __future__ import annotations

__version__ = "0.1.0"
