"""Reads passphrases from the terminal, a file or an environment variable, and opens private keys with them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from pvdm.cli.common.files import read_file
from pvdm.cli.common.options import ParsedType
from pvdm.errors import Code, InputError
from pvdm.trust.keys import disk
from pvdm.trust.keys.operator import PRIVATE_KEY_SIZE_MAX_BYTES, OperatorKey, open_key_pair
from pvdm.trust.keys.seal import PASSPHRASE_MAX_BYTES, Passphrase

_Command = TypeVar("_Command", bound=Callable[..., Any])
_SEALED = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"
_PUBLIC = b"-----BEGIN PUBLIC KEY-----"


def _parse_source(text: str) -> str:
    kind, colon, name = text.partition(":")
    if text != "prompt" and not (kind in {"file", "env"} and colon and name):
        # The text may be the passphrase itself, so the error does not show it.
        raise Code.USAGE(expected="prompt, file:NAME or env:NAME", got="something else")
    return text


def passphrase_option(help_text: str) -> Callable[[_Command], _Command]:
    """`--passphrase`: the source of the passphrase."""
    source = ParsedType("where", _parse_source)
    return click.option("--passphrase", "where", type=source, metavar="WHERE", help=help_text)


OPENING = "Where the key's passphrase comes from: prompt, file:NAME or env:NAME."


def new_passphrase(where: str | None) -> Passphrase | None:
    """The passphrase for a new key; on the terminal it is entered twice."""
    if where == "prompt":
        _require_terminal()
        text = click.prompt("passphrase", hide_input=True, confirmation_prompt="again", err=True)
        return Passphrase(text)
    return _read_passphrase(where)


def open_key(path: Path, where: str | None) -> OperatorKey:
    """A person's key pair; without a source, the passphrase of a sealed key is read from the terminal."""
    _require_not_public(path)
    sealed = disk.read_own(path, size_max_bytes=PRIVATE_KEY_SIZE_MAX_BYTES).startswith(_SEALED)
    if where is None and sealed:
        if not _is_terminal():
            raise Code.PASSPHRASE_MISSING(
                f"{path.name} is sealed",
                expected="its passphrase",
                got="none",
                hint="give --passphrase prompt, file:NAME or env:NAME",
            )
        where = "prompt"
    if where == "prompt":
        _require_terminal()
        found: Passphrase | None = Passphrase(click.prompt(f"passphrase of {path.name}", hide_input=True, err=True))
    else:
        found = _read_passphrase(where)
    try:
        return open_key_pair(path, found)
    except InputError:
        if not sealed or found is None:
            raise
    raise Code.PASSPHRASE_WRONG(
        f"the passphrase does not open {path.name}",
        expected="the passphrase that the key was sealed with",
        got="another",
        hint="try again; the key cannot be opened without it",
    )


def _require_not_public(path: Path) -> None:
    """Raise for a public key; otherwise the error would be about the file's mode."""
    try:
        data = path.read_bytes() if path.is_file() and path.stat().st_size <= PRIVATE_KEY_SIZE_MAX_BYTES else b""
    except OSError:
        return  # opening the key raises the error
    if data.startswith(_PUBLIC):
        raise Code.KEY_IS_PUBLIC(
            f"{path.name} is a public key, which signs nothing",
            got="the public one",
            hint=f"nothing was signed; name the private key, such as {path.name.removesuffix('.pub')}"
            if path.name.endswith(".pub")
            else "nothing was signed; name the private key",
        )


def _read_passphrase(where: str | None) -> Passphrase | None:
    if where is None:
        return None
    kind, _, name = where.partition(":")
    if kind == "file":
        return Passphrase(_read_line(Path(name)))
    text = os.environ.get(name)
    if text is None:
        raise Code.PASSPHRASE_MISSING(f"{name} is not set", expected="an environment variable", got="none")
    return Passphrase(text)


def _read_line(path: Path) -> str:
    """The file's text without the newline that editors add."""
    data = read_file(path, size_max_bytes=PASSPHRASE_MAX_BYTES + 2)
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        # The decoder's error holds the bytes.
        pass
    del data
    raise Code.PASSPHRASE_INVALID(f"{path.name} holds no passphrase", expected="one line of text", got="bytes")


def _require_terminal() -> None:
    if not _is_terminal():
        raise Code.TERMINAL_MISSING(
            "a passphrase can be entered on a terminal only",
            expected="a terminal",
            got="none",
            hint="use file:NAME or env:NAME",
        )


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()
