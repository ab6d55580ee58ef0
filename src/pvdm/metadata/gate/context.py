"""What the gate stands on, and how a refusal tells which check and which attempt it is about."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from pvdm.errors import InputError, PvdmError, VerificationError
from pvdm.lake.stores.seal import Seals
from pvdm.lake.vault import Vault
from pvdm.ledger import Ledger
from pvdm.ledger.clock import LedgerClock
from pvdm.metadata.gate.proposal import Part, Shown, in_doubt
from pvdm.metadata.gate.target import Target
from pvdm.trust.root import TrustRoot
from pvdm.verify.fetch import Files


class Trust(Protocol):
    """The trust roots that this Steward stands under."""

    def current(self) -> TrustRoot:
        """The newest one."""

    def ids(self) -> tuple[str, ...]:
        """The chain's ids, the newest last."""


@dataclass(frozen=True, slots=True)
class Gate:
    """One table behind the gate; `log_proof` shows an entry to be in the log, `witness` signs and logs the receipt."""

    ledger: Ledger
    clock: LedgerClock
    target: Target
    trust: Trust
    vault: Vault
    files: Files
    origin: str
    log_proof: Callable[[int], bytes]
    witness: Callable[[Shown], str]
    seals: Seals | None = None


@contextlib.contextmanager
def check(number: int) -> Iterator[None]:
    """A refusal inside is told with the number of the check."""
    try:
        yield
    except PvdmError as error:
        error.details.setdefault("check", number)
        raise


@contextlib.contextmanager
def about(part: Part) -> Iterator[None]:
    """A refusal inside is about this attempt, and about no other of the same workload."""
    try:
        yield
    except PvdmError as error:
        error.details.setdefault("attempt_id", part.attempt.attempt_id)
        raise


@contextlib.contextmanager
def of_main(*, but: Collection[str] = ()) -> Iterator[None]:
    """What is wrong inside is wrong with the lists and manifests of `main`: no word about what was staged and proved.

    `but` are codes of what is found in them, once they are read.
    """
    try:
        yield
    except (InputError, VerificationError) as error:
        if error.code in but:
            raise
        raise in_doubt(error) from error
