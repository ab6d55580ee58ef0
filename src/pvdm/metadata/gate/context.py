"""What the gate uses, and contexts that add the number of the check and the id of the attempt to a refusal."""

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
    """What the gate of one table uses. `log_proof` returns the inclusion proof of a log entry, by its index."""

    ledger: Ledger
    clock: LedgerClock
    target: Target
    trust: Trust
    vault: Vault
    files: Files
    origin: str  # the log's name
    log_proof: Callable[[int], bytes]
    witness: Callable[[PublishedSnapshot], str]  # signs and logs a receipt, and returns its id
    seals: Seals | None = None


@contextlib.contextmanager
def check(number: int) -> Iterator[None]:
    """Add this check's number (`error.check`) to an error inside that has none. It works as a decorator too."""
    try:
        yield
    except PvdmError as error:
        error.details.setdefault("check", number)
        raise


@contextlib.contextmanager
def about(part: Part | PublishedAttempt) -> Iterator[None]:
    """Add the attempt's id to an error that is raised inside (`attempt_id`), if it has none."""
    try:
        yield
    except PvdmError as error:
        attempt_id = part.attempt.attempt_id if isinstance(part, Part) else part.attempt_id
        error.details.setdefault("attempt_id", attempt_id)
        raise


@contextlib.contextmanager
def translate_main_errors(*, except_codes: Collection[str] = ()) -> Iterator[None]:
    """Raise `table_in_doubt` for an error inside, unless in `except_codes`: the manifests of `main` are wrong."""
    try:
        yield
    except (InputError, VerificationError) as error:
        if error.code in except_codes:
            raise
        raise table_in_doubt(error) from error
