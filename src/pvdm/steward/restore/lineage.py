"""Publications that the backup lacks, in the order of their snapshots.

A late receipt is logged after younger ones, so the log's order is not that of the snapshots.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pvdm.errors import Code, InputError, PvdmError, VerificationError
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.record import statements
from pvdm.metadata.gate.state import state_changes, state_of
from pvdm.model.printable import counted, list_first
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.migration import Migration, Protection, ProtectionAction, TableState, TableTarget
from pvdm.model.statements.proof import Proof
from pvdm.model.statements.receipt import Receipt
from pvdm.steward.restore.refill_check import ArchivedEntry, statements_of
from pvdm.trust.statement import read_signed


@dataclass(frozen=True, slots=True)
class Publication:
    """A receipt that the backup lacks, and the cores of its proofs; None for a lost proof.

    `proved` is the log index of its last proof, -1 where the backup has it, and `index` that of the receipt. The
    publication came between the two.
    """

    index: int
    receipt_id: str
    said: Receipt
    cores: Mapping[str, ProofCore | None]
    proved: int

    @property
    def paths(self) -> set[str]:
        """The data files that it added, as far as its proofs are known."""
        cores = [core for core in self.cores.values() if core is not None]
        return {file.published_path for core in cores for file in core.files.added}


@dataclass(frozen=True, slots=True)
class LostPublication:
    """A publication that its table does not show after the restore; `chunk_ids` are to be published again.

    `file` is the first missing or changed file; None where no file is the reason.
    """

    table: str
    table_uuid: str
    snapshot_id: str
    workload_id: str
    chunk_ids: tuple[str, ...]
    receipt_id: str
    metadata_path: str
    code: str
    why: str
    file: str | None = None


@dataclass(frozen=True, slots=True)
class UnprotectedTimes:
    """The snapshots of `main` at which protections of the table began, and at which they ended."""

    begun: frozenset[int] = frozenset()
    ended: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Lineage:
    """The snapshots from the backup to a publication, as far as receipts and metadata tell.

    `receipted` have a receipt from after the backup; `gaps` have none and came while the table was protected. `closed`:
    it is complete. `free`: it includes a time in which the table was not protected.
    """

    reached: frozenset[int]
    receipted: frozenset[int]
    gaps: tuple[int, ...]
    closed: bool
    free: bool


def trace(
    newest: Publication,
    published: Sequence[Publication],
    metadata: TableMetadata,
    times: UnprotectedTimes,
    is_known: Callable[[int], bool],
) -> Lineage:
    """Walk back from this publication to a snapshot of the backup, by receipts, else by the metadata."""
    parents = {each.said.new_snapshot_id: each.said.old_snapshot_id for each in published}
    reached: set[int] = set()
    gaps: list[int] = []
    free = was_free = False
    at: int | None = newest.said.new_snapshot_id
    while at is not None and at not in reached:
        reached.add(at)
        if is_known(at):
            return Lineage(frozenset(reached), frozenset(parents), tuple(gaps), closed=True, free=was_free)
        if at in parents:
            free = False
            at = parents[at]
            continue
        free = at in times.begun or (free and at not in times.ended)
        was_free = was_free or free
        if not free:
            gaps.append(at)
        snapshot = metadata.snapshot(at)
        if snapshot is None:
            return Lineage(frozenset(reached), frozenset(parents), tuple(gaps), closed=False, free=was_free)
        at = snapshot.parent_id
    return Lineage(frozenset(reached), frozenset(parents), tuple(gaps), closed=at is None, free=was_free)


def publications_by_table(ledger: Ledger, found: Sequence[ArchivedEntry]) -> dict[str, list[Publication]]:
    """The publications that the backup lacks, by table, oldest first."""
    places = {each.statement_id(): each for each, _ in statements_of(found, Proof)}
    by_table: dict[str, list[Publication]] = {}
    with ledger.read() as unit:
        for each, said in statements_of(found, Receipt):
            cores = {proof_id: _core(unit, places.get(proof_id), proof_id) for proof_id in said.proof_ids}
            proved = max(places[proof_id].index if proof_id in places else -1 for proof_id in said.proof_ids)
            made = Publication(each.index, each.statement_id(), said, cores, proved)
            by_table.setdefault(said.table.uuid, []).append(made)
    return {uuid: _sort_publications(of_table) for uuid, of_table in by_table.items()}


def migrations_by_table(found: Sequence[ArchivedEntry]) -> dict[str, list[tuple[int, str, Migration]]]:
    """The migrations that the backup lacks, by table, in the order of the log."""
    by_table: dict[str, list[tuple[int, str, Migration]]] = {}
    for each, said in statements_of(found, Migration):
        by_table.setdefault(said.table.uuid, []).append((each.index, each.statement_id(), said))
    return by_table


def unprotected_times(found: Sequence[ArchivedEntry]) -> dict[str, UnprotectedTimes]:
    """The beginnings and ends of protections after the backup, by table."""
    begun: dict[str, set[int]] = {}
    ended: dict[str, set[int]] = {}
    for _, said in statements_of(found, Protection):
        if isinstance(said.target, TableTarget) and said.target.snapshot_id is not None:
            # Read backwards, the unprotected time begins at the start of a protection.
            of = begun if said.action is ProtectionAction.PROTECT else ended
            of.setdefault(said.target.table.uuid, set()).add(said.target.snapshot_id)
    return {
        uuid: UnprotectedTimes(frozenset(begun.get(uuid, ())), frozenset(ended.get(uuid, ())))
        for uuid in begun.keys() | ended.keys()
    }


def describe_lost(each: Publication, error: PvdmError) -> LostPublication:
    """The report about a lost publication."""
    said = each.said
    chunk_ids = {core.attempt.chunk_id for core in each.cores.values() if core is not None}
    file = error.details.get("file")
    return LostPublication(
        said.table.name,
        said.table.uuid,
        str(said.new_snapshot_id),
        said.workload_id,
        tuple(sorted(chunk_ids)),
        each.receipt_id,
        said.metadata_path,
        error.reason,
        error.message,
        None if file is None else str(file),
    )


def passed_over_error(said: Receipt, newest: Receipt) -> VerificationError:
    """The error for a publication that the newest one was not made on."""
    return VerificationError(
        "restore_publication_passed_over",
        "the newest publication that can be shown was not made on it, so it shows nothing of it",
        expected=f"snapshot {said.new_snapshot_id} among those that led to {newest.new_snapshot_id}",
        got="another history",
    )


def namespace_missing_error(namespace: str) -> InputError:
    """The error for a publication whose namespace the backup lacks."""
    return InputError(
        Code.NAMESPACE_UNKNOWN,
        f"the namespace {namespace} was made after the backup; make it again after the restore, then register the"
        " document as an operator, or make the table again and publish",
        expected="a namespace of the backup",
        got=namespace,
    )


def publications_lost_error(lost: Sequence[LostPublication]) -> VerificationError:
    """The error of a restore that cannot show every publication, with a hint for each kind of reason."""
    named = [f"{each.table} snapshot {each.snapshot_id} of {each.workload_id} ({_reason(each)})" for each in lost]
    ways = []
    if any(each.code != Code.NAMESPACE_UNKNOWN for each in lost):
        ways.append("bring metadata, vault and warehouse back, or go on with --accept-lost, and publish them again")
    if any(each.code == Code.NAMESPACE_UNKNOWN for each in lost):
        ways.append(
            "namespace_unknown: the namespace was made after the backup, and no file brings it back; go on with"
            " --accept-lost, make the namespace, then register the table's document as an operator, or publish again"
        )
    return VerificationError(
        "restore_publications_lost",
        f"{counted(len(named), 'publication')} with a receipt cannot be shown again",
        expected="their namespaces, documents, manifests and data files, as they were published",
        got=list_first(named),
        hint="; ".join(["nothing was changed", *ways]),
        lost=len(named),
    )


def _reason(each: LostPublication) -> str:
    return each.code if each.file is None else f"{each.code}: {each.file}"


def unclear_error(said: Receipt) -> VerificationError:
    """The error for a publication that may or may not be shown."""
    return VerificationError(
        "restore_publication_unclear",
        "whether the table shows its rows is unknown; its workload id stays used up, and claims on the table are"
        " blocked until an operator has compared it with its source",
        expected=f"snapshot {said.new_snapshot_id} in the history of main, or its files",
        got="a history with a gap, and none of its files",
    )


def count_contained(
    metadata: TableMetadata, newest: Publication | None, migrations: Sequence[tuple[int, str, Migration]]
) -> int:
    """How many of the migrations the publication's metadata contains.

    It contains those before its last proof and none after its receipt. For those in between, the signed target states
    are compared with the metadata, since a receipt may be late.
    """
    if newest is None:
        return 0
    contained = sum(index < newest.proved for index, _, _ in migrations)
    for at, (index, _, said) in enumerate(migrations):
        if newest.proved <= index < newest.index and _has_state(said.after, metadata):
            contained = at + 1
    return contained


def _has_state(state: TableState, metadata: TableMetadata) -> bool:
    return not state_changes(state, state_of(metadata, state.contract_sha256))


def _sort_publications(published: Collection[Publication]) -> list[Publication]:
    """Each publication after its parent; where no receipt names the parent, by time."""
    by_snapshot = {each.said.new_snapshot_id: each for each in published}
    children: dict[int, list[Publication]] = {}
    ready: list[tuple[int, int, Publication]] = []
    for each in published:
        old = each.said.old_snapshot_id
        if old in by_snapshot:
            children.setdefault(old, []).append(each)
        else:
            heapq.heappush(ready, _sort_key(each))
    ordered: list[Publication] = []
    while ready:
        *_, each = heapq.heappop(ready)
        ordered.append(each)
        for child in children.pop(each.said.new_snapshot_id, ()):
            heapq.heappush(ready, _sort_key(child))
    # No Steward makes receipts that form a circle; they come last, and their metadata refuses them.
    return ordered + sorted((each for of in children.values() for each in of), key=lambda each: each.index)


def _sort_key(each: Publication) -> tuple[int, int, Publication]:
    return each.said.published_at, each.index, each


def _core(unit: Unit, found: ArchivedEntry | None, proof_id: str) -> ProofCore | None:
    if found is not None and found.envelope is not None:
        return read_signed(found.envelope, Proof).core
    return stored_core(unit, proof_id)


def stored_core(unit: Unit, proof_id: str) -> ProofCore | None:
    """The core of a proof in the ledger."""
    held = statements.find(unit, proof_id)
    return None if held is None else read_signed(held.envelope, Proof).core
