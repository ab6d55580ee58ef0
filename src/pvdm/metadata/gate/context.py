"""What the gate uses, and context managers that add the check's number and the attempt's id to a refusal."""

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
from pvdm.metadata.gate.ledger_changes import PublishedAttempt
from pvdm.metadata.gate.proposal import Part, PublishedSnapshot, table_in_doubt
from pvdm.metadata.gate.target import Target
from pvdm.trust.root import TrustRoot
from pvdm.verify.fetch import Files


class Trust(Protocol):
    """The chain of trust roots that this Steward has accepted."""

    def current(self) -> TrustRoot:
        """The newest trust root."""

    def ids(self) -> tuple[str, ...]:
        """The ids of the chain, the newest last."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What the gate of one table uses. `log_proof` returns the inclusion proof of the log entry with that index."""

    ledger: Ledger
    clock: LedgerClock
    target: Target
    trust: Trust
    vault: Vault
    files: Files
    origin: str  # the name of the Steward's log
    log_proof: Callable[[int], bytes]
    witness: Callable[[PublishedSnapshot], str]  # signs and logs a receipt, and returns its id
    seals: Seals | None = None  # for proofs with storage `sealed`; None: such a proof is refused


@contextlib.contextmanager
def check(number: int) -> Iterator[None]:
    """Add this number (`error.check`) to an error raised inside, if it has none. Also used as a decorator."""
    try:
        yield
    except PvdmError as error:
        error.details.setdefault("check", number)
        raise


@contextlib.contextmanager
def name_attempt(part: Part | PublishedAttempt) -> Iterator[None]:
    """Add the attempt's id (`attempt_id`) to an error raised inside, if it has none."""
    try:
        yield
    except PvdmError as error:
        attempt_id = part.attempt.attempt_id if isinstance(part, Part) else part.attempt_id
        error.details.setdefault("attempt_id", attempt_id)
        raise


@contextlib.contextmanager
def translate_main_errors(*, except_codes: Collection[str] = ()) -> Iterator[None]:
    """Raise an error about a manifest of `main` as `table_in_doubt`, unless its code is one of `except_codes`."""
    try:
        yield
    except (InputError, VerificationError) as error:
        if error.code in except_codes:
            raise
        raise table_in_doubt(error) from error
