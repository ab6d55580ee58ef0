"""The way to a Steward: its address and the caller's token, from options, files or the environment."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pvdm.cli.common.options import PlaceType
from pvdm.errors import Code, InputError, NotAllowedError

if TYPE_CHECKING:
    from pvdm.client import StewardClient

_TOKEN: Final = "PVDM_TOKEN"  # noqa: S105 - the name of a variable


@dataclass(frozen=True, slots=True)
class Service:
    """Where the Steward is, and where the caller's token lies."""

    url: str | None
    token_file: Path | None
    ca_file: Path | None

    def connect(self) -> StewardClient:
        """A client; it is closed at the end of a `with`."""
        if not self.url:
            raise Code.URL_MISSING(got="neither")
        # Only here: httpx is slow to load, and most commands work offline.
        from pvdm.client import StewardClient

        if self.token_file is None and not os.environ.get(_TOKEN):
            raise InputError(
                Code.TOKEN_MISSING,
                "the Steward is asked under a token, and none is there",
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
                error.hint = (
                    "name its https address; a Steward serves TLS by tls_certificate and tls_key in steward.toml"
                )
            raise


def service_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--url`, `--token-file` and `--ca-file` as one `service`; a token itself never stands on a command line."""

    @functools.wraps(command)
    def called(*, url: str | None, token_file: Path | None, ca_file: Path | None, **others: Any) -> Any:
        return command(service=Service(url, token_file, ca_file), **others)

    for option in (
        click.option(
            "--ca-file",
            type=PlaceType(),
            envvar="PVDM_CA_FILE",
            metavar="FILE",
            help="Certificates to judge the Steward's by, or PVDM_CA_FILE.  [default: the system's]",
        ),
        click.option(
            "--token-file",
            type=PlaceType(),
            envvar="PVDM_TOKEN_FILE",
            metavar="FILE",
            help="The file (mode 0600) with your token, or PVDM_TOKEN_FILE; PVDM_TOKEN holds the token itself.",
        ),
        click.option("--url", envvar="PVDM_URL", metavar="URL", help="The Steward's address, or PVDM_URL."),
    ):
        called = option(called)
    return called
