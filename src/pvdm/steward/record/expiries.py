"""Time until the trust root, keys, tokens and the TLS certificate expire, for monitoring."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography import x509

from pvdm.errors import Code
from pvdm.ledger import Ledger
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import tokens
from pvdm.ledger.record.tokens import EVERY_DOMAIN
from pvdm.model.role import Role
from pvdm.steward.record.roots import TrustRoots
from pvdm.trust.keys.epochs import EpochBook, KeyRole
from pvdm.trust.root import RootRole, TrustRoot

_KEPT_SECONDS: Final = 60.0
_CERTIFICATE_MAX_BYTES: Final = 1_048_576
# Keys of people. Of the Steward's own notary and log keys those of the active epoch count.
_PEOPLE: Final = (RootRole.ROOT, RootRole.OPERATOR, RootRole.BREAK_GLASS, RootRole.ATTESTOR)

Ends = dict[str, int]
"""When the first of each kind expires, in microseconds."""


@dataclass(eq=False)
class Expiries:
    """Reads the nearest expiry of each kind, at most once a minute."""

    ledger: Ledger
    clock: LedgerClock
    trust: TrustRoots
    book: Callable[[], EpochBook]
    certificate: Path | None
    monotonic: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _read_at: float = field(default=float("-inf"), init=False)
    _ends: Ends = field(default_factory=dict, init=False)

    def seconds(self) -> dict[str, float]:
        """Seconds until the nearest expiry of each kind that exists; negative where it has passed.

        Raises PvdmError where ledger, key home or certificate cannot be read.
        """
        with self._lock:
            if self.monotonic() - self._read_at >= _KEPT_SECONDS:
                self._ends = dict(self._read())
                self._read_at = self.monotonic()
            ends = self._ends
        now = self.clock.trusted_micros()
        return {kind: (end - now) / 1e6 for kind, end in ends.items()}

    def _read(self) -> Iterator[tuple[str, int]]:
        root = self.trust.find()
        if root is not None:
            yield "trust_root", root.expires_at
            yield from _of_keys(root, self.book())
        yield from self._of_tokens()
        if self.certificate is not None:
            yield "tls_certificate", certificate_end(self.certificate)

    def _of_tokens(self) -> Iterator[tuple[str, int]]:
        with self.ledger.read() as unit:
            found = tokens.list_ends(unit, now_micros=self.clock.trusted_micros())
        if found:
            yield "token", min(each.end_micros for each in found)
        wide = [each for each in found if (each.role, each.domain) == (Role.OPERATOR, EVERY_DOMAIN)]
        if wide:
            # The last one: until it expires, an operator can log in.
            yield "last_operator_token", max(each.end_micros for each in wide)


def _of_keys(root: TrustRoot, book: EpochBook) -> Iterator[tuple[str, int]]:
    if book.active is not None:
        for role in (KeyRole.SIGNING, KeyRole.LOG):
            public = book.active.key(role).public
            named = None if public is None else root.find(public.key_id)
            if named is not None:
                yield ("notary_key" if role is KeyRole.SIGNING else "log_key"), named.valid_until
    for held in _PEOPLE:
        longest: dict[str, int] = {}  # of each holder the key that is valid longest; older ones do not matter
        for key in root.keys:
            if held in key.roles and key.revoked_at is None:
                longest[key.identity] = max(longest.get(key.identity, 0), key.valid_until)
        if longest:
            yield f"{held.value.replace('-', '_')}_key", min(longest.values())


def certificate_end(path: Path) -> int:
    """The first end of a certificate in the file's chain, in microseconds; raises InputError if it has none."""
    try:
        with path.open("rb") as file:
            chain: Sequence[x509.Certificate] = x509.load_pem_x509_certificates(file.read(_CERTIFICATE_MAX_BYTES))
    except (OSError, ValueError) as error:
        raise Code.TLS_INVALID(got=type(error).__name__) from None
    return int(min(each.not_valid_after_utc.timestamp() for each in chain) * 1e6)
