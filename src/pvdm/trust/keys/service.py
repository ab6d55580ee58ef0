"""The key service: derives attempt keys and signs, for each epoch (key generation), with keys in any key home."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from pvdm import fault
from pvdm.errors import Code, InputError, NotAllowedError, PvdmError, VerificationError
from pvdm.model.projection import ProjectionName
from pvdm.model.secret import KEY_BYTES, CommitmentKey, DigestKey
from pvdm.trust.keys.context import AttemptContext, SourceContext
from pvdm.trust.keys.epochs import BookAndChanges, EpochBook, EpochChange, KeyEntry, KeyRole
from pvdm.trust.keys.public import PublicKey

BOOK_TRIES_MAX: Final = 16

_Step: TypeAlias = Callable[[EpochBook], BookAndChanges]


class KeyHome(Protocol):
    """The home of the keys. It creates keys and computes with them, and never returns a key."""

    def make(self, role: KeyRole) -> KeyEntry:
        """Make a new key for this role, under a reference that no other key of this home has."""

    def drop(self, entry: KeyEntry) -> None:
        """Remove a key that no epoch book names."""

    def mac(self, entry: KeyEntry, message: bytes) -> bytes:
        """HMAC-SHA256 of the message under a root key."""

    def sign(self, entry: KeyEntry, data: bytes) -> bytes:
        """The signature of the data: 64 bytes for Ed25519, DER for ECDSA with SHA-256."""

    def close(self) -> None:
        """Close connections and forget the keys in memory."""


class EpochStore(Protocol):
    """The storage of the epoch book."""

    def load(self) -> EpochBook:
        """The current book; at first an empty book."""

    def replace(self, book: EpochBook) -> bool:
        """Store this book if its revision follows the current book's. Otherwise change nothing and return False."""


@dataclass(frozen=True, slots=True)
class Signer:
    """One signing key of an epoch, ready to use: it has a function that signs, not the private key."""

    role: KeyRole
    epoch: int
    public: PublicKey
    sign: Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True, eq=False)
class AttemptKeys:
    """The keys of one attempt. Each projection has a digest key (`row_hash`) and a commitment key."""

    row_hash: tuple[tuple[ProjectionName, DigestKey], ...]
    commitment: tuple[tuple[ProjectionName, CommitmentKey], ...]


class KeyService:
    """Derives keys and signs. The home computes with the keys, and the epoch book says which may be used."""

    __slots__ = ("_home", "_store")

    def __init__(self, home: KeyHome, store: EpochStore) -> None:
        self._home = home
        self._store = store

    def book(self) -> EpochBook:
        """The current epoch book."""
        return self._store.load()

    def create_epoch(self, reason: str, *, above: int = 0) -> tuple[EpochChange, ...]:
        """Create four new keys as the next epoch, CREATED. `above` is the highest epoch number in the log."""
        entries = self._make_keys()
        fault.point("keys.after_make")
        try:
            return self._change(lambda book: book.create(book.next_number(above), entries, reason))
        except PvdmError as error:
            # After the errors below, no book names the keys. After any other, the stored book may: the keys stay.
            if isinstance(error, InputError | NotAllowedError) or error.code == Code.EPOCH_CONTENTION:
                self._drop(entries)
            raise

    def activate_epoch(self, number: int, reason: str) -> tuple[EpochChange, ...]:
        """Move from CREATED to ACTIVE. The epoch that was ACTIVE is RETIRED in the same step."""
        return self._change(lambda book: book.activate(number, reason))

    def retire_epoch(self, number: int, reason: str) -> tuple[EpochChange, ...]:
        """Move from ACTIVE to RETIRED."""
        return self._change(lambda book: book.retire(number, reason))

    def revoke_epoch(self, number: int, reason: str, *, keep_a_signing_epoch: bool = False) -> tuple[EpochChange, ...]:
        """Move from RETIRED or ACTIVE to REVOKED. `keep_a_signing_epoch` refuses the last epoch that can sign."""
        return self._change(lambda book: book.revoke(number, reason, keep_a_signing_epoch=keep_a_signing_epoch))

    def epoch_for(self, workload_epoch: int | None) -> int:
        """Require and return a usable epoch: `workload_epoch`, or the ACTIVE one if that is None (a new workload)."""
        return self._store.load().epoch_for(workload_epoch)

    def row_hash_key(self, context: AttemptContext | SourceContext, projection: ProjectionName) -> DigestKey:
        """The digest key of one projection, for an attempt or a source attestation."""
        message = context.message(context.row_hash_purpose, projection)
        return DigestKey(self._mac(KeyRole.ROW_HASH, context.epoch, message), epoch=context.epoch)

    def commitment_key(self, context: AttemptContext | SourceContext, projection: ProjectionName) -> CommitmentKey:
        """The key for commitments to digests, in the proof of an attempt or in a source attestation."""
        message = context.message(context.commitment_purpose, projection)
        return CommitmentKey(self._mac(KeyRole.COMMITMENT, context.epoch, message), epoch=context.epoch)

    def public_key(self, role: KeyRole, number: int) -> PublicKey:
        """The public half of a signing or log key, of an epoch in any stage."""
        return _require_public(self._store.load().epoch(number).key(role))

    def signer(self, role: KeyRole, number: int) -> Signer:
        """The signing or log key of an epoch that is ACTIVE or RETIRED."""
        public = _require_public(self._store.load().require_usable(number).key(role))
        return Signer(role, number, public, lambda data: self._sign(role, number, data))

    def close(self) -> None:
        """Close connections and forget the keys in memory."""
        self._home.close()

    def _make_keys(self) -> tuple[KeyEntry, ...]:
        entries: list[KeyEntry] = []
        try:
            entries.extend(self._home.make(role) for role in KeyRole)
        except BaseException:
            self._drop(entries)
            raise
        return tuple(entries)

    def _drop(self, entries: Sequence[KeyEntry]) -> None:
        for entry in entries:
            # The first error is the one to report. An unused key does no harm.
            with suppress(PvdmError):
                self._home.drop(entry)

    def _change(self, step: _Step) -> tuple[EpochChange, ...]:
        """Store the book that `step` makes of the current book. Try again if another process changed it meanwhile."""
        for _ in range(BOOK_TRIES_MAX):
            book, changes = step(self._store.load())
            if self._store.replace(book):
                return changes
        expected = f"no other change of the epoch book during {BOOK_TRIES_MAX} tries"
        raise Code.EPOCH_CONTENTION(expected=expected, got="a change during each try")

    def _mac(self, role: KeyRole, number: int, message: bytes) -> bytes:
        # The book is read at every use, so that a revocation by another process applies at once.
        entry = self._store.load().require_usable(number).key(role)
        return _require_mac_size(self._home.mac(entry, message))

    def _sign(self, role: KeyRole, number: int, data: bytes) -> bytes:
        entry = self._store.load().require_usable(number).key(role)
        signature = self._home.sign(entry, data)
        try:
            _require_public(entry).verify(signature, data)
        except VerificationError:
            raise Code.KEY_HOME_UNAVAILABLE(
                "the key home signed with another key than the epoch book names, or signed other bytes",
                reason="key_home_inconsistent",
                expected=_require_public(entry).key_id,
                got="a signature that does not verify",
                hint="the signature was discarded; compare the epoch book with the key home",
            ) from None
        return signature


def release_keys(service: KeyService, context: AttemptContext, *, ended: bool) -> AttemptKeys:
    """The keys of an ended attempt, for an auditor (`proof open`). With them, anyone can compute its digests."""
    if ended is not True:
        message = f"attempt {context.attempt_id} has not ended"
        raise Code.ATTEMPT_NOT_CLOSED(message, got="an attempt that may still be published")
    return AttemptKeys(
        row_hash=tuple((name, service.row_hash_key(context, name)) for name in context.projections),
        commitment=tuple((name, service.commitment_key(context, name)) for name in context.projections),
    )


def _require_public(entry: KeyEntry) -> PublicKey:
    if entry.public is None:
        raise Code.KEY_INVALID(reason="key_role", got=entry.role.value)
    return entry.public


def _require_mac_size(mac: bytes) -> bytes:
    size = len(mac)
    if size == KEY_BYTES:
        return mac
    # An error may be shown with the locals of its frames: the MAC is a key and must not be among them.
    del mac
    message, expected = "the key home returned a MAC of the wrong length", f"{KEY_BYTES} bytes"
    raise Code.KEY_HOME_UNAVAILABLE(message, reason="key_home_inconsistent", expected=expected, got=f"{size} bytes")
