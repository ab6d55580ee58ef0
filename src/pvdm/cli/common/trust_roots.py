"""The trust root that a command judges by: one envelope or a chain from a file, pinned or not verified."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from pvdm.cli.common.files import read_file, require_json
from pvdm.cli.common.options import PlaceType
from pvdm.cli.common.screen import notice
from pvdm.cli.common.times import TimeType, now_micros
from pvdm.errors import Code, InputError
from pvdm.model.canonical_json import dump, parse
from pvdm.model.fields import Fields, require_sha256
from pvdm.model.secret import Secret
from pvdm.trust.bundle import log_checker
from pvdm.trust.envelope import ROOT_SIGNATURES_MAX, TRUST_ROOT_TYPE, parse_envelope
from pvdm.trust.keys import disk
from pvdm.trust.log.note import NoteKey
from pvdm.trust.refusal import refused
from pvdm.trust.root import SeenRoot, TrustRoot, follow_roots
from pvdm.trust.strict_json import read

_Command = TypeVar("_Command", bound=Callable[..., Any])

ROOT_CHAIN_SIZE_MAX_BYTES: Final = 64 * 1024 * 1024
SEEN_FILE_MAX_BYTES: Final = 4_096
_SEEN: Final = "pvdm-seen-root/v1"
FAITH: Final = (
    "the trust root was not verified: the author of its file chose the keys."
    " Get its hash through another channel and give it with --root-sha256"
)


class Sha256Type(click.types.StringParamType):
    """A hash on the command line."""

    name = "sha256"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Lower-case hex."""
        try:
            require_sha256(str(value), "the hash")
        except InputError as error:
            self.fail(f"expected {error.expected}, got {str(value)[:80]!r}", param, ctx)
        return str(value)


def root_option(*, required: bool) -> Callable[[_Command], _Command]:
    """`--trust-root`: the file."""
    return click.option(
        "--trust-root",
        "root_file",
        type=PlaceType(),
        required=required,
        metavar="FILE",
        help="The trust root: one envelope, or a chain as a JSON array.",
    )


def pin_option(command: _Command) -> _Command:
    """`--root-sha256`: the hash that pins the first root."""
    return click.option(
        "--root-sha256",
        "pin",
        type=Sha256Type(),
        metavar="HEX",
        help="The hash of the first trust root, got by another way than its file.",
    )(command)


def seen_option(command: _Command) -> _Command:
    """`--seen`: what is remembered from run to run."""
    return click.option(
        "--seen",
        type=PlaceType(),
        metavar="FILE",
        help="Remember the newest trust root in this file, and refuse an older one.",
    )(command)


def at_option(command: _Command) -> _Command:
    """`--at`: judge as of another moment."""
    return click.option("--at", type=TimeType(), metavar="TIME", help="Judge as of this moment.  [default: now]")(
        command
    )


def origin_option(command: _Command) -> _Command:
    """`--origin`: which log."""
    return click.option(
        "--origin", metavar="LOG", help="The log's name.  [default: the only log that the trust root names]"
    )(command)


@dataclass(frozen=True, slots=True)
class Judge:
    """The trust root in force, and whether anybody vouched for it."""

    root: TrustRoot
    pin: str | None
    at: int

    def to_json(self) -> dict[str, object]:
        """What a command says of it."""
        return {"version": self.root.version, "sha256": self.root.sha256, "pinned": self.pin is not None}


def judge_by(path: Path, *, pin: str | None, at: int | None, seen: Path | None = None) -> Judge:
    """The newest root of the file's chain; without a pin a notice says what that is worth."""
    if seen is not None and pin is None:
        raise click.UsageError("--seen needs --root-sha256: an unpinned root is not worth remembering")
    now = now_micros() if at is None else at
    root = follow(read_chain(path), pin=pin, at=now, seen=seen)
    if pin is None:
        notice(FAITH)
    return Judge(root, pin, now)


def follow(chain: Sequence[bytes], *, pin: str | None, at: int, seen: Path | None = None) -> TrustRoot:
    """The newest root of the chain, once every step holds; what was seen is remembered in the file, if there is one."""
    anchor = pin or first_sha256(chain)
    lock: AbstractContextManager[None] = nullcontext() if seen is None else disk.locked(seen)
    with lock:
        before = None if seen is None else _read_seen(seen, anchor)
        root = follow_roots(chain, sha256=anchor, now=at, seen=before)
        newest = SeenRoot(root.version, root.sha256)
        if seen is not None and newest != before:
            _write_seen(seen, anchor, newest)
    return root


def read_chain(path: Path) -> tuple[bytes, ...]:
    """The envelopes of the file, oldest first, each in its one spelling."""
    data = read_file(path, size_max_bytes=ROOT_CHAIN_SIZE_MAX_BYTES)
    require_json(path, data, "a trust root, or a chain of them")
    if not data.startswith(b"["):
        return (data,)
    value = read(data, "the chain of trust roots", size_max_bytes=ROOT_CHAIN_SIZE_MAX_BYTES)
    if not isinstance(value, Sequence) or not value:
        raise refused("trust_root_missing", "at least one", "none")
    return tuple(dump(envelope) for envelope in value)


def write_chain(chain: Sequence[bytes]) -> bytes:
    """The file of several envelopes."""
    return b"[" + b",".join(chain) + b"]"


def first_sha256(chain: Sequence[bytes]) -> str:
    """The hash that would pin the chain."""
    envelope = parse_envelope(chain[0], payload_type=TRUST_ROOT_TYPE, signatures_max=ROOT_SIGNATURES_MAX)
    return envelope.payload_sha256


def log_keys(root: TrustRoot, origin: str) -> tuple[NoteKey, ...]:
    """The keys that the root names for this log."""
    return log_checker(root, origin=origin).keys


def _read_seen(path: Path, pin: str) -> SeenRoot | None:
    if not path.exists():
        return None
    data = disk.read_private(path, size_max_bytes=SEEN_FILE_MAX_BYTES)
    fields = Fields(parse(data, size_max_bytes=SEEN_FILE_MAX_BYTES), "the file of --seen", _SEEN_KEYS)
    if (fields.text("format"), fields.text("pin")) != (_SEEN, pin):
        raise Code.SEEN_FILE_OTHER(
            f"{path} remembers another trust root", expected=f"the one pinned by {pin}", got=fields.text("pin")[:80]
        )
    require_sha256(fields.text("sha256"), "the hash of the seen root")
    return SeenRoot(fields.number("version"), fields.text("sha256"))


_SEEN_KEYS: Final = ("format", "pin", "version", "sha256")


def _write_seen(path: Path, pin: str, seen: SeenRoot) -> None:
    data = dump({"format": _SEEN, "pin": pin, "version": seen.version, "sha256": seen.sha256})
    disk.write(path, Secret(data), mode=disk.PRIVATE_MODE)
