"""Options that several commands share, and the connection to a Steward that some of them describe."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from pvdm.cli.common.screen import notice
from pvdm.digest import Engine, kernel_engine, reference_engine
from pvdm.errors import Code, InputError, NotAllowedError, UnavailableError

if TYPE_CHECKING:
    from pvdm.client import StewardClient

Command = TypeVar("Command", bound=Callable[..., Any])

SEED_MAX: Final = 2**63 - 1
_TOKEN: Final = "PVDM_TOKEN"  # noqa: S105 - the name of a variable


class NonEmptyPath(click.Path):
    """A file or folder. An empty name, as an unset shell variable gives, is not the current folder."""

    def __init__(self, *, folder: bool = False) -> None:
        super().__init__(path_type=Path, file_okay=not folder, dir_okay=folder)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; an empty name is a usage error."""
        if value == "":
            self.fail("expected a name, got an empty one", param, ctx)
        return super().convert(value, param, ctx)


class ParsedType(click.types.StringParamType):
    """An option's value that `parse` reads; its `InputError` is a usage error."""

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The parsed value."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except InputError as error:
            self.fail(f"expected {error.expected}, got {error.got}", param, ctx)


def option_group(
    name: str, kind: type[Any], *options: Callable[[Any], Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Options that a command gets as one parameter `name`, an instance of the dataclass `kind`."""
    names = [field.name for field in fields(kind)]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def called(**given: Any) -> Any:
            return command(**{name: kind(**{each: given.pop(each) for each in names})}, **given)

        for option in reversed(options):
            called = option(called)
        return called

    return decorate


@dataclass(frozen=True, slots=True)
class Service:
    """The Steward's address, and the files with the caller's token and with the certificates to trust."""

    url: str | None
    token_file: Path | None
    ca_file: Path | None

    def connect(self) -> StewardClient:
        """A client, to be closed. Raises if the address or the token is missing."""
        if not self.url:
            raise Code.URL_MISSING(got="no --url and no PVDM_URL")
        # Imported late: httpx is slow to load, and most commands work offline.
        from pvdm.client import StewardClient

        if self.token_file is None and not os.environ.get(_TOKEN):
            raise InputError(
                Code.TOKEN_MISSING,
                "the request needs a token",
                expected="--token-file, PVDM_TOKEN_FILE or PVDM_TOKEN",
                got="none",
                hint="an operator issues one: `pvdm steward token issue`",
            )
        try:
            if self.token_file is not None:
                return StewardClient(self.url, token_file=self.token_file, ca_file=self.ca_file)
            return StewardClient(self.url, os.environ[_TOKEN], ca_file=self.ca_file)
        except NotAllowedError as error:
            if error.code == Code.STEWARD_ADDRESS_INSECURE:
                error.hint = "use its https address; steward.toml enables TLS with tls_certificate and tls_key"
            raise


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
engine_option = click.option(
    "--engine",
    "engine_name",
    type=click.Choice(["auto", "kernel", "reference"]),
    default="auto",
    show_default=True,
    help="The native kernel, the Python reference, or the kernel where it is installed.",
)
# A token itself is never an option: command lines are visible to other users.
service_options = option_group(
    "service",
    Service,
    click.option("--url", envvar="PVDM_URL", metavar="URL", help="The Steward's address, or PVDM_URL."),
    click.option(
        "--token-file",
        type=NonEmptyPath(),
        envvar="PVDM_TOKEN_FILE",
        metavar="FILE",
        help="The file (mode 0600) with your token, or PVDM_TOKEN_FILE; PVDM_TOKEN holds the token itself.",
    ),
    click.option(
        "--ca-file",
        type=NonEmptyPath(),
        envvar="PVDM_CA_FILE",
        metavar="FILE",
        help="CA certificates to trust for the Steward's TLS certificate, or PVDM_CA_FILE.  [default: the system's]",
    ),
)


def seed_option(default: int) -> Callable[[Command], Command]:
    """`--seed`: the same seed makes the same data again."""
    return click.option(
        "--seed",
        type=click.IntRange(0, SEED_MAX),
        default=default,
        show_default=True,
        metavar="N",
        help="The same seed makes the same data again.",
    )


def out_option(
    help_text: str = "The new file for the result; an existing file is not overwritten.",
) -> Callable[[Command], Command]:
    """`--out`: the new file for the result, which the command needs."""
    return click.option("--out", type=NonEmptyPath(), required=True, metavar="FILE", help=help_text)


def command_group(name: str, **settings: Any) -> Callable[[Callable[[], None]], click.Group]:
    """A group of commands; to call it without a command is a usage error."""

    def decorate(function: Callable[[], None]) -> click.Group:
        @functools.wraps(function)
        def called() -> None:
            context = click.get_current_context()
            if context.invoked_subcommand is None:
                raise click.UsageError("a command is missing", context)

        make: Callable[[Callable[[], None]], click.Group] = click.group(name, invoke_without_command=True, **settings)
        return make(called)

    return decorate


def pick_engine(name: str) -> Engine:
    """The engine of that name; `auto` without a kernel gives the reference, with a notice."""
    if name == "reference":
        return reference_engine()
    try:
        return kernel_engine()
    except UnavailableError as error:
        if name == "kernel":
            raise
        notice(f"{error.message}; the Python reference computes, some hundred times slower ({error.hint})")
        return reference_engine()


def named_values(given: tuple[str, ...], option: str) -> dict[str, str]:
    """The pairs of an option that is given as NAME=VALUE. Raises for a name that is given twice."""
    found: dict[str, str] = {}
    for each in given:
        name, sign, value = each.partition("=")
        if not sign or not name or name in found:
            raise Code.USAGE(f"{option} cannot be accepted", got=ascii(each)[:80])
        found[name] = value
    return found
