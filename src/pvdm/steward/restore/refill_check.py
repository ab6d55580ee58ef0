"""Verifies archived statements before a restore uses them, by the trust root in force at their time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pvdm.errors import Code, PvdmError, VerificationError
from pvdm.model.canonical_json import INTEGER_MAX
from pvdm.model.statements.attestation import SourceAttestation
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.epoch import EpochStage, EpochStatement, RestoreStatement
from pvdm.model.statements.migration import Migration, Protection
from pvdm.model.statements.proof import Proof, WorkloadStatement
from pvdm.model.statements.receipt import Receipt
from pvdm.steward.notary import Notary
from pvdm.trust.envelope import ROOT_SIGNATURES_MAX, TRUST_ROOT_TYPE, parse_envelope, require_signature
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.log.entry import EntryKind, LogEntry
from pvdm.trust.root import RootKey, RootRole, TrustRoot, advance_root, pin_root
from pvdm.trust.statement import read_signed, read_statement
from pvdm.trust.verify import require_key_epoch, require_signer_name, verify_statement

KINDS: Final[Mapping[EntryKind, type[Any]]] = {
    EntryKind.PROOF: Proof,
    EntryKind.RECEIPT: Receipt,
    EntryKind.WORKLOAD: WorkloadStatement,
    EntryKind.EPOCH: EpochStatement,
    EntryKind.RESTORE: RestoreStatement,
    EntryKind.BREAK_GLASS: BreakGlass,
    EntryKind.MIGRATION: Migration,
    EntryKind.PROTECTION: Protection,
    EntryKind.SOURCE_ATTESTATION: SourceAttestation,
}
S = TypeVar("S", bound=Any)
_OWN: Final = (Proof, Receipt, WorkloadStatement, EpochStatement, RestoreStatement)


@dataclass(frozen=True, slots=True)
class ArchivedEntry:
    """A log entry of the archive that the backup lacks; `envelope` is None where the archive has lost it."""

    index: int
    entry: LogEntry
    envelope: bytes | None

    def statement_id(self) -> str:
        """The id under which the ledger stores the envelope."""
        envelope = self.envelope or b""
        if self.entry.kind is EntryKind.TRUST_ROOT:
            kind = {"payload_type": TRUST_ROOT_TYPE, "signatures_max": ROOT_SIGNATURES_MAX}
            return parse_envelope(envelope, **kind).payload_sha256  # type: ignore[arg-type]
        return parse_envelope(envelope).payload_sha256


def statements_of(found: Sequence[ArchivedEntry], kind: type[S]) -> Iterator[tuple[ArchivedEntry, S]]:
    """The statements of one kind whose envelopes are in the archive, in the order of the log."""
    for each in found:
        if each.envelope is not None and KINDS.get(each.entry.kind) is kind:
            yield each, read_signed(each.envelope, kind)


@dataclass(frozen=True, slots=True)
class _Signers:
    """Keys that may have signed: the notary's own by id, and those of trust roots by their log index."""

    notary: str
    own: Mapping[str, RootKey]
    revoked: frozenset[str]
    roots: Sequence[tuple[int, TrustRoot]]

    def roots_for(self, each: ArchivedEntry, kind: type[Any]) -> list[TrustRoot]:
        """The root in force then; a statement about the Steward itself may precede the root that names its keys."""
        in_force = [root for index, root in self.roots if index < each.index][-1:]
        if kind in (EpochStatement, RestoreStatement):
            in_force += [root for index, root in self.roots if index > each.index]
        return in_force


def require_statements(notary: Notary, found: Sequence[ArchivedEntry], *, covered: int) -> None:
    """Verify every envelope; beyond the outside checkpoint a key of a REVOKED epoch does not count."""
    signers = _signers(notary, found)
    for each in found:
        if each.envelope is None or each.entry.kind is EntryKind.TRUST_ROOT:
            continue
        try:
            _verify(signers, each, each.envelope, covered)
        except PvdmError as error:
            raise _invalid_error(each, error) from None


def _signers(notary: Notary, found: Sequence[ArchivedEntry]) -> _Signers:
    own: dict[str, RootKey] = {}
    revoked = set()
    for epoch in notary.keys.book().epochs:
        public = epoch.key(KeyRole.SIGNING).public
        if public is not None:
            name = notary.config.notary
            own[public.key_id] = RootKey(public, name, (RootRole.NOTARY,), (epoch.number,), 0, INTEGER_MAX)
            if epoch.state is EpochStage.REVOKED:
                revoked.add(public.key_id)
    return _Signers(notary.config.notary, own, frozenset(revoked), _roots(notary, found))


def _roots(notary: Notary, found: Sequence[ArchivedEntry]) -> list[tuple[int, TrustRoot]]:
    """The trust roots after the backup's, each verified at the time of its log entry."""
    current = notary.trust.find()
    chain = [] if current is None else [(-1, current)]
    for each in found:
        if each.envelope is None or each.entry.kind is not EntryKind.TRUST_ROOT:
            continue
        try:
            if chain:
                root = advance_root(chain[-1][1], each.envelope, now=each.entry.time)
            else:
                pin = notary.config.trust_root_sha256 or each.statement_id()
                root = pin_root(each.envelope, sha256=pin, now=each.entry.time)
        except PvdmError as error:
            raise _invalid_error(each, error) from None
        chain.append((each.index, root))
    return chain


def _verify(signers: _Signers, each: ArchivedEntry, envelope: bytes, covered: int) -> None:
    kind = KINDS[each.entry.kind]
    key_id = parse_envelope(envelope).signature.key_id
    own = signers.own.get(key_id) if kind in _OWN else None
    if own is not None and not (each.index >= covered and key_id in signers.revoked):
        _verify_own(own, envelope, kind)
        return
    refusal: PvdmError | None = None
    for root in signers.roots_for(each, kind):
        try:
            said = verify_statement(envelope, root, kind, now=each.entry.time)
        except PvdmError as error:
            refusal = error
            continue
        if kind in _OWN and said.key.identity != signers.notary:
            break
        return
    raise refusal or VerificationError(Code.KEY_UNKNOWN, "no known key has signed it", got=key_id)


def _verify_own(key: RootKey, data: bytes, kind: type[Any]) -> None:
    """Verify by a key of the notary's epoch book, which a trust root need not name yet."""
    envelope = parse_envelope(data)
    require_signature(key.public, envelope.signature.value, envelope.message)
    epoch: int | None
    match read_statement(envelope.payload, kind):
        case Proof(notary=said):
            signer, epoch = said.notary, said.epoch
        case Receipt() | WorkloadStatement() as signed:
            signer, epoch = signed.notary, signed.epoch
        case other:
            signer, epoch = other.notary, None
    require_signer_name(key, signer)
    require_key_epoch(key, epoch)


def _invalid_error(each: ArchivedEntry, error: PvdmError) -> VerificationError:
    return VerificationError(
        "restore_statement_invalid",
        f"entry {each.index} of the archive, a {each.entry.kind.value}, does not verify: {error.message}",
        expected=error.expected,
        got=error.got,
        hint="nothing was changed; keep archive and backup, and find out who wrote it",
        index=each.index,
        cause=error.reason,
    )
