"""Computes the time until the trust root, keys, tokens and the TLS certificate expire, for monitoring."""

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

_CACHE_SECONDS: Final = 60.0
_CERTIFICATE_MAX_BYTES: Final = 1_048_576
_ROLES_OF_PEOPLE: Final = (RootRole.ROOT, RootRole.OPERATOR, RootRole.BREAK_GLASS, RootRole.ATTESTOR)


@dataclass(eq=False)
class Expiries:
    """Reads when something of each kind expires (docs/operations.md lists the kinds), at most once a minute."""

    ledger: Ledger
    clock: LedgerClock
    trust: TrustRoots
    book: Callable[[], EpochBook]
    certificate: Path | None
    monotonic: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _read_at: float = field(default=float("-inf"), init=False)
    _expiry_micros: dict[str, int] = field(default_factory=dict, init=False)

    def seconds(self) -> dict[str, float]:
        """Key: a kind, such as `trust_root`. Value: the seconds until it expires; negative if it has expired.

        Raises PvdmError if ledger, epoch book or certificate cannot be read.
        """
        expiry_micros, now = self.micros(), self.clock.trusted_micros()
        return {kind: (expires - now) / 1e6 for kind, expires in expiry_micros.items()}

    def micros(self) -> dict[str, int]:
        """When each kind expires, in microseconds; raises as `seconds` does."""
        with self._lock:
            if self.monotonic() - self._read_at >= _CACHE_SECONDS:
                self._expiry_micros = dict(self._read())
                self._read_at = self.monotonic()
            return self._expiry_micros

    def _read(self) -> Iterator[tuple[str, int]]:
        """Each kind, with the time at which it expires, in microseconds."""
        root = self.trust.find()
        if root is not None:
            yield "trust_root", root.expires_at
            yield from _read_keys(root, self.book())
        with self.ledger.read() as unit:
            valid = tokens.list_ends(unit, now_micros=self.clock.trusted_micros())
        if valid:
            # When the first holder of a token is left without a valid token.
            yield "token", min(each.end_micros for each in valid)
        operators = [each for each in valid if (each.role, each.domain) == (Role.OPERATOR, EVERY_DOMAIN)]
        if operators:
            # When the last operator is left without a valid token.
            yield "last_operator_token", max(each.end_micros for each in operators)
        if self.certificate is not None:
            yield "tls_certificate", certificate_end(self.certificate)


def _read_keys(root: TrustRoot, book: EpochBook) -> Iterator[tuple[str, int]]:
    """When the active epoch's keys expire, and, for each role, when the first person is left without a valid key."""
    if book.active is not None:
        for kind, key_role in (("notary_key", KeyRole.SIGNING), ("log_key", KeyRole.LOG)):
            public = book.active.key(key_role).public
            own_key = None if public is None else root.find(public.key_id)
            if own_key is not None:
                yield kind, own_key.valid_until
    for role in _ROLES_OF_PEOPLE:
        longest: dict[str, int] = {}
        for key in root.keys:
            if role in key.roles and key.revoked_at is None:
                longest[key.identity] = max(longest.get(key.identity, 0), key.valid_until)
        if longest:
            yield f"{role.value.replace('-', '_')}_key", min(longest.values())


def certificate_end(path: Path) -> int:
    """The earliest expiry in the file's certificate chain, in microseconds. Raises `tls_invalid` if it has none."""
    try:
        with path.open("rb") as file:
            chain: Sequence[x509.Certificate] = x509.load_pem_x509_certificates(file.read(_CERTIFICATE_MAX_BYTES))
    except (OSError, ValueError) as error:
        raise Code.CONFIG_INVALID(reason="tls_invalid", got=type(error).__name__) from None
    return int(min(each.not_valid_after_utc.timestamp() for each in chain) * 1e6)
