"""Claims of the lost time, read again from what the proofs and the signed contracts say."""

from __future__ import annotations

from collections.abc import Iterable

from pvdm.errors import PvdmError
from pvdm.lake.format.schema.logical import to_model
from pvdm.ledger.catalog import tables
from pvdm.ledger.record import protections
from pvdm.model.contract import BoundContract, DataProductContract, parse_contract
from pvdm.model.filter.claim import Claim
from pvdm.model.schema import Schema
from pvdm.model.statements.core import Operation, ProofCore
from pvdm.model.statements.migration import Migration, Protection, contract_sha256
from pvdm.steward.notary import Notary
from pvdm.steward.restore.pointers import Pointers
from pvdm.steward.restore.refill_check import Found
from pvdm.trust.log.entry import EntryKind
from pvdm.trust.statement import read_signed
from pvdm.verify.claim_columns import with_source_column, with_target_column
from pvdm.verify.planning import claim_of
from pvdm.verify.source import pinned_schema


def took_rows(cores: Iterable[ProofCore | None]) -> bool:
    """Whether the publication may have been an append of rows: one whose proof is lost may have been."""
    return any(core is None or (core.target.operation is Operation.APPEND and core.rows.staged != 0) for core in cores)


def derive_claims(notary: Notary, found: Iterable[Found], pointers: Pointers) -> dict[str, Claim]:
    """The claim of each append that its table shows, by the receipt; one that cannot be told for sure is left out.

    Where there is no receipt, it is by the proof.
    """
    contracts = _contracts(found)
    claims: dict[str, Claim] = {}
    for each in pointers.published:
        if each.receipt_id not in pointers.shown or not took_rows(each.cores.values()):
            continue
        core = next((core for core in each.cores.values() if core is not None), None)
        claim = _derive(notary, core, contracts, pointers.schemas.get(each.said.table.uuid))
        if claim is not None:
            claims[each.receipt_id] = claim
    for shown in pointers.unreceipted:
        claim = _derive(notary, shown.core, contracts, pointers.schemas.get(shown.table.uuid))
        if claim is not None and shown.certain and took_rows([shown.core]):
            claims[shown.proof_id] = claim
    return claims


def _derive(
    notary: Notary, core: ProofCore | None, contracts: dict[str, DataProductContract], target: Schema | None
) -> Claim | None:
    """What the workload's filter bounds, as it was derived when the workload was opened."""
    if core is None or target is None:
        return None
    try:
        bound = _bound(notary, core, contracts)
        if bound.contract.boundary.claim is None:
            return Claim.everything()
        source = _source(notary, bound, core)
        if source is None:
            return None
        claim = with_source_column(bound, claim_of(bound, source), core.sources[0].table.uuid, source)
        return with_target_column(bound, claim, target)
    except PvdmError:
        return None


def _bound(notary: Notary, core: ProofCore, contracts: dict[str, DataProductContract]) -> BoundContract:
    sha256 = core.attempt.contract_sha256
    contract = contracts.get(sha256)
    if contract is None:
        with notary.ledger.read() as unit:
            contract = parse_contract(protections.contract(unit, sha256))
    return contract.bind({name: value for name, value in core.attempt.parameters if value is not None})


def _source(notary: Notary, bound: BoundContract, core: ProofCore) -> Schema | None:
    """The columns of the pinned source, or those that it has now where the snapshot is lost with the source's document.

    Columns that were changed in between make claims that cannot be compared, and these are taken to overlap.
    """
    pinned = core.sources[0]
    if bound.contract.boundary.source.table is None or notary.served is None:
        return None
    with notary.ledger.read() as unit:
        row = tables.find_by_uuid(unit, pinned.table.uuid)
    if row is None:
        return None
    metadata = notary.served.states.of(row).metadata
    if metadata.snapshot(pinned.snapshot_id) is None:
        return to_model(metadata.current_schema)
    return pinned_schema(pinned.table, metadata, pinned.snapshot_id)


def _contracts(found: Iterable[Found]) -> dict[str, DataProductContract]:
    """The contracts that came into force in the lost time, by their hashes."""
    texts: list[str | None] = []
    for each in found:
        if each.envelope is None:
            continue
        if each.entry.kind is EntryKind.PROTECTION:
            texts.append(read_signed(each.envelope, Protection).contract)
        elif each.entry.kind is EntryKind.MIGRATION:
            texts.append(read_signed(each.envelope, Migration).contract)
    return {contract_sha256(text): parse_contract(text.encode()) for text in texts if text is not None}
