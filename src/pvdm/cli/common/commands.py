"""Commands with the option --json, and groups of them. Imports little, so that the root command starts quickly."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import click

_JSON_KEY: Final = "pvdm.json"


def _note_json(context: click.Context, _option: click.Parameter, given: bool) -> None:
    """Remember whether --json was given."""
    context.meta[_JSON_KEY] = given is True


def wants_json() -> bool:
    """Whether the running command was called with --json."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_JSON_KEY))


class JsonCommand(click.Command):
    """A command whose first option is --json; `wants_json` says whether it was given."""

    def __init__(self, name: str | None, *, params: list[click.Parameter] | None = None, **settings: Any) -> None:
        help_text = "Print one JSON document instead of text."
        json = click.Option(["--json"], is_flag=True, expose_value=False, callback=_note_json, help=help_text)
        super().__init__(name, params=[json, *(params or ())], **settings)


class JsonGroup(click.Group):
    """A group whose commands have the option --json."""

    command_class = JsonCommand


def command(name: str | None = None, **settings: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """The decorator of a command directly below `pvdm`, with the option --json."""
    make: Callable[[Callable[..., Any]], click.Command] = click.command(name, cls=JsonCommand, **settings)
    return make


def command_group(name: str, **settings: Any) -> Callable[[Callable[[], None]], click.Group]:
    """The decorator of a group of commands; calling it without a subcommand is a usage error."""

    def decorate(function: Callable[[], None]) -> click.Group:
        @functools.wraps(function)
        def require_subcommand() -> None:
            context = click.get_current_context()
            if context.invoked_subcommand is None:
                raise click.UsageError("a command is missing", context)

        make: Callable[[Callable[[], None]], click.Group] = click.group(
            name, invoke_without_command=True, **{"cls": JsonGroup, **settings}
        )
        return make(require_subcommand)

    return decorate
