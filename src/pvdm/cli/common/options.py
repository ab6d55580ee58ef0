"""Options that several commands share, and the connection to a Steward that some of them describe."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
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
_TOKEN_VARIABLE: Final = "PVDM_TOKEN"  # noqa: S105 - the name of an environment variable


class NonEmptyPath(click.Path):
    """A path of a file or folder. An empty path, for example from an unset shell variable, is a usage error."""

    def __init__(self, *, folder: bool = False) -> None:
        super().__init__(path_type=Path, file_okay=not folder, dir_okay=folder)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; an empty one is a usage error."""
        if value == "":
            self.fail("expected a path, got an empty one", param, ctx)
        return super().convert(value, param, ctx)


def path_option(*names: str, folder: bool = False, **settings: Any) -> Callable[[Command], Command]:
    """An option for a file, or for a folder."""
    return click.option(
        *names, type=NonEmptyPath(folder=folder), **{"metavar": "DIR" if folder else "FILE", **settings}
    )


def path_argument(name: str, *, folder: bool = False, **settings: Any) -> Callable[[Command], Command]:
    """An argument for a file, or for a folder."""
    return click.argument(name, type=NonEmptyPath(folder=folder), **{"metavar": name.upper(), **settings})


def choice_option(*names: str, choices: Sequence[str], help_text: str) -> Callable[[Command], Command]:
    """An option with a closed list of values; the first is the default."""
    return click.option(*names, type=click.Choice(choices), default=choices[0], show_default=True, help=help_text)


def number_option(
    name: str, default: int, *, least: int, most: int, help_text: str, **settings: Any
) -> Callable[[Command], Command]:
    """An option for a whole number from `least` to `most`."""
    kind = click.IntRange(least, most)
    return click.option(name, type=kind, default=default, show_default=True, help=help_text, **settings)


class ParsedType(click.types.StringParamType):
    """The type of an option whose text `parse` converts; an `InputError` of `parse` becomes a usage error."""

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
    """The decorator for options that a command gets as one parameter `name`, an instance of the dataclass `kind`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def wrapper(**values: Any) -> Any:
            group = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
            return command(**{name: group}, **values)

        for option in reversed(options):  # the help shows the last applied option first
            wrapper = option(wrapper)
        return wrapper

    return decorate


@dataclass(frozen=True, slots=True)
class Service:
    """The Steward's address, and the files with the caller's token and with the certificates to trust."""

    url: str | None
    token_file: Path | None
    ca_file: Path | None

    def connect(self) -> StewardClient:
        """A client, which the caller closes. Raises if the address or the token is missing."""
        if not self.url:
            raise Code.USAGE(reason="url_missing", got="no --url and no PVDM_URL")
        # Imported late: httpx is slow to load, and commands that work offline do not need it.
        from pvdm.client import StewardClient

        if self.token_file is None and not os.environ.get(_TOKEN_VARIABLE):
            expected = "--token-file, PVDM_TOKEN_FILE or PVDM_TOKEN"
            hint = "an operator issues one: `pvdm steward token issue`"
            raise InputError(Code.TOKEN_MISSING, "the request needs a token", expected=expected, got="none", hint=hint)
        try:
            token = os.environ[_TOKEN_VARIABLE] if self.token_file is None else None
            return StewardClient(self.url, token, token_file=self.token_file, ca_file=self.ca_file)
        except NotAllowedError as error:
            if error.code == Code.STEWARD_ADDRESS_INSECURE:  # the error's hint names an argument of the Python client
                error.hint = "use its https address; steward.toml enables TLS with tls_certificate and tls_key"
            raise


engine_option = choice_option(
    "--engine",
    "engine_name",
    choices=["auto", "kernel", "reference"],
    help_text="What computes digests: the native kernel, the Python reference, or (auto) the first that is installed.",
)
# A token itself is never an option: command lines are visible to other users.
service_options = option_group(
    "service",
    Service,
    click.option("--url", envvar="PVDM_URL", metavar="URL", help="The Steward's address, or PVDM_URL."),
    path_option(
        "--token-file",
        envvar="PVDM_TOKEN_FILE",
        help="The file (mode 0600) with your token, or PVDM_TOKEN_FILE; PVDM_TOKEN holds the token itself.",
    ),
    path_option(
        "--ca-file",
        envvar="PVDM_CA_FILE",
        help="CA certificates to trust for the Steward's TLS certificate, or PVDM_CA_FILE.  [default: the system's]",
    ),
)


def seed_option(default: int) -> Callable[[Command], Command]:
    """`--seed`: the same seed makes the same data again."""
    help_text = "The same seed makes the same data again."
    return number_option("--seed", default, least=0, most=SEED_MAX, help_text=help_text, metavar="N")


def out_option(
    help_text: str = "The new file for the result; an existing file is not overwritten.",
) -> Callable[[Command], Command]:
    """`--out`: the new file for the result, which the command needs."""
    return path_option("--out", required=True, help=help_text)


def pick_engine(name: str) -> Engine:
    """The digest engine that --engine names. Without a kernel, `auto` picks the reference and prints a notice."""
    if name == "reference":
        return reference_engine()
    try:
        return kernel_engine()
    except UnavailableError as error:
        if name == "kernel":
            raise
        notice(f"{error.message}; the Python reference computes digests, some hundred times slower ({error.hint})")
        return reference_engine()


def parse_pairs(pairs: tuple[str, ...], option: str) -> dict[str, str]:
    """The values of a repeated option NAME=VALUE, by name. Raises if `=` or a name is missing or a name is repeated."""
    values: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name or name in values:
            raise Code.USAGE(f"{option} cannot be accepted", got=ascii(pair)[:80])
        values[name] = value
    return values
