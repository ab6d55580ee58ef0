"""The command line `pvdm`. May call every room below it; no other room calls this one."""

from pvdm.cli.app import main

__all__ = ["main"]
