"""The trust root: which keys are trusted for what, since when and until when. Signed and versioned."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pvdm.errors import Code, InputError
from pvdm.model.canonical_json import Value, dump
from pvdm.model.fields import Fields, decimal, invalid, require_form, require_long, require_number, require_sha256
from pvdm.trust.keys.public import Algorithm, PublicKey

ROOT_SIZE_MAX_BYTES: Final = 1024 * 1024
ROOT_KEYS_MAX: Final = 1_000
KEY_EPOCHS_MAX: Final = 1_000
_FORMAT: Final = "pvdm-trust-root/v1"


class RootRole(Enum):
    """What a key is trusted for."""

    ATTESTOR = "attestor"
    BREAK_GLASS = "break-glass"
    LOG = "log"
    NOTARY = "notary"
    OPERATOR = "operator"
    ROOT = "root"


_ALONE: Final = (RootRole.BREAK_GLASS, RootRole.LOG, RootRole.NOTARY)
_STEWARD: Final = frozenset({RootRole.LOG, RootRole.NOTARY})
_APART: Final = frozenset({RootRole.ATTESTOR, RootRole.BREAK_GLASS})


@dataclass(frozen=True, slots=True)
class RootKey:
    """One trusted key: whose it is, what for, in which epochs, from when until when, and since when no longer."""

    public: PublicKey
    identity: str
    roles: tuple[RootRole, ...]
    epochs: tuple[int, ...]
    valid_from: int
    valid_until: int
    revoked_at: int | None = None

    def __post_init__(self) -> None:
        require_form(self.identity, "identity", "the identity of a key")
        names = [role.value for role in self.roles]
        if not names or names != sorted(set(names)):
            raise invalid("the roles of a key", "at least one, distinct and in order", ", ".join(names))
        if len(self.epochs) > KEY_EPOCHS_MAX or list(self.epochs) != sorted(set(self.epochs)):
            raise invalid(
                "the epochs of a key", f"at most {KEY_EPOCHS_MAX}, distinct and in order", str(len(self.epochs))
            )
        for epoch in self.epochs:
            require_long(epoch, "an epoch of a key")
        require_number(self.valid_from, "the start of a key's validity")
        require_number(self.valid_until, "the end of a key's validity", least=self.valid_from + 1)
        if self.revoked_at is not None:
            require_number(self.revoked_at, "the time of revocation")
        require_role_alone(self)

    @property
    def key_id(self) -> str:
        """Lower-case hex SHA-256 over the SubjectPublicKeyInfo."""
        return self.public.key_id

    def to_json(self) -> dict[str, Value]:
        """The key in the trust root."""
        return {
            "key_id": self.key_id,
            "algorithm": self.public.algorithm.value,
            "public_key": base64.b64encode(self.public.der).decode(),
            "identity": self.identity,
            "roles": [role.value for role in self.roles],
            "epochs": [decimal(epoch) for epoch in self.epochs],
            "valid_from": self.valid_from,
            "valid_until": self.valid_until,
            "revoked_at": self.revoked_at,
        }

    @classmethod
    def from_json(cls, value: Value) -> RootKey:
        """The key that `to_json` wrote."""
        keys = ("key_id", "algorithm", "public_key", "identity", "roles", "epochs", "valid_from", "valid_until")
        fields = Fields(value, "a key of the trust root", (*keys, "revoked_at"))
        public = _public(fields.text("public_key"))
        require_algorithm(public, fields.choice("algorithm", Algorithm))
        require_key_id(public, fields.text("key_id"))
        return cls(
            public,
            fields.text("identity"),
            tuple(_role(name) for name in fields.texts("roles")),
            tuple(_epoch(text) for text in fields.texts("epochs")),
            fields.number("valid_from"),
            fields.number("valid_until"),
            fields.optional_number("revoked_at"),
        )


def _public(text: str) -> PublicKey:
    try:
        der = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise invalid("a public key", "base64 of SubjectPublicKeyInfo", "something else") from None
    if base64.b64encode(der).decode() != text:
        raise invalid("a public key", "canonical base64", "another spelling")
    return PublicKey.from_der(der)


def _role(name: str) -> RootRole:
    try:
        return RootRole(name)
    except ValueError:
        raise invalid("a role", "one of " + ", ".join(role.value for role in RootRole), repr(name[:64])) from None


def _epoch(text: str) -> int:
    return Fields({"epoch": text}, "a key", ("epoch",)).decimal("epoch")


@dataclass(frozen=True, slots=True)
class TrustRoot:
    """One version of the trust root; keys in order of their ids."""

    version: int
    previous_sha256: str | None
    issued_at: int
    expires_at: int
    keys: tuple[RootKey, ...]
    notary_threshold: int
    root_threshold: int

    def __post_init__(self) -> None:
        require_number(self.version, "the version of the trust root", least=1)
        if (self.version == 1) != (self.previous_sha256 is None):
            raise invalid("the trust root's predecessor", "none for version 1, one for every other", str(self.version))
        if self.previous_sha256 is not None:
            require_sha256(self.previous_sha256, "the hash of the predecessor")
        require_number(self.issued_at, "the time of issue")
        require_number(self.expires_at, "the time of expiry", least=self.issued_at + 1)
        if not 1 <= len(self.keys) <= ROOT_KEYS_MAX:
            raise invalid("the keys of the trust root", f"1 to {ROOT_KEYS_MAX}", str(len(self.keys)))
        require_keys_once(self.keys)
        require_key_order(self.keys)
        require_identities_apart(self.keys)
        require_reachable(self.keys, RootRole.NOTARY, self.notary_threshold)
        require_reachable(self.keys, RootRole.ROOT, self.root_threshold)

    @property
    def sha256(self) -> str:
        """The hash that pins this root and that its successor names."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_json(self) -> dict[str, Value]:
        """The document."""
        return {
            "format": _FORMAT,
            "version": self.version,
            "previous_sha256": self.previous_sha256,
            "issued_at": self.issued_at,
            "expires_at": self.expires_at,
            "keys": [key.to_json() for key in self.keys],
            "thresholds": {"notary": self.notary_threshold, "root": self.root_threshold},
        }

    def to_bytes(self) -> bytes:
        """The canonical bytes that root signers sign."""
        return dump(self.to_json())

    @classmethod
    def from_json(cls, value: Value) -> TrustRoot:
        """The trust root that `to_json` wrote."""
        keys = ("format", "version", "previous_sha256", "issued_at", "expires_at", "keys", "thresholds")
        fields = Fields(value, "the trust root", keys)
        if fields.text("format") != _FORMAT:
            raise invalid("the format of the trust root", _FORMAT, repr(fields.text("format")[:64]))
        thresholds = Fields(fields.value("thresholds"), "the thresholds", ("notary", "root"))
        return cls(
            fields.number("version"),
            fields.optional_text("previous_sha256"),
            fields.number("issued_at"),
            fields.number("expires_at"),
            tuple(RootKey.from_json(key) for key in fields.items("keys")),
            thresholds.number("notary"),
            thresholds.number("root"),
        )

    def find(self, key_id: str) -> RootKey | None:
        """The key of that id, if this root names it."""
        for key in self.keys:
            if key.key_id == key_id:
                return key
        return None


def require_algorithm(public: PublicKey, algorithm: Algorithm) -> None:
    """The algorithm that the root names is the one that the key is for."""
    if public.algorithm is not algorithm:
        raise InputError(
            Code.TRUST_ROOT_KEY_ALGORITHM,
            "a key of the trust root is for another algorithm",
            expected=algorithm.value,
            got=public.algorithm.value,
        )


def require_key_id(public: PublicKey, key_id: str) -> None:
    """A key id is computed, never chosen."""
    if public.key_id != key_id:
        raise InputError(
            Code.TRUST_ROOT_KEY_ID, "a key of the trust root has another id", expected=public.key_id, got=key_id[:80]
        )


def require_role_alone(key: RootKey) -> None:
    """Who signs verdicts, keeps the log or breaks the glass does nothing else with that key."""
    for role in _ALONE:
        if role in key.roles and len(key.roles) > 1:
            raise InputError(
                Code.TRUST_ROOT_ROLE_SHARED,
                f"a {role.value} key has other roles too",
                expected=role.value,
                got=", ".join(each.value for each in key.roles),
            )


def require_keys_once(keys: Sequence[RootKey]) -> None:
    """One key is one signer: under two names it would count twice."""
    ids = [key.key_id for key in keys]
    for key_id in ids:
        if ids.count(key_id) > 1:
            raise InputError(
                Code.TRUST_ROOT_KEY_REPEATED, "the trust root names a key twice", expected="each key once", got=key_id
            )


def require_identities_apart(keys: Sequence[RootKey]) -> None:
    """Who is to check or overrule the Steward is not the Steward, under another key either."""
    steward = {key.identity for key in keys if not _STEWARD.isdisjoint(key.roles)}
    for key in keys:
        if key.identity in steward and not _APART.isdisjoint(key.roles):
            raise InputError(
                Code.TRUST_ROOT_IDENTITY_SHARED,
                "a notary or log is also attestor or breaks the glass",
                expected="another identity",
                got=key.identity,
            )


def require_key_order(keys: Sequence[RootKey]) -> None:
    """One set of keys has one spelling."""
    ids = [key.key_id for key in keys]
    if ids != sorted(ids):
        raise invalid("the keys of the trust root", "order of key ids", "another order")


def require_reachable(keys: Sequence[RootKey], role: RootRole, threshold: int) -> None:
    """A threshold is at least one, and enough identities exist to meet it."""
    identities = {key.identity for key in keys if role in key.roles}
    if not 1 <= threshold <= len(identities):
        raise InputError(
            Code.TRUST_ROOT_THRESHOLD,
            f"the {role.value} threshold cannot be met",
            expected=f"1 to {len(identities)}",
            got=str(threshold),
        )
