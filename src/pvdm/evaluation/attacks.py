"""The demo's attacks: swap staged bytes, replay proofs, make unsigned overrides."""

from __future__ import annotations

import io
import time
from decimal import Decimal
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from pvdm.api.work import AttemptView
from pvdm.catalog.target import CatalogTarget
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.store import WriteHooks, read
from pvdm.lake.stores.stores import Stores
from pvdm.lake.vault import Vault
from pvdm.ledger import Unit
from pvdm.ledger.record import proofs, statements
from pvdm.ledger.work import attempts, chunks, verified, workloads
from pvdm.metadata.gate.context import Gate
from pvdm.metadata.gate.proposal import LoggedEnvelope, Part, Proposal, PublicationResult, PublishedSnapshot
from pvdm.model.filter.claim import Claim
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.proof import Proof, WorkloadStatement
from pvdm.steward.access import STEWARD_GRANT
from pvdm.steward.embedded.embedded import EmbeddedSteward
from pvdm.steward.notary import Notary
from pvdm.steward.pipeline.proposals import read_verified, to_logged_envelope
from pvdm.steward.work.opened import bound_contract
from pvdm.trust.approval import override_of, signer_fields
from pvdm.trust.envelope import STATEMENT_TYPE, Envelope
from pvdm.trust.statement import payload_of, read_unchecked
from pvdm.verify.fetch import Files

_ADDED_AMOUNT: Final = Decimal("1000.00")
_FILE_BYTES: Final = 1 << 30  # more than any file of the demo has
_HOUR_MICROS: Final = 3_600_000_000


def swap_bytes(attempt: AttemptView, stores: Stores) -> None:
    """Replace the attempt's verified file by a valid Parquet file in which one amount is higher."""
    location = _first_parquet_file(parse_location(attempt.prefix), stores)
    table = pq.ParquetFile(io.BytesIO(read(stores.for_reading(location), location, _FILE_BYTES))).read()
    index = table.schema.get_field_index("amount")
    amounts: list[Any] = table.column(index).to_pylist()
    amounts[0] += _ADDED_AMOUNT
    sink = pa.BufferOutputStream()
    pq.write_table(table.set_column(index, table.schema.field(index), pa.array(amounts, pa.decimal128(12, 2))), sink)
    stores.for_writing(parse_location(attempt.prefix)).put(location, sink.getvalue().to_pybytes(), WriteHooks())


def _first_parquet_file(folder: Location, stores: Stores) -> Location:
    if folder.scheme != "file":
        locations = [each.place for each in stores.object_store(folder).walk(folder)]
    else:
        locations = [parse_location(str(path)) for path in folder.local.rglob("*.parquet")]
    return next(each for each in locations if each.parts[-1].endswith(".parquet"))


def replay(steward: EmbeddedSteward, workload_id: str, table_uuid: str) -> PublicationResult:
    """Submit the proofs of a published workload to the gate again, for another table.

    No route of the Steward accepts a proof, so this runs in its process, with the ledger's records of the proofs.
    """
    import pvdm

    notary = steward.notary
    config = notary.config.catalog
    stores = Stores(notary.config.s3)
    vault = Vault(config.vault, stores)
    gate = Gate(
        notary.ledger,
        notary.clock,
        CatalogTarget(notary.ledger, notary.catalog, table_uuid, STEWARD_GRANT),
        notary.trust,
        vault,
        Files(stores),
        notary.config.origin,
        notary.log.proof,
        _refuse_receipt,
    )
    return pvdm.validate_then_commit(_rebuild_proposal(notary, vault, workload_id), gate)


def make_unsigned_override(steward: EmbeddedSteward, fail_proof_id: str) -> bytes:
    """A correct break-glass statement in an envelope without signatures."""
    core = read_unchecked(steward.proof_envelope(fail_proof_id), Proof).core
    now = time.time_ns() // 1_000
    signer = signer_fields("tom", "the month has to be closed", now=now, lifetime_micros=_HOUR_MICROS)
    return Envelope(STATEMENT_TYPE, payload_of(override_of(fail_proof_id, core, signer)), ()).to_bytes()


def _rebuild_proposal(notary: Notary, vault: Vault, workload_id: str) -> Proposal:
    """The proposal by which the workload was published."""
    with notary.ledger.read() as unit:
        workload = workloads.get(unit, workload_id)
        bound = bound_contract(unit, workload)
        chunk_ids = [chunk.chunk_id for chunk in chunks.list_by_workload(unit, workload_id)]
        parts = tuple(_rebuild_part(unit, vault, workload_id, chunk_id) for chunk_id in chunk_ids)
        statement = _find_workload_statement(unit, workload_id)
    return Proposal(workload, bound, frozenset(chunk_ids), parts, statement, Claim.everything())


def _rebuild_part(unit: Unit, vault: Vault, workload_id: str, chunk_id: str) -> Part:
    attempt = attempts.list_by_chunk(unit, workload_id, chunk_id)[-1]
    attempt_proofs = proofs.list_by_attempt(unit, attempt.attempt_id)
    record = verified.get(unit, attempt_proofs[-1].nonce)
    envelopes = tuple(to_logged_envelope(statements.get(unit, each.proof_id)) for each in attempt_proofs)
    return Part(attempt, record.nonce, record.core_sha256, envelopes, read_verified(vault, record))


def _find_workload_statement(unit: Unit, workload_id: str) -> LoggedEnvelope:
    for statement_id in statements.list_ids_by_kind(unit, StatementKind.WORKLOAD):
        found = statements.get(unit, statement_id)
        if read_unchecked(found.envelope, WorkloadStatement).workload_id == workload_id:
            return to_logged_envelope(found)
    raise AssertionError("the workload's chunks were published together, but it has no statement")


def _refuse_receipt(published: PublishedSnapshot) -> NoReturn:
    raise AssertionError(f"the replayed proof was published as snapshot {published.new_snapshot_id}")
