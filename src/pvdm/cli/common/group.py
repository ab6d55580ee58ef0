"""Groups of commands; imports nothing else, so that the root command starts quickly."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click


def command_group(name: str, **settings: Any) -> Callable[[Callable[[], None]], click.Group]:
    """A group of commands; to call it without a command is a usage error."""

    def decorate(function: Callable[[], None]) -> click.Group:
        @functools.wraps(function)
        def require_subcommand() -> None:
            context = click.get_current_context()
            if context.invoked_subcommand is None:
                raise click.UsageError("a command is missing", context)

        make: Callable[[Callable[[], None]], click.Group] = click.group(name, invoke_without_command=True, **settings)
        return make(require_subcommand)

    return decorate
