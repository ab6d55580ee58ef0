"""The proof: a core that all notaries must agree on byte for byte, and beside it what is each one's own."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from pvdm.errors import Code, InputError
from pvdm.model.canonical_json import Value
from pvdm.model.fields import Fields, decimal, invalid, require_form, require_long, require_number, require_sha256
from pvdm.model.projection import ProjectionName
from pvdm.model.statements.core import ProofCore

PROOF_LIFETIME_MAX_MICROS: Final = 7 * 24 * 3600 * 1_000_000


class Isolation(Enum):
    """How far the notary really is from the producer."""

    EMBEDDED = "embedded"
    PROCESS = "process"
    ACCOUNT = "account"


class Storage(Enum):
    """Who can still write the verified bytes."""

    OPEN = "open"
    COPIED = "copied"
    SEALED = "sealed"


@dataclass(frozen=True, slots=True)
class Commitments:
    """Commitments to the digests of intent and staged in one projection; never the digests."""

    projection: ProjectionName
    intent: str
    staged: str

    def __post_init__(self) -> None:
        require_sha256(self.intent, "the commitment to the intent")
        require_sha256(self.staged, "the commitment to what was staged")

    def to_json(self) -> dict[str, Value]:
        """The commitments in a proof."""
        return {"projection": self.projection.value, "intent": self.intent, "staged": self.staged}

    @classmethod
    def from_json(cls, value: Value) -> Commitments:
        """The commitments that `to_json` wrote."""
        fields = Fields(value, "the commitments", ("projection", "intent", "staged"))
        return cls(fields.choice("projection", ProjectionName), fields.text("intent"), fields.text("staged"))


@dataclass(frozen=True, slots=True)
class NotaryPart:
    """What one notary says of itself and of its own run."""

    notary: str
    epoch: int
    commitments: tuple[Commitments, ...]
    isolation: Isolation
    storage: Storage
    issued_at: int
    expires_at: int

    def __post_init__(self) -> None:
        require_form(self.notary, "identity", "the notary")
        require_long(self.epoch, "the epoch")
        names = [each.projection.value for each in self.commitments]
        if names != sorted(set(names)):
            raise invalid("the commitments", "each projection once, in order", ", ".join(names))
        require_number(self.issued_at, "the time of issue")
        require_number(self.expires_at, "the time of expiry")
        require_lifetime(self.issued_at, self.expires_at)

    def to_json(self) -> dict[str, Value]:
        """The notary's part of the predicate."""
        return {
            "notary": self.notary,
            "epoch": decimal(self.epoch),
            "commitments": [each.to_json() for each in self.commitments],
            "isolation": self.isolation.value,
            "storage": self.storage.value,
            "issued_at": self.issued_at,
            "expires_at": self.expires_at,
        }

    @classmethod
    def from_json(cls, value: Value) -> NotaryPart:
        """The part that `to_json` wrote."""
        keys = ("notary", "epoch", "commitments", "isolation", "storage", "issued_at", "expires_at")
        fields = Fields(value, "the notary's part", keys)
        return cls(
            fields.text("notary"),
            fields.decimal("epoch"),
            tuple(Commitments.from_json(each) for each in fields.items("commitments")),
            fields.choice("isolation", Isolation),
            fields.choice("storage", Storage),
            fields.number("issued_at"),
            fields.number("expires_at"),
        )


@dataclass(frozen=True, slots=True)
class Proof:
    """One notary's statement of one attempt's verdict; PASS must be borne out by counts and commitments."""

    core: ProofCore
    notary: NotaryPart

    def __post_init__(self) -> None:
        require_known_projections(self.core, self.notary)
        if self.core.verdict.passed:
            require_equal_counts(self.core)
            require_all_commitments(self.core, self.notary)
            require_equal_commitments(self.notary)

    def to_json(self) -> dict[str, Value]:
        """The predicate."""
        return {"core": self.core.to_json(), "notary": self.notary.to_json()}

    @classmethod
    def from_json(cls, value: Value) -> Proof:
        """The proof that `to_json` wrote."""
        fields = Fields(value, "the proof", ("core", "notary"))
        return cls(ProofCore.from_json(fields.value("core")), NotaryPart.from_json(fields.value("notary")))


def require_lifetime(issued_at: int, expires_at: int) -> None:
    """A proof expires after it was issued, and soon."""
    if not 0 < expires_at - issued_at <= PROOF_LIFETIME_MAX_MICROS:
        raise InputError(
            Code.PROOF_LIFETIME_INVALID,
            "the proof's lifetime cannot be accepted",
            expected=f"more than 0 and at most {PROOF_LIFETIME_MAX_MICROS} microseconds",
            got=str(expires_at - issued_at),
        )


def require_known_projections(core: ProofCore, notary: NotaryPart) -> None:
    """Nothing is committed to that the core does not describe."""
    described = {proved.projection.name for proved in core.projections}
    for each in notary.commitments:
        if each.projection not in described:
            raise InputError(
                Code.PROOF_COMMITMENT_UNKNOWN,
                "the proof commits to a projection that it does not describe",
                expected=", ".join(sorted(name.value for name in described)),
                got=each.projection.value,
            )


def require_equal_counts(core: ProofCore) -> None:
    """PASS means that as many rows were staged as were intended, and that both numbers are known."""
    if core.rows.staged is None or core.rows.intent != core.rows.staged:
        raise InputError(
            Code.PROOF_COUNTS_DISAGREE,
            "the proof says PASS, its row counts do not",
            expected=f"{core.rows.intent} rows",
            got=str(core.rows.staged),
        )


def require_all_commitments(core: ProofCore, notary: NotaryPart) -> None:
    """PASS rests on a digest of every projection that the core describes."""
    committed = {each.projection for each in notary.commitments}
    for proved in core.projections:
        if proved.projection.name not in committed:
            raise InputError(
                Code.PROOF_COMMITMENT_MISSING,
                "the proof says PASS without a commitment to every projection",
                expected=proved.projection.name.value,
                got="none",
            )


def require_equal_commitments(notary: NotaryPart) -> None:
    """PASS means equal digests, and equal digests have equal commitments under one attempt's key."""
    for each in notary.commitments:
        if each.intent != each.staged:
            raise InputError(
                Code.PROOF_COMMITMENTS_DISAGREE,
                "the proof says PASS, its commitments do not",
                expected="one commitment for intent and staged",
                got=f"two in the {each.projection.value} projection",
            )
