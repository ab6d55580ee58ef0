"""Generations of the root keys: states, the book that holds them, and each change as a value to be logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from pvdm.errors import Code, InputError
from pvdm.model import canonical_json
from pvdm.model.canonical_json import Value
from pvdm.model.secret import EPOCH_MAX
from pvdm.model.statements.epoch import EpochStage
from pvdm.trust.keys.public import PublicKey

EPOCHS_MAX: Final = 4_096
REASON_MAX_BYTES: Final = 1_024
REFERENCE_MAX_BYTES: Final = 2_048
BOOK_SIZE_MAX_BYTES: Final = 64 * 1024 * 1024

_BOOK_FORMAT: Final = "pvdm-epochs/v1"


class KeyRole(Enum):
    """The four keys of an epoch; break-glass, attestor and root keys are other people's, with no private half here."""

    ROW_HASH = "row-hash"
    COMMITMENT = "commitment"
    SIGNING = "signing"
    LOG = "log"

    @property
    def signs(self) -> bool:
        """Whether the key has a public half."""
        return self in {KeyRole.SIGNING, KeyRole.LOG}


_NEXT: Final = {
    EpochStage.CREATED: EpochStage.ACTIVE,
    EpochStage.ACTIVE: EpochStage.RETIRED,
    EpochStage.RETIRED: EpochStage.REVOKED,
}


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One key of an epoch: its role, the name its home knows it by, and its public half where it has one."""

    role: KeyRole
    reference: str
    public: PublicKey | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.reference.encode()) <= REFERENCE_MAX_BYTES:
            raise _malformed(f"references of 1 to {REFERENCE_MAX_BYTES} bytes", f"{len(self.reference)} characters")
        if self.role.signs != (self.public is not None):
            raise _malformed("a public half for signing and log keys only", self.role.value)


@dataclass(frozen=True, slots=True)
class Epoch:
    """One generation: its number, its state and its four keys."""

    number: int
    state: EpochStage
    keys: tuple[KeyEntry, ...]

    def __post_init__(self) -> None:
        if isinstance(self.number, bool) or not 1 <= self.number <= EPOCH_MAX:
            raise Code.EPOCH_INVALID(expected="1 to 2^63-1", got=str(self.number))
        if [entry.role for entry in self.keys] != list(KeyRole):
            raise _malformed("one key for each role, in order", ", ".join(entry.role.value for entry in self.keys))
        if len({entry.reference for entry in self.keys}) != len(self.keys):
            raise _malformed("a key of its own for each role", "one key for two roles")
        if len({entry.public for entry in self.keys if entry.public}) != sum(role.signs for role in KeyRole):
            raise _malformed("a public key of its own for each role", "one public key for two roles")

    @property
    def can_sign(self) -> bool:
        """Whether its keys may still derive and sign."""
        return self.state in (EpochStage.ACTIVE, EpochStage.RETIRED)

    def key(self, role: KeyRole) -> KeyEntry:
        """The key of that role."""
        return next(entry for entry in self.keys if entry.role is role)


@dataclass(frozen=True, slots=True)
class EpochChange:
    """One step of one epoch, to be signed and logged by who asked for it."""

    epoch: int
    before: EpochStage | None
    after: EpochStage
    reason: str
    key_ids: tuple[tuple[KeyRole, str], ...]

    def to_json(self) -> dict[str, Value]:
        """The predicate's facts; 64-bit numbers are decimal strings."""
        return {
            "epoch": str(self.epoch),
            "before": None if self.before is None else self.before.value,
            "after": self.after.value,
            "reason": self.reason,
            "key_ids": {role.value: key_id for role, key_id in self.key_ids},
        }


@dataclass(frozen=True, slots=True)
class EpochBook:
    """Every epoch there ever was, in order of number; each change is a new book with the next revision."""

    revision: int = 0
    epochs: tuple[Epoch, ...] = ()

    def __post_init__(self) -> None:
        numbers = [epoch.number for epoch in self.epochs]
        if numbers != sorted(set(numbers)):
            raise _malformed("ascending distinct epochs", "another order")
        if len(numbers) > EPOCHS_MAX:
            raise Code.EPOCH_INVALID(
                reason="epochs_too_many", expected=f"at most {EPOCHS_MAX} epochs", got=str(len(numbers))
            )
        if sum(epoch.state is EpochStage.ACTIVE for epoch in self.epochs) > 1:
            raise _malformed("at most one ACTIVE epoch", "several")
        references = [entry.reference for epoch in self.epochs for entry in epoch.keys]
        if len(set(references)) != len(references):
            raise _malformed("keys of its own for each epoch", "one key in two epochs")

    @property
    def active(self) -> Epoch | None:
        """The epoch that new workloads open under, if there is one."""
        return next((epoch for epoch in self.epochs if epoch.state is EpochStage.ACTIVE), None)

    def epoch(self, number: int) -> Epoch:
        """The epoch of that number; an unknown one is an error."""
        for epoch in self.epochs:
            if epoch.number == number:
                return epoch
        raise Code.EPOCH_INVALID(reason="epoch_unknown", got=str(number))

    def usable(self, number: int) -> Epoch:
        """The epoch, if its keys may still derive and sign: ACTIVE or RETIRED."""
        epoch = self.epoch(number)
        match epoch.state:
            case EpochStage.ACTIVE | EpochStage.RETIRED:
                return epoch
            case EpochStage.REVOKED:
                raise Code.EPOCH_REFUSED(f"epoch {number} is revoked", reason="epoch_revoked", got="REVOKED")
            case EpochStage.CREATED:
                raise Code.EPOCH_REFUSED(f"epoch {number} was never active", reason="epoch_not_active", got="CREATED")

    def epoch_for(self, workload_epoch: int | None) -> int:
        """The epoch of a workload: the active one when it opens, afterwards its own, whatever was rotated since."""
        if workload_epoch is not None:
            return self.usable(workload_epoch).number
        if self.active is None:
            raise Code.EPOCH_REFUSED(reason="epoch_none_active", got="none")
        return self.active.number

    def next_number(self, above: int = 0) -> int:
        """The next epoch's number: above every one of the book and above `above` (a restored book may be behind)."""
        return max([above, *(epoch.number for epoch in self.epochs)]) + 1

    def created(
        self, number: int, keys: tuple[KeyEntry, ...], reason: str
    ) -> tuple[EpochBook, tuple[EpochChange, ...]]:
        """The book with one more epoch, CREATED."""
        judge_reason(reason)
        if self.epochs and number <= self.epochs[-1].number:
            raise Code.EPOCH_REFUSED(reason="epoch_reused", expected=f"above {self.epochs[-1].number}", got=str(number))
        epoch = Epoch(number, EpochStage.CREATED, keys)
        return EpochBook(self.revision + 1, (*self.epochs, epoch)), (_change(epoch, None, epoch.state, reason),)

    def activated(self, number: int, reason: str) -> tuple[EpochBook, tuple[EpochChange, ...]]:
        """The book with this epoch ACTIVE; the one that was is RETIRED in the same step."""
        judge_reason(reason)
        wanted = self._from(number, EpochStage.CREATED, EpochStage.ACTIVE)
        steps = [(self.active, EpochStage.RETIRED)] if self.active else []
        return self._stepped([*steps, (wanted, EpochStage.ACTIVE)], reason)

    def retired(self, number: int, reason: str) -> tuple[EpochBook, tuple[EpochChange, ...]]:
        """The book with this epoch RETIRED and none ACTIVE: no new workload opens until one is activated."""
        judge_reason(reason)
        wanted = self._from(number, EpochStage.ACTIVE, EpochStage.RETIRED)
        return self._stepped([(wanted, EpochStage.RETIRED)], reason)

    def revoked(self, number: int, reason: str, *, keep_one: bool = False) -> tuple[EpochBook, tuple[EpochChange, ...]]:
        """The book with this epoch REVOKED; an ACTIVE one is RETIRED on the way, and both changes are given back.

        `keep_one` refuses the end of the last epoch that can sign: nobody could sign and log that end any more.
        """
        judge_reason(reason)
        epoch = self.epoch(number)
        if keep_one and not any(each.number != number and each.can_sign for each in self.epochs):
            raise Code.EPOCH_LAST(f"epoch {number} is the only one that can sign", got="none")
        if epoch.state is EpochStage.ACTIVE:
            return self._stepped([(epoch, EpochStage.RETIRED), (epoch, EpochStage.REVOKED)], reason)
        wanted = self._from(number, EpochStage.RETIRED, EpochStage.REVOKED)
        return self._stepped([(wanted, EpochStage.REVOKED)], reason)

    def _from(self, number: int, before: EpochStage, after: EpochStage) -> Epoch:
        epoch = self.epoch(number)
        if epoch.state is not before:
            raise Code.EPOCH_REFUSED(
                f"epoch {number} cannot become {after.value}",
                reason="epoch_transition",
                expected=before.value,
                got=epoch.state.value,
            )
        return epoch

    def _stepped(
        self, steps: Sequence[tuple[Epoch, EpochStage]], reason: str
    ) -> tuple[EpochBook, tuple[EpochChange, ...]]:
        states = {epoch.number: epoch.state for epoch in self.epochs}
        changes = []
        for epoch, after in steps:
            before = states[epoch.number]
            if _NEXT.get(before) is not after:
                raise AssertionError(f"no way from {before.value} to {after.value}")
            states[epoch.number] = after
            changes.append(_change(epoch, before, after, reason))
        epochs = tuple(replace(epoch, state=states[epoch.number]) for epoch in self.epochs)
        return EpochBook(self.revision + 1, epochs), tuple(changes)

    def to_json(self) -> dict[str, Value]:
        """The book as a document; nothing in it is secret."""
        return {
            "format": _BOOK_FORMAT,
            "revision": self.revision,
            "epochs": [
                {
                    "number": str(epoch.number),
                    "state": epoch.state.value,
                    "keys": [
                        {
                            "role": entry.role.value,
                            "reference": entry.reference,
                            "public": None if entry.public is None else entry.public.der.hex(),
                        }
                        for entry in epoch.keys
                    ],
                }
                for epoch in self.epochs
            ],
        }

    def dump(self) -> bytes:
        """The book as canonical JSON."""
        return canonical_json.dump(self.to_json())

    @classmethod
    def parse(cls, data: bytes) -> EpochBook:
        """The book that `dump` wrote; anything else is refused."""
        return cls.from_json(canonical_json.parse(data, size_max_bytes=BOOK_SIZE_MAX_BYTES))

    @classmethod
    def from_json(cls, value: Value) -> EpochBook:
        """The book that `to_json` wrote; anything else is refused."""
        try:
            match value:
                case {"format": str(name), "revision": int(revision), "epochs": [*epochs]} if name == _BOOK_FORMAT:
                    book = cls(revision, tuple(_epoch(epoch) for epoch in epochs))
                    if book.to_json() == value:
                        return book
        except ValueError:
            pass
        raise _malformed("what to_json writes", "another document")


def _epoch(value: Value) -> Epoch:
    match value:
        case {"number": str(number), "state": str(state), "keys": [*keys]}:
            return Epoch(int(number), EpochStage(state), tuple(_entry(key) for key in keys))
        case _:
            raise _malformed("an epoch", "another value")


def _entry(value: Value) -> KeyEntry:
    match value:
        case Mapping() as entry:
            public = entry.get("public")
            der = None if public is None else PublicKey.from_der(bytes.fromhex(str(public)))
            return KeyEntry(KeyRole(entry.get("role")), str(entry.get("reference")), der)
        case _:
            raise _malformed("a key", "another value")


def _change(epoch: Epoch, before: EpochStage | None, after: EpochStage, reason: str) -> EpochChange:
    key_ids = tuple((entry.role, entry.public.key_id) for entry in epoch.keys if entry.public)
    return EpochChange(epoch.number, before, after, reason, key_ids)


def judge_reason(reason: str) -> None:
    """Printable text of some length; it goes into the log."""
    if not reason.strip() or not reason.isprintable() or len(reason.encode()) > REASON_MAX_BYTES:
        raise Code.EPOCH_INVALID(
            reason="epoch_reason", expected=f"1 to {REASON_MAX_BYTES} bytes of printable text", got=repr(reason)[:160]
        )


def _malformed(expected: str, got: str) -> InputError:
    return InputError("epoch_book_malformed", "the epoch book cannot be accepted", expected=expected, got=got)
