"""Asks a person for a yes before something is signed that others will act on."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import click

from pvdm.cli.common.screen import say_aside
from pvdm.cli.proof.text import Line
from pvdm.errors import Code


def require_yes(question: str, lines: Iterable[Line]) -> None:
    """Show what it is about, on standard error so that `--json` keeps its one document; anything but a yes ends it."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask on; read what it does, then add --yes")
    for line, style in lines:
        say_aside(line, style or "")
    if not click.confirm(question, err=True):
        raise Code.DECLINED()
