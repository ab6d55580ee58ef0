"""The keys by which a log is known to a command: verifier keys as given, or those that a trust root names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from pvdm.cli.common.trust_roots import at_option, judge_by, log_keys, origin_option, pin_option, root_option
from pvdm.errors import Code
from pvdm.trust.bundle import origin_of
from pvdm.trust.log.note import NoteKey, parse_vkey


@dataclass(frozen=True, slots=True)
class KnownLog:
    """One log, by its name and keys."""

    origin: str
    keys: tuple[NoteKey, ...]

    @property
    def vkeys(self) -> list[str]:
        """The keys as other tools take them."""
        return [key.to_vkey() for key in self.keys]


@dataclass(frozen=True, slots=True)
class LogKeys:
    """What the command line says of the log's keys."""

    vkeys: tuple[str, ...]
    root_file: Path | None
    pin: str | None
    origin: str | None
    at: int | None

    def known(self) -> KnownLog:
        """The log that is meant; without a key nothing can be believed of it."""
        found = self.maybe_known()
        if found is None:
            raise Code.LOG_KEYS_MISSING(got="neither")
        return found

    def maybe_known(self) -> KnownLog | None:
        """The log that is meant, if any key was given."""
        if self.vkeys and self.root_file is not None:
            raise click.UsageError("take --vkey or --trust-root, not both")
        if self.root_file is not None:
            judge = judge_by(self.root_file, pin=self.pin, at=self.at)
            name = origin_of(judge.root, self.origin)
            return KnownLog(name, log_keys(judge.root, name))
        if self.pin is not None or self.at is not None:
            raise click.UsageError("--root-sha256 and --at need --trust-root")
        if not self.vkeys:
            return None
        keys = tuple(parse_vkey(text) for text in self.vkeys)
        names = sorted({key.name for key in keys})
        if len(names) > 1 or (self.origin is not None and names != [self.origin]):
            raise Code.ORIGIN_AMBIGUOUS(
                "the verifier keys are of another log, or of several",
                expected=self.origin or "keys of one log",
                got=", ".join(names),
            )
        return KnownLog(names[0], keys)


def log_key_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--vkey`, or a trust root that names the log's keys, as one `log_keys`."""

    @functools.wraps(command)
    def called(
        *,
        vkeys: tuple[str, ...],
        root_file: Path | None,
        pin: str | None,
        origin: str | None,
        at: int | None,
        **others: Any,
    ) -> Any:
        return command(log_keys=LogKeys(vkeys, root_file, pin, origin, at), **others)

    vkey = click.option(
        "--vkey", "vkeys", multiple=True, metavar="KEY", help="A verifier key of the log: name+id+key. May be repeated."
    )
    for option in (at_option, origin_option, pin_option, root_option(required=False), vkey):
        called = option(called)
    return called
