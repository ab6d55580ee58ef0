"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from pvdm.cli.common.screen import notice
from pvdm.digest import Engine, kernel_engine, reference_engine
from pvdm.errors import UnavailableError

_Command = TypeVar("_Command", bound=Callable[..., Any])

SEED_MAX: Final = 2**63 - 1


def json_option(command: _Command) -> _Command:
    """`--json`: the result, or the error, as one JSON document on standard output."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")(command)


def seed_option(default: int) -> Callable[[_Command], _Command]:
    """`--seed`: the same seed makes the same data again."""
    return click.option(
        "--seed",
        type=click.IntRange(0, SEED_MAX),
        default=default,
        show_default=True,
        metavar="N",
        help="The same seed makes the same data again.",
    )


class PlaceType(click.Path):
    """A file or folder to write to. An empty name, as an unset shell variable gives, is not the current folder."""

    def __init__(self, *, folder: bool = False) -> None:
        super().__init__(path_type=Path, file_okay=not folder, dir_okay=folder)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; an empty name is a usage error."""
        if value == "":
            self.fail("expected a name, got an empty one", param, ctx)
        return super().convert(value, param, ctx)


def require_command(context: click.Context) -> None:
    """A group that is called without a command is a usage error like any other."""
    if context.invoked_subcommand is None:
        raise click.UsageError("a command is missing", context)


def engine_option(command: _Command) -> _Command:
    """`--engine`: which implementation of the digest computes."""
    return click.option(
        "--engine",
        "engine_name",
        type=click.Choice(["auto", "kernel", "reference"]),
        default="auto",
        show_default=True,
        help="The native kernel, the Python reference, or the kernel where it is installed.",
    )(command)


def pick_engine(name: str) -> Engine:
    """The engine of that name; `auto` without a kernel says so and takes the reference."""
    if name == "reference":
        return reference_engine()
    try:
        return kernel_engine()
    except UnavailableError as error:
        if name == "kernel":
            raise
        notice(f"{error.message}; the Python reference computes, some hundred times slower ({error.hint})")
        return reference_engine()
