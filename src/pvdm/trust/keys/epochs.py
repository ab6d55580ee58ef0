"""Epochs, the generations of the Steward's keys: their stages, the book of all epochs, and its changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated, Final, TypeAlias

from pvdm.errors import Code, InputError
from pvdm.model import canonical_json
from pvdm.model.codec import Count, Document, FieldType, UncheckedDecimalText
from pvdm.model.fields import Fields
from pvdm.model.secret import EPOCH_MAX
from pvdm.model.statements.epoch import EpochStage
from pvdm.trust.keys.public import PublicKey

EPOCHS_MAX: Final = 4_096
REASON_MAX_BYTES: Final = 1_024
REFERENCE_MAX_BYTES: Final = 2_048
BOOK_SIZE_MAX_BYTES: Final = 64 * 1024 * 1024


class KeyRole(Enum):
    """The four keys of an epoch. Keys of operators, attestors and root signers are not in key homes."""

    ROW_HASH = "row-hash"
    COMMITMENT = "commitment"
    SIGNING = "signing"
    LOG = "log"

    @property
    def signs(self) -> bool:
        """Whether the key signs, so that it has a public half."""
        return self in {KeyRole.SIGNING, KeyRole.LOG}


_NEXT: Final = {
    EpochStage.CREATED: EpochStage.ACTIVE,
    EpochStage.ACTIVE: EpochStage.RETIRED,
    EpochStage.RETIRED: EpochStage.REVOKED,
}


def _read_public(fields: Fields, key: str) -> PublicKey | None:
    der = fields.optional_text(key)
    return None if der is None else PublicKey.from_der(bytes.fromhex(der))


@dataclass(frozen=True, slots=True)
class KeyEntry(Document, title="a key"):
    """One key of an epoch: its role, its reference (name) in the key home, and its public half if it signs."""

    role: KeyRole
    reference: str
    public: Annotated[PublicKey | None, FieldType(_read_public, lambda public: public.der.hex())] = None

    def require_consistent(self) -> None:
        """Raise unless the reference has an allowed length, and the key has a public half if and only if it signs."""
        if not 1 <= len(self.reference.encode()) <= REFERENCE_MAX_BYTES:
            raise _book_error(f"references of 1 to {REFERENCE_MAX_BYTES} bytes", f"{len(self.reference)} characters")
        if self.role.signs != (self.public is not None):
            raise _book_error("a public half for signing and log keys only", self.role.value)


@dataclass(frozen=True, slots=True)
class Epoch(Document, title="an epoch"):
    """One epoch: its number, its stage (`state`) and its four keys."""

    number: UncheckedDecimalText
    state: EpochStage
    keys: tuple[KeyEntry, ...]

    def require_consistent(self) -> None:
        """Raise unless the number is in range, and each role has a key of its own."""
        if isinstance(self.number, bool) or not 1 <= self.number <= EPOCH_MAX:
            raise Code.EPOCH_INVALID(expected="1 to 2^63-1", got=str(self.number))
        if [entry.role for entry in self.keys] != list(KeyRole):
            raise _book_error("one key for each role, in order", ", ".join(entry.role.value for entry in self.keys))
        if len({entry.reference for entry in self.keys}) != len(self.keys):
            raise _book_error("a key of its own for each role", "one key for two roles")
        if len({entry.public for entry in self.keys if entry.public}) != sum(role.signs for role in KeyRole):
            raise _book_error("a public key of its own for each role", "one public key for two roles")

    @property
    def can_sign(self) -> bool:
        """Whether the epoch's keys may derive keys and sign."""
        return self.state in (EpochStage.ACTIVE, EpochStage.RETIRED)

    def key(self, role: KeyRole) -> KeyEntry:
        """The key of that role."""
        return next(entry for entry in self.keys if entry.role is role)


_KEY_IDS: Final = FieldType(Fields.pairs, lambda key_ids: {role.value: key_id for role, key_id in key_ids})


@dataclass(frozen=True, slots=True)
class EpochChange(Document, title="a change of an epoch"):
    """One change of an epoch's stage, for the caller to sign and log. `before` is None for a new epoch."""

    epoch: UncheckedDecimalText
    before: EpochStage | None
    after: EpochStage
    reason: str
    key_ids: Annotated[tuple[tuple[KeyRole, str], ...], _KEY_IDS]


@dataclass(frozen=True, slots=True)
class EpochBook(Document, title="the epoch book", format="pvdm-epochs/v1"):
    """Every epoch that ever existed, in order of number. Each change is a new book with the next revision."""

    revision: Count = 0
    epochs: tuple[Epoch, ...] = ()

    def require_consistent(self) -> None:
        """Raise unless numbers ascend, at most one epoch is active, and every key belongs to one epoch."""
        numbers = [epoch.number for epoch in self.epochs]
        if numbers != sorted(set(numbers)):
            raise _book_error("ascending distinct epochs", "another order")
        if len(numbers) > EPOCHS_MAX:
            limit = f"at most {EPOCHS_MAX} epochs"
            raise Code.EPOCH_INVALID(reason="epochs_too_many", expected=limit, got=str(len(numbers)))
        if sum(epoch.state is EpochStage.ACTIVE for epoch in self.epochs) > 1:
            raise _book_error("at most one ACTIVE epoch", "several")
        references = [entry.reference for epoch in self.epochs for entry in epoch.keys]
        if len(set(references)) != len(references):
            raise _book_error("keys of its own for each epoch", "one key in two epochs")

    @property
    def active(self) -> Epoch | None:
        """The epoch that new workloads open under, if there is one."""
        return next((epoch for epoch in self.epochs if epoch.state is EpochStage.ACTIVE), None)

    def epoch(self, number: int) -> Epoch:
        """The epoch of that number. Raises `epoch_unknown`."""
        found = next((epoch for epoch in self.epochs if epoch.number == number), None)
        if found is None:
            raise Code.EPOCH_INVALID(reason="epoch_unknown", got=str(number))
        return found

    def require_usable(self, number: int) -> Epoch:
        """The epoch. Raises unless it is ACTIVE or RETIRED, so that its keys may derive keys and sign."""
        epoch = self.epoch(number)
        match epoch.state:
            case EpochStage.ACTIVE | EpochStage.RETIRED:
                return epoch
            case EpochStage.REVOKED:
                raise Code.EPOCH_REFUSED(f"epoch {number} is revoked", reason="epoch_revoked", got="REVOKED")
            case EpochStage.CREATED:
                raise Code.EPOCH_REFUSED(f"epoch {number} was never active", reason="epoch_not_active", got="CREATED")

    def epoch_for(self, workload_epoch: int | None) -> int:
        """Require and return a usable epoch: `workload_epoch`, or the ACTIVE one if that is None (a new workload)."""
        if workload_epoch is not None:
            return self.require_usable(workload_epoch).number
        if self.active is None:
            newest = self.epochs[-1] if self.epochs else None
            if newest is not None and newest.state is EpochStage.CREATED:  # as after a restore
                command = f"pvdm keys activate {newest.number} --reason TEXT"
                hint = f"name the keys of epoch {newest.number} in the trust root, then activate it: `{command}`"
                raise Code.EPOCH_REFUSED(reason="epoch_none_active", got=f"epoch {newest.number} CREATED", hint=hint)
            raise Code.EPOCH_REFUSED(reason="epoch_none_active", got="none")
        return self.active.number

    def next_number(self, above: int = 0) -> int:
        """The next epoch's number, above all numbers of this book and above `above`. (A restored book may be old.)"""
        return max([above, *(epoch.number for epoch in self.epochs)]) + 1

    def create(self, number: int, keys: tuple[KeyEntry, ...], reason: str) -> BookAndChanges:
        """The book with a further epoch, CREATED."""
        require_printable_reason(reason)
        if self.epochs and number <= self.epochs[-1].number:
            raise Code.EPOCH_REFUSED(reason="epoch_reused", expected=f"above {self.epochs[-1].number}", got=str(number))
        epoch = Epoch(number, EpochStage.CREATED, keys)
        return EpochBook(self.revision + 1, (*self.epochs, epoch)), (_make_change(epoch, None, epoch.state, reason),)

    def activate(self, number: int, reason: str) -> BookAndChanges:
        """The book with this epoch ACTIVE. The epoch that was ACTIVE becomes RETIRED in the same step."""
        require_printable_reason(reason)
        self._require_stage(number, EpochStage.CREATED)
        retired = [(self.active.number, EpochStage.RETIRED)] if self.active else []
        return self._change_stages([*retired, (number, EpochStage.ACTIVE)], reason)

    def retire(self, number: int, reason: str) -> BookAndChanges:
        """The book with this epoch RETIRED and none ACTIVE. No workload can be opened until an epoch is activated."""
        require_printable_reason(reason)
        self._require_stage(number, EpochStage.ACTIVE)
        return self._change_stages([(number, EpochStage.RETIRED)], reason)

    def revoke(self, number: int, reason: str, *, keep_a_signing_epoch: bool = False) -> BookAndChanges:
        """The book with this epoch REVOKED. An ACTIVE epoch is RETIRED first, and both changes are returned.

        `keep_a_signing_epoch` refuses to revoke the last epoch that can sign, because no key could sign that change.
        """
        require_printable_reason(reason)
        epoch = self.epoch(number)
        if keep_a_signing_epoch and not any(each.number != number and each.can_sign for each in self.epochs):
            raise Code.EPOCH_REFUSED(f"epoch {number} is the only one that can sign", reason="epoch_last", got="none")
        if epoch.state is EpochStage.ACTIVE:
            return self._change_stages([(number, EpochStage.RETIRED), (number, EpochStage.REVOKED)], reason)
        self._require_stage(number, EpochStage.RETIRED)
        return self._change_stages([(number, EpochStage.REVOKED)], reason)

    def _require_stage(self, number: int, stage: EpochStage) -> None:
        """Raise unless the epoch is in this stage, so that it can go to the next stage."""
        got = self.epoch(number).state
        if got is not stage:
            message = f"epoch {number} cannot become {_NEXT[stage].value}"
            raise Code.EPOCH_REFUSED(message, reason="epoch_transition", expected=stage.value, got=got.value)

    def _change_stages(self, steps: Sequence[tuple[int, EpochStage]], reason: str) -> BookAndChanges:
        """The next book and its changes. `steps` has the number and the new stage of each epoch to change, in order."""
        stages = {epoch.number: epoch.state for epoch in self.epochs}
        changes = []
        for number, after in steps:
            before = stages[number]
            if _NEXT.get(before) is not after:
                raise AssertionError(f"no step from {before.value} to {after.value}")
            stages[number] = after
            changes.append(_make_change(self.epoch(number), before, after, reason))
        epochs = tuple(replace(epoch, state=stages[epoch.number]) for epoch in self.epochs)
        return EpochBook(self.revision + 1, epochs), tuple(changes)

    @classmethod
    def parse(cls, data: bytes) -> EpochBook:
        """The book that `to_bytes` wrote. Raises `epoch_book_malformed`, or the error of an invalid value."""
        value = canonical_json.parse(data, size_max_bytes=BOOK_SIZE_MAX_BYTES)
        try:
            return cls.from_json(value)
        except (ValueError, InputError) as error:
            if isinstance(error, InputError) and not error.code.startswith("document_"):
                raise  # the error of an invalid value
        raise _book_error("an epoch book as pvdm writes it", "another document")


BookAndChanges: TypeAlias = tuple[EpochBook, tuple[EpochChange, ...]]


def _make_change(epoch: Epoch, before: EpochStage | None, after: EpochStage, reason: str) -> EpochChange:
    key_ids = tuple((entry.role, entry.public.key_id) for entry in epoch.keys if entry.public)
    return EpochChange(epoch.number, before, after, reason, key_ids)


def require_printable_reason(reason: str) -> None:
    """Raise `epoch_reason` unless the reason is printable text of limited length, because it is logged."""
    if not reason.strip() or not reason.isprintable() or len(reason.encode()) > REASON_MAX_BYTES:
        expected = f"1 to {REASON_MAX_BYTES} bytes of printable text"
        raise Code.EPOCH_INVALID(reason="epoch_reason", expected=expected, got=repr(reason)[:160])


def _book_error(expected: str, got: str) -> InputError:
    return InputError("epoch_book_malformed", "the epoch book cannot be accepted", expected=expected, got=got)
