"""Helpers for attacks on the gate: proposals with changed proofs, and the gate's refusal."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from pvdm.errors import PvdmError, VerificationError
from pvdm.ledger.catalog import tables
from pvdm.ledger.work.attempts import Attempt
from pvdm.metadata.gate.gate import validate_then_commit
from pvdm.metadata.gate.proposal import LoggedEnvelope, Proposal, PublicationResult
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.proof import Proof
from pvdm.steward.record.recorder import Document
from pvdm.trust.envelope import sign_envelope
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.keys.public import SigningKey
from pvdm.trust.statement import read_unchecked
from tests.support.gate.protected_tables import House, Row
from tests.support.steward.logged import entry_of
from tools.proof_kit import fixed

BEFORE: Sequence[Row] = [(1, 1, "Ulm"), (2, 2, "Bonn")]
NEW: Sequence[Row] = [(3, 1, "Ulm"), (4, 3, "Bonn")]


def publish(house: House, *found: Attempt, name: str = "orders") -> PublicationResult:
    return validate_then_commit(house.proposal(*found), house.gate(name))


def refusal(house: House, call: Callable[[], object], kind: type[PvdmError] = VerificationError) -> PvdmError:
    """The error that the call must raise; no table may have changed."""
    before = [(row.name, row.pointer) for row in _rows(house)]
    with pytest.raises(kind) as caught:
        call()
    assert [(row.name, row.pointer) for row in _rows(house)] == before
    return caught.value


def _rows(house: House) -> list[tables.TableRow]:
    with house.notary.ledger.read() as unit:
        return tables.list_live(unit)


def code_and_check(error: PvdmError) -> tuple[str, int | None]:
    return error.reason, error.check


def logged(house: House, envelope: bytes, kind: StatementKind = StatementKind.PROOF) -> LoggedEnvelope:
    """Append these bytes to the log, which does not check them."""
    indexes: list[int] = []
    house.notary.recorder.record([Document(kind, fixed("any"), envelope)], lambda _, found: indexes.extend(found))
    entry = json.loads(entry_of(house.notary, indexes[0]))
    return LoggedEnvelope(kind, envelope, indexes[0], entry["time"])


def with_proof(proposal: Proposal, *proofs: LoggedEnvelope) -> Proposal:
    return replace(proposal, parts=(replace(proposal.parts[0], proofs=proofs),))


def signer(house: House) -> SigningKey:
    """The Steward's key that signs statements."""
    key: SigningKey = house.notary.keys.signer(KeyRole.SIGNING, house.notary.keys.epoch_for(None))
    return key


def resigned(house: House, proposal: Proposal, payload: bytes, by: SigningKey | None = None) -> Proposal:
    """The proposal with this payload as its proof, signed and logged."""
    return with_proof(proposal, logged(house, sign_envelope(payload, by or signer(house)).to_bytes()))


def proof_in(proposal: Proposal) -> Proof:
    return read_unchecked(proposal.parts[0].proofs[0].envelope, Proof)


# Changes of a proof's core, for `House.proved`.


def with_target(**changes: object) -> Callable[[ProofCore], ProofCore]:
    return lambda core: replace(core, target=replace(core.target, **changes))  # type: ignore[arg-type]


def with_attempt(**changes: object) -> Callable[[ProofCore], ProofCore]:
    return lambda core: replace(core, attempt=replace(core.attempt, **changes))  # type: ignore[arg-type]


def with_method(**changes: object) -> Callable[[ProofCore], ProofCore]:
    return lambda core: replace(core, method=replace(core.method, **changes))  # type: ignore[arg-type]
