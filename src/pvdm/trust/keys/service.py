"""The key service: derives attempt keys and signs, epoch by epoch, whatever home the keys live in. Calls `digest`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from pvdm import fault
from pvdm.errors import Code, InputError, NotAllowedError, PvdmError, UnavailableError, VerificationError
from pvdm.model.projection import ProjectionName
from pvdm.model.secret import KEY_BYTES, CommitmentKey, DigestKey
from pvdm.trust.keys.context import AttemptContext, Purpose, SourceContext
from pvdm.trust.keys.epochs import EpochBook, EpochChange, KeyEntry, KeyRole
from pvdm.trust.keys.public import PublicKey

BOOK_TRIES_MAX: Final = 16

_Step: TypeAlias = Callable[[EpochBook], tuple[EpochBook, tuple[EpochChange, ...]]]


class KeyHome(Protocol):
    """Where keys live: makes them, computes with them and never gives them away."""

    def make(self, role: KeyRole) -> KeyEntry:
        """A new key for this role, under a reference that no other key of this home has."""

    def drop(self, entry: KeyEntry) -> None:
        """Take back a key that no book names."""

    def mac(self, entry: KeyEntry, message: bytes) -> bytes:
        """HMAC-SHA256 of the message under a root key."""

    def sign(self, entry: KeyEntry, data: bytes) -> bytes:
        """The signature of the data: 64 bytes for Ed25519, DER for ECDSA with SHA-256."""

    def close(self) -> None:
        """Give back connections and forget what is in memory."""


class EpochStore(Protocol):
    """Where the epoch book is kept."""

    def load(self) -> EpochBook:
        """The book as it stands; an empty one at first."""

    def replace(self, book: EpochBook) -> bool:
        """Keep this book if the one that stands has the revision just before it; else change nothing and say False."""


@dataclass(frozen=True, slots=True)
class Signer:
    """One signing key, ready to use; holds the way to the key, not the key."""

    role: KeyRole
    epoch: int
    public: PublicKey
    sign: Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True, eq=False)
class AttemptKeys:
    """The keys of one attempt, one of each kind for each projection."""

    row_hash: tuple[tuple[ProjectionName, DigestKey], ...]
    commitment: tuple[tuple[ProjectionName, CommitmentKey], ...]


class KeyService(Protocol):
    """What the Steward asks of its keys; the same in every home."""

    def book(self) -> EpochBook:
        """The epochs as they stand."""

    def create_epoch(self, reason: str, *, above: int = 0) -> tuple[EpochChange, ...]:
        """Make four new keys as the next epoch, CREATED; `above` is the highest number the log has seen."""

    def activate_epoch(self, number: int, reason: str) -> tuple[EpochChange, ...]:
        """CREATED → ACTIVE; the epoch that was ACTIVE is RETIRED in the same step."""

    def retire_epoch(self, number: int, reason: str) -> tuple[EpochChange, ...]:
        """ACTIVE → RETIRED."""

    def revoke_epoch(self, number: int, reason: str, *, keep_one: bool = False) -> tuple[EpochChange, ...]:
        """RETIRED → REVOKED, or ACTIVE → RETIRED → REVOKED: its keys neither derive nor sign again."""

    def epoch_for(self, workload_epoch: int | None) -> int:
        """The epoch of a workload: the ACTIVE one when it opens (None), afterwards its own unless revoked."""

    def row_hash_key(self, context: AttemptContext, projection: ProjectionName) -> DigestKey:
        """The digest key of one projection of an attempt."""

    def commitment_key(self, context: AttemptContext, projection: ProjectionName) -> CommitmentKey:
        """The key under which the attempt's proof commits to its digests."""

    def source_row_hash_key(self, context: SourceContext, projection: ProjectionName) -> DigestKey:
        """The digest key that source and Steward share for one source snapshot."""

    def source_commitment_key(self, context: SourceContext, projection: ProjectionName) -> CommitmentKey:
        """The commitment key that source and Steward share for one source snapshot."""

    def public_key(self, role: KeyRole, number: int) -> PublicKey:
        """The public half of a signing or log key, of an epoch in any state."""

    def signer(self, role: KeyRole, number: int) -> Signer:
        """The signing or log key of an epoch that is ACTIVE or RETIRED."""

    def close(self) -> None:
        """Give back connections and forget what is in memory."""


class EpochKeyService:
    """The one implementation: a home computes, a book says what may still be used."""

    __slots__ = ("_home", "_store")

    def __init__(self, home: KeyHome, store: EpochStore) -> None:
        self._home = home
        self._store = store

    def book(self) -> EpochBook:
        """The epochs as they stand."""
        return self._store.load()

    def create_epoch(self, reason: str, *, above: int = 0) -> tuple[EpochChange, ...]:
        """Make four new keys as the next epoch, CREATED; `above` is the highest number the log has seen."""
        made = self._make()
        fault.point("keys.after_make")
        try:
            return self._change(lambda book: book.created(book.next_number(above), made, reason))
        except (InputError, NotAllowedError, _ContentionError):
            # Only here is it certain that no book names them. After any other error they stay, unused.
            self._drop(made)
            raise

    def activate_epoch(self, number: int, reason: str) -> tuple[EpochChange, ...]:
        """CREATED → ACTIVE; the epoch that was ACTIVE is RETIRED in the same step."""
        return self._change(lambda book: book.activated(number, reason))

    def retire_epoch(self, number: int, reason: str) -> tuple[EpochChange, ...]:
        """ACTIVE → RETIRED."""
        return self._change(lambda book: book.retired(number, reason))

    def revoke_epoch(self, number: int, reason: str, *, keep_one: bool = False) -> tuple[EpochChange, ...]:
        """RETIRED → REVOKED, or ACTIVE → RETIRED → REVOKED: its keys neither derive nor sign again."""
        return self._change(lambda book: book.revoked(number, reason, keep_one=keep_one))

    def epoch_for(self, workload_epoch: int | None) -> int:
        """The epoch of a workload: the ACTIVE one when it opens (None), afterwards its own unless revoked."""
        return self._store.load().epoch_for(workload_epoch)

    def row_hash_key(self, context: AttemptContext, projection: ProjectionName) -> DigestKey:
        """The digest key of one projection of an attempt."""
        message = context.message(Purpose.ROW_HASH, projection)
        return DigestKey(self._mac(KeyRole.ROW_HASH, context.epoch, message), epoch=context.epoch)

    def commitment_key(self, context: AttemptContext, projection: ProjectionName) -> CommitmentKey:
        """The key under which the attempt's proof commits to its digests."""
        message = context.message(Purpose.COMMITMENT, projection)
        return CommitmentKey(self._mac(KeyRole.COMMITMENT, context.epoch, message), epoch=context.epoch)

    def source_row_hash_key(self, context: SourceContext, projection: ProjectionName) -> DigestKey:
        """The digest key that source and Steward share for one source snapshot."""
        message = context.message(Purpose.SOURCE_ROW_HASH, projection)
        return DigestKey(self._mac(KeyRole.ROW_HASH, context.epoch, message), epoch=context.epoch)

    def source_commitment_key(self, context: SourceContext, projection: ProjectionName) -> CommitmentKey:
        """The commitment key that source and Steward share for one source snapshot."""
        message = context.message(Purpose.SOURCE_COMMITMENT, projection)
        return CommitmentKey(self._mac(KeyRole.COMMITMENT, context.epoch, message), epoch=context.epoch)

    def public_key(self, role: KeyRole, number: int) -> PublicKey:
        """The public half of a signing or log key, of an epoch in any state."""
        return _public(self._store.load().epoch(number).key(role))

    def signer(self, role: KeyRole, number: int) -> Signer:
        """The signing or log key of an epoch that is ACTIVE or RETIRED."""
        public = _public(self._store.load().usable(number).key(role))
        return Signer(role, number, public, lambda data: self._sign(role, number, data))

    def close(self) -> None:
        """Give back connections and forget what is in memory."""
        self._home.close()

    def _make(self) -> tuple[KeyEntry, ...]:
        made: list[KeyEntry] = []
        try:
            made.extend(self._home.make(role) for role in KeyRole)
        except BaseException:
            self._drop(tuple(made))
            raise
        return tuple(made)

    def _drop(self, entries: tuple[KeyEntry, ...]) -> None:
        for entry in entries:
            try:
                self._home.drop(entry)
            except PvdmError:
                # The first error is the one to tell; a key that nothing names does no harm.
                continue

    def _change(self, step: _Step) -> tuple[EpochChange, ...]:
        for _ in range(BOOK_TRIES_MAX):
            book, changes = step(self._store.load())
            if self._store.replace(book):
                return changes
        raise _ContentionError(
            Code.EPOCH_CONTENTION,
            "others kept changing the epoch book",
            expected=f"a quiet moment in {BOOK_TRIES_MAX} tries",
            got="none",
            hint="nothing was changed; try again",
        )

    def _mac(self, role: KeyRole, number: int, message: bytes) -> bytes:
        # The book is read at every use: a revocation by another process counts at once.
        entry = self._store.load().usable(number).key(role)
        return _exactly(self._home.mac(entry, message))

    def _sign(self, role: KeyRole, number: int, data: bytes) -> bytes:
        entry = self._store.load().usable(number).key(role)
        signature = self._home.sign(entry, data)
        try:
            _public(entry).verify(signature, data)
        except VerificationError:
            raise Code.KEY_HOME_INCONSISTENT(
                "the key home signed with another key than the epoch book names, or signed other bytes",
                expected=_public(entry).key_id,
                got="a signature that does not verify",
                hint="compare the epoch book with the key home; nothing was signed",
            ) from None
        return signature


class _ContentionError(UnavailableError):
    """Others changed the book every time; nothing was kept."""


def attempt_keys(service: KeyService, context: AttemptContext) -> AttemptKeys:
    """All keys of one attempt, for the Steward itself."""
    return AttemptKeys(
        row_hash=tuple((name, service.row_hash_key(context, name)) for name in context.projections),
        commitment=tuple((name, service.commitment_key(context, name)) for name in context.projections),
    )


def release(service: KeyService, context: AttemptContext, *, closed: bool) -> AttemptKeys:
    """The attempt's keys for an auditor (`proof open`), only once the attempt is closed: they give its digests away."""
    if closed is not True:
        raise Code.ATTEMPT_NOT_CLOSED(
            f"attempt {context.attempt_id} is not closed", got="an attempt that may still be published"
        )
    return attempt_keys(service, context)


def _public(entry: KeyEntry) -> PublicKey:
    if entry.public is None:
        raise Code.KEY_ROLE(got=entry.role.value)
    return entry.public


def _exactly(mac: bytes) -> bytes:
    size = len(mac)
    if size == KEY_BYTES:
        return mac
    del mac
    raise Code.KEY_HOME_INCONSISTENT(
        "the key home gave another MAC", expected=f"{KEY_BYTES} bytes", got=f"{size} bytes"
    )
