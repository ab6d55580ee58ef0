"""Reads passphrases from the terminal, a file or an environment variable, and opens private keys with them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import click

from pvdm.cli.common.files import read_file
from pvdm.cli.common.options import Command, ParsedType
from pvdm.cli.common.screen import is_terminal
from pvdm.errors import Code, InputError
from pvdm.trust.keys import disk
from pvdm.trust.keys.pem import PRIVATE_KEY_SIZE_MAX_BYTES, PemKeyPair, open_key_pair
from pvdm.trust.keys.seal import PASSPHRASE_MAX_BYTES, Passphrase

_SEALED_KEY_START = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"
_PUBLIC_KEY_START = b"-----BEGIN PUBLIC KEY-----"


def _parse_passphrase_source(text: str) -> str:
    kind, colon, name = text.partition(":")
    if text != "prompt" and not (kind in {"file", "env"} and colon and name):
        # The text may be the passphrase itself, so the error does not show it.
        raise Code.USAGE(expected="prompt, file:NAME or env:NAME", got="something else")
    return text


def passphrase_option(help_text: str) -> Callable[[Command], Command]:
    """`--passphrase`: the source of the passphrase."""
    source = ParsedType("source", _parse_passphrase_source)
    return click.option("--passphrase", "passphrase_source", type=source, metavar="WHERE", help=help_text)


open_passphrase_option = passphrase_option("Where the key's passphrase comes from: prompt, file:NAME or env:NAME.")


def read_new_passphrase(source: str | None) -> Passphrase | None:
    """Read the passphrase for a new key; on the terminal it is entered twice. Without a source, return None."""
    return _read_passphrase(source, "passphrase", confirm="again")


def open_key(path: Path, source: str | None) -> PemKeyPair:
    """Open a person's key pair. Without `source`, the terminal asks for the passphrase of a sealed (encrypted) key."""
    _require_not_public(path)
    is_sealed = disk.read_own(path, size_max_bytes=PRIVATE_KEY_SIZE_MAX_BYTES).startswith(_SEALED_KEY_START)
    if source is None and is_sealed:
        if not is_terminal(sys.stdin):
            message, hint = f"{path.name} is sealed", "give --passphrase prompt, file:NAME or env:NAME"
            raise Code.KEY_INVALID(
                message, reason="passphrase_missing", expected="its passphrase", got="none", hint=hint
            )
        source = "prompt"
    passphrase = _read_passphrase(source, f"passphrase of {path.name}")
    try:
        return open_key_pair(path, passphrase)
    except InputError:
        if not is_sealed or passphrase is None:
            raise
    # For a sealed key and a passphrase, the likely reason replaces the general error.
    message, hint = f"the passphrase does not open {path.name}", "try again; the key cannot be opened without it"
    raise Code.KEY_NOT_OPENED(message, reason="passphrase_wrong", got="another", hint=hint)


def _require_not_public(path: Path) -> None:
    """Raise for a public key. Without this check, the error would be about the file's mode."""
    try:
        data = path.read_bytes() if path.is_file() and path.stat().st_size <= PRIVATE_KEY_SIZE_MAX_BYTES else b""
    except OSError:
        return  # opening the key raises the error
    if data.startswith(_PUBLIC_KEY_START):
        private = f", such as {path.stem}" if path.suffix == ".pub" else ""
        hint = f"nothing was signed; name the private key{private}"
        message = f"{path.name} is a public key, which cannot sign"
        raise Code.KEY_INVALID(message, reason="key_is_public", got="the public key", hint=hint)


def _read_passphrase(source: str | None, question: str, *, confirm: str | bool = False) -> Passphrase | None:
    if source is None:
        return None
    if source == "prompt":
        if not is_terminal(sys.stdin):
            raise Code.USAGE(reason="terminal_missing", got="none")
        return Passphrase(click.prompt(question, hide_input=True, confirmation_prompt=confirm, err=True))
    kind, _, name = source.partition(":")
    if kind == "file":
        return Passphrase(_read_passphrase_file(Path(name)))
    text = os.environ.get(name)
    if text is None:
        message = f"{name} is not set"
        raise Code.KEY_INVALID(message, reason="passphrase_missing", expected="an environment variable", got="none")
    return Passphrase(text)


def _read_passphrase_file(path: Path) -> str:
    """The file's text without the newline that editors add."""
    data = read_file(path, size_max_bytes=PASSPHRASE_MAX_BYTES + len("\r\n"))
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        pass  # this error holds the secret bytes; another error is raised outside of this block
    del data  # a traceback can show local variables
    message = f"{path.name} holds no passphrase"
    raise Code.KEY_INVALID(message, reason="passphrase_invalid", expected="one line of text", got="bytes")
