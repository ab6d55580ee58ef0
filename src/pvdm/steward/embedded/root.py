"""The trust root of an embedded Steward: built from its epochs, signed by its own root signer, and renewed in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pvdm.errors import Code
from pvdm.ledger.record import events
from pvdm.model.fields import MICROS_PER_SECOND
from pvdm.model.statements.epoch import EpochStage
from pvdm.steward.notary import Notary
from pvdm.trust.keys.epochs import Epoch, KeyRole
from pvdm.trust.keys.pem import PemKeyPair, read_public_key
from pvdm.trust.keys.public import PublicKey
from pvdm.trust.root import RootRole, Thresholds, TrustedKey, TrustRoot, sign_root
from pvdm.trust.verify import CLOCK_SKEW_MAX_MICROS

ROOT_LIFETIME_SECONDS: Final = 365 * 24 * 3600
KEY_LIFETIME_SECONDS: Final = 10 * ROOT_LIFETIME_SECONDS
_ROLES_OF_PEOPLE: Final = (RootRole.ATTESTOR, RootRole.BREAK_GLASS, RootRole.OPERATOR)


@dataclass(frozen=True, slots=True)
class Person:
    """A person whom the trust root names, with the public half of a key that the person created."""

    identity: str
    role: RootRole
    public: PublicKey

    def __post_init__(self) -> None:
        if self.role not in _ROLES_OF_PEOPLE:
            expected = " or ".join(role.value for role in _ROLES_OF_PEOPLE)
            raise Code.EMBEDDED_SETTINGS_INVALID(reason="embedded_person_role", expected=expected, got=self.role.value)

    @classmethod
    def from_file(cls, identity: str, role: RootRole, path: Path | str) -> Person:
        """The person whose public key lies in that file, in PEM."""
        return cls(identity, role, read_public_key(Path(path)))


def require_people(people: Sequence[object]) -> None:
    """Raise `embedded_person_invalid` for anything but a `Person`; a bare name, for example, has no key."""
    given = people if isinstance(people, list | tuple) else [people]
    for each in given:
        if not isinstance(each, Person):
            raise Code.EMBEDDED_SETTINGS_INVALID(reason="embedded_person_invalid", got=type(each).__name__)


def update_trust_root(notary: Notary, signer: PemKeyPair, people: Sequence[Person]) -> TrustRoot:
    """Sign the next root if keys were added or revoked, or half of the lifetime is over; returns the newest root."""
    now = notary.clock.now_micros()
    current = notary.trust.current() if notary.trust.chain() else None
    wanted = _next_keys(notary, signer, people, current, now)
    if current is not None and current.keys == wanted and now < (current.issued_at + current.expires_at) // 2:
        return current
    root = TrustRoot(
        version=1 if current is None else current.version + 1,
        previous_sha256=None if current is None else current.sha256,
        issued_at=now,
        expires_at=now + ROOT_LIFETIME_SECONDS * MICROS_PER_SECOND,
        keys=wanted,
        thresholds=Thresholds(notary=1, root=1),
    )
    return notary.trust.accept(sign_root(root, [signer]).to_bytes(), pin=root.sha256 if current is None else None)


def _next_keys(
    notary: Notary, signer: PemKeyPair, people: Sequence[Person], current: TrustRoot | None, now: int
) -> tuple[TrustedKey, ...]:
    """The keys of the next root: the current root's keys and new keys. Keys of revoked epochs become revoked."""
    with notary.ledger.read() as unit:
        first = events.page(unit, count=1)
    # Keys are valid from the ledger's first event on: the first epoch signed its own creation before any root named it.
    since = max(0, min([now, *(event.at_micros for event in first)]) - CLOCK_SKEW_MAX_MICROS)
    until = now + KEY_LIFETIME_SECONDS * MICROS_PER_SECOND
    no_epochs = ()  # only a notary's keys belong to an epoch
    wanted = [TrustedKey(signer.public, f"{notary.config.notary}/root", (RootRole.ROOT,), no_epochs, since, until)]
    revoked = set()
    for epoch in notary.epochs.book().epochs:
        epoch_keys = _epoch_keys(notary, epoch, since, until)
        wanted += epoch_keys
        revoked |= {key.key_id for key in epoch_keys if epoch.state is EpochStage.REVOKED}
    wanted += [TrustedKey(each.public, each.identity, (each.role,), no_epochs, since, until) for each in people]
    current_keys = {} if current is None else {key.key_id: key for key in current.keys}
    for each in people:
        key = current_keys.get(each.public.key_id)
        if key is not None and (key.revoked_at is not None or key.valid_until <= now):
            # Signatures by a key that has expired or was revoked do not count any more.
            expected, got = f"another key of {each.identity}", f"the key {key.key_id}"
            raise Code.EMBEDDED_SETTINGS_INVALID(reason="embedded_person_ended", expected=expected, got=got)
    # If a key id is wanted for another identity or role, both entries are kept, and `TrustRoot` refuses the repetition.
    existing = {(key.key_id, key.identity, key.roles) for key in current_keys.values()}
    added = [key for key in wanted if (key.key_id, key.identity, key.roles) not in existing]
    merged = [
        replace(key, revoked_at=now) if key.key_id in revoked and key.revoked_at is None else key
        for key in (*current_keys.values(), *added)
    ]
    return tuple(sorted(merged, key=lambda key: key.key_id))


def _epoch_keys(notary: Notary, epoch: Epoch, since: int, until: int) -> list[TrustedKey]:
    """The keys with which the epoch signs statements and checkpoints, as the trust root names them."""
    signing, log = epoch.key(KeyRole.SIGNING).public, epoch.key(KeyRole.LOG).public
    if signing is None or log is None:
        raise AssertionError("a signing or log key has no public half")
    return [
        TrustedKey(signing, notary.config.notary, (RootRole.NOTARY,), (epoch.number,), since, until),
        TrustedKey(log, notary.config.origin, (RootRole.LOG,), (), since, until),
    ]
