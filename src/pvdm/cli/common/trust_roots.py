"""Reads and verifies the trust root that a command judges by, and declares the options for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from pvdm.cli.common.files import read_file, require_json
from pvdm.cli.common.options import Command, NonEmptyPath, ParsedType
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
from pvdm.trust.strict_json import read

ROOT_CHAIN_SIZE_MAX_BYTES: Final = 64 * 1024 * 1024
SEEN_FILE_MAX_BYTES: Final = 4_096
_SEEN: Final = "pvdm-seen-root/v1"
UNVERIFIED_ROOT: Final = (
    "the trust root was not verified: the author of its file chose the keys."
    " Get its hash through another channel and give it with --root-sha256"
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
    help="The hash of the first trust root, from another source than its file.",
)
seen_option = click.option(
    "--seen",
    type=NonEmptyPath(),
    metavar="FILE",
    help="Store the newest trust root in this file, and refuse an older one.",
)
at_option = click.option("--at", type=TIME_TYPE, metavar="TIME", help="Judge as of this time.  [default: now]")
origin_option = click.option(
    "--origin", metavar="LOG", help="The log's name.  [default: the only log that the trust root names]"
)


def root_option(*, required: bool) -> Callable[[Command], Command]:
    """`--trust-root`: the file."""
    return click.option(
        "--trust-root",
        "root_file",
        type=NonEmptyPath(),
        required=required,
        metavar="FILE",
        help="The trust root: one envelope, or a chain as a JSON array.",
    )


@dataclass(frozen=True, slots=True)
class Judge:
    """The trust root in force, the hash that pins it if there is one, and the time of the judgement."""

    root: TrustRoot
    pin: str | None
    at: int

    def to_json(self) -> dict[str, object]:
        """The trust root in a command's JSON."""
        return {"version": self.root.version, "sha256": self.root.sha256, "pinned": self.pin is not None}


def judge_by(
    source: Path | Sequence[bytes],
    *,
    pin: str | None,
    at: int | None,
    seen: Path | None = None,
    unpinned: str = UNVERIFIED_ROOT,
) -> Judge:
    """The newest root of a chain or its file, once every step is verified; the file `seen` stores it for the next run.

    Without a pin it prints the notice `unpinned`.
    """
    if seen is not None and pin is None:
        raise click.UsageError("--seen needs --root-sha256: an unverified root is not stored")
    now = now_micros() if at is None else at
    chain = read_chain(source) if isinstance(source, Path) else source
    anchor = pin or first_sha256(chain)
    lock: AbstractContextManager[None] = nullcontext() if seen is None else disk.locked(seen)
    with lock:
        before = None if seen is None else _read_seen(seen, anchor)
        root = follow_roots(chain, sha256=anchor, now=now, seen=before)
        newest = SeenRoot(root.version, root.sha256)
        if seen is not None and newest != before:
            data = dump({"format": _SEEN, "pin": anchor, "version": newest.version, "sha256": newest.sha256})
            disk.write(seen, Secret(data), mode=disk.PRIVATE_MODE)
    if pin is None:
        notice(unpinned)
    return Judge(root, pin, now)


def read_chain(path: Path) -> tuple[bytes, ...]:
    """The envelopes of the file, oldest first, each in canonical JSON."""
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
    """The hash of the chain's first root, which pins it."""
    return parse_envelope(chain[0], payload_type=TRUST_ROOT_TYPE, signatures_max=ROOT_SIGNATURES_MAX).payload_sha256


def _read_seen(path: Path, pin: str) -> SeenRoot | None:
    if not path.exists():
        return None
    data = disk.read_own(path, size_max_bytes=SEEN_FILE_MAX_BYTES)
    fields = Fields(
        parse(data, size_max_bytes=SEEN_FILE_MAX_BYTES), "the file of --seen", ("format", "pin", "version", "sha256")
    )
    if (fields.text("format"), fields.text("pin")) != (_SEEN, pin):
        raise Code.SEEN_FILE_OTHER(
            f"{path} is about another trust root", expected=f"the one pinned by {pin}", got=fields.text("pin")[:80]
        )
    require_sha256(fields.text("sha256"), "the hash of the seen root")
    return SeenRoot(fields.number("version"), fields.text("sha256"))
