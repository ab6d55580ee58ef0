"""Reads and verifies the trust root with which a command checks signatures, and declares the options for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pvdm.cli.common.files import read_file, require_json
from pvdm.cli.common.options import Command, ParsedType, option_group, path_option
from pvdm.cli.common.screen import notice
from pvdm.cli.common.times import TIME_TYPE, now_micros
from pvdm.errors import Code
from pvdm.model.canonical_json import dump, parse
from pvdm.model.fields import Fields, require_sha256
from pvdm.model.secret import Secret
from pvdm.trust.envelope import ROOT_SIGNATURES_MAX, TRUST_ROOT_TYPE, parse_envelope
from pvdm.trust.keys import disk
from pvdm.trust.refusal import refused
from pvdm.trust.root import SeenRoot, TrustRoot, follow_roots
from pvdm.trust.strict_json import parse_strict

if TYPE_CHECKING:
    from pvdm.client import StewardClient

ROOT_CHAIN_SIZE_MAX_BYTES: Final = 64 * 1024 * 1024
SEEN_FILE_MAX_BYTES: Final = 4_096
_SEEN_FORMAT: Final = "pvdm-seen-root/v1"
_UNVERIFIED_ROOT_NOTICE: Final = (
    "the trust root was not verified: the author of its file chose the keys."
    " Get its hash through another channel and give it with --root-sha256"
)
_STEWARDS_ROOT_NOTICE: Final = (
    "the trust root came from the Steward itself: this detects accidents, not a dishonest Steward."
    " Give your own trust root with --trust-root, and its hash with --root-sha256"
)


def _parse_sha256(text: str) -> str:
    require_sha256(text, "the hash")
    return text


SHA256_TYPE: Final = ParsedType("sha256", _parse_sha256)
pin_option = click.option(
    "--root-sha256",
    "pin",
    type=SHA256_TYPE,
    metavar="HEX",
    help="The SHA-256 of the chain's first trust root, which you got through another channel.",
)
seen_option = path_option("--seen", help="A file that remembers the newest trust root: later runs refuse an older one.")
at_option = click.option("--at", type=TIME_TYPE, metavar="TIME", help="Check as of this time.  [default: now]")
origin_option = click.option(
    "--origin", metavar="LOG", help="The log's name.  [default: the only log that the trust root names]"
)


def root_option(*, required: bool, default_note: str = "") -> Callable[[Command], Command]:
    """`--trust-root`: the file; `default_note` ends its help text."""
    help_text = f"The trust root's file: one envelope, or a chain of them as a JSON array.{default_note}"
    return path_option("--trust-root", "root_file", required=required, help=help_text)


@dataclass(frozen=True, slots=True)
class TrustBasis:
    """What signatures are checked with: the newest root, its chain's pin (None: unpinned), time in microseconds."""

    root: TrustRoot
    pin: str | None
    at: int

    def to_json(self) -> dict[str, object]:
        """The trust root in a command's JSON."""
        return {"version": self.root.version, "sha256": self.root.sha256, "pinned": self.pin is not None}


def verify_trust(
    roots: Path | Sequence[bytes],
    *,
    pin: str | None,
    at: int | None,
    seen: Path | None = None,
    unpinned_notice: str = _UNVERIFIED_ROOT_NOTICE,
) -> TrustBasis:
    """Verify a chain of trust roots, given as envelopes or as their file: each root signs its successor.

    Returns the newest root, with the pin and the time of the check. The file `seen` remembers this root: a later run
    refuses an older one. Without a pin the chain's first root is trusted as it is, and `unpinned_notice` is printed.
    """
    if seen is not None and pin is None:
        raise click.UsageError("--seen needs --root-sha256: an unverified root is not stored")
    now = now_micros() if at is None else at
    chain = read_chain(roots) if isinstance(roots, Path) else roots
    anchor = pin or first_sha256(chain)
    lock: AbstractContextManager[None] = nullcontext() if seen is None else disk.hold_lock(seen)
    with lock:
        stored = None if seen is None else _read_seen(seen, anchor)
        root = follow_roots(chain, sha256=anchor, now=now, seen=stored)
        newest = SeenRoot(root.version, root.sha256)
        if seen is not None and newest != stored:
            data = dump({"format": _SEEN_FORMAT, "pin": anchor, "version": newest.version, "sha256": newest.sha256})
            disk.write(seen, Secret(data), mode=disk.PRIVATE_MODE)  # not secret, but disk.write takes only a Secret
    if pin is None:
        notice(unpinned_notice)
    return TrustBasis(root, pin, now)


@dataclass(frozen=True, slots=True)
class TrustOptions:
    """The options about the trust root, the log and the time."""

    root_file: Path | None
    pin: str | None
    origin: str | None
    at: int | None
    seen: Path | None

    def resolve(self, client: StewardClient | None = None) -> TrustBasis:
        """Verify the caller's trust root, else the Steward's. A notice is printed unless the root is pinned."""
        if self.root_file is not None:
            return verify_trust(self.root_file, pin=self.pin, at=self.at, seen=self.seen)
        if client is None:
            raise AssertionError("the command has neither a Steward nor --trust-root")
        chain = client.trust_root().chain
        return verify_trust(chain, pin=self.pin, at=self.at, seen=self.seen, unpinned_notice=_STEWARDS_ROOT_NOTICE)


def trust_options(*, required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options of `TrustOptions`, as the parameter `trust`; `required`: --trust-root must be given."""
    root = root_option(required=required, default_note="" if required else "  [default: the Steward's own]")
    return option_group("trust", TrustOptions, root, pin_option, origin_option, at_option, seen_option)


def read_chain(path: Path) -> tuple[bytes, ...]:
    """The file's envelopes, oldest first. The envelopes of a JSON array are converted to canonical JSON."""
    data = read_file(path, size_max_bytes=ROOT_CHAIN_SIZE_MAX_BYTES)
    require_json(path, data, "a trust root, or a chain of them")
    if not data.startswith(b"["):
        return (data,)
    value = parse_strict(data, "the chain of trust roots", size_max_bytes=ROOT_CHAIN_SIZE_MAX_BYTES)
    if not isinstance(value, Sequence) or not value:
        raise refused("trust_root_missing", "at least one", "none")
    return tuple(dump(envelope) for envelope in value)


def chain_to_bytes(chain: Sequence[bytes]) -> bytes:
    """The content of a file with all envelopes of the chain."""
    return b"[" + b",".join(chain) + b"]"


def first_sha256(chain: Sequence[bytes]) -> str:
    """The hash of the chain's first root, which pins it."""
    return parse_envelope(chain[0], payload_type=TRUST_ROOT_TYPE, signatures_max=ROOT_SIGNATURES_MAX).payload_sha256


def _read_seen(path: Path, pin: str) -> SeenRoot | None:
    if not path.exists():
        return None
    data = disk.read_own(path, size_max_bytes=SEEN_FILE_MAX_BYTES)
    value = parse(data, size_max_bytes=SEEN_FILE_MAX_BYTES)
    fields = Fields(value, "the file of --seen", ("format", "pin", "version", "sha256"))
    if (fields.text("format"), fields.text("pin")) != (_SEEN_FORMAT, pin):
        message, expected = f"{path} is about another trust root", f"the one pinned by {pin}"
        raise Code.INPUT_FILE_INVALID(message, reason="seen_file_other", expected=expected, got=fields.text("pin")[:80])
    require_sha256(fields.text("sha256"), "the hash of the seen root")
    return SeenRoot(fields.number("version"), fields.text("sha256"))
