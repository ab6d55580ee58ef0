"""Gate checks 5 and 7 to 9: the proof is about this table and attempt, as the base of the swap shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pvdm.digest.plan import fingerprint
from pvdm.errors import VerificationError
from pvdm.lake.format.manifest.entry import FileContent, ManifestContent
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN, Snapshot
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.read.entries import FileReader, branch_changes, listed_manifests, read_listed
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.workloads import Workload
from pvdm.metadata.gate.context import of_main
from pvdm.metadata.gate.proposal import Part
from pvdm.model.contract import BoundContract
from pvdm.model.projection import ProjectionName
from pvdm.model.statements.core import Operation, ProofCore
from pvdm.model.statements.files import AddedFile
from pvdm.model.statements.proof import Storage
from pvdm.model.statements.table import TableRef
from pvdm.trust.expectation import require_same
from pvdm.trust.refusal import refused, refusing
from pvdm.trust.verify import VerifiedProof
from pvdm.verify.staged import boundary_files

FORMATS: Final = (2, 3)
# What `main` and the contract are to one another; everything else is that main's manifests cannot be read.
_OF_THE_BOUNDARY: Final = frozenset({"boundary_unclear", "partition_unknown"})


def check_5_target(
    proof: VerifiedProof, table: TableRef, row: TableRow, workload: Workload, attempt: Attempt, bound: BoundContract
) -> None:
    """This catalog, table, branch, partition and operation, under the contract that the table is protected under."""
    core, contract = proof.core, bound.contract
    said, target = core.attempt, core.target
    for code, what, expected, got in (
        ("proof_wrong_catalog", "catalog", table.catalog, target.table.catalog),
        ("proof_wrong_table", "table", row.table_uuid, target.table.uuid),
        ("proof_wrong_branch", "branch", MAIN, target.branch),
        ("proof_wrong_contract", "contract", row.contract_hash, said.contract_sha256),
        ("proof_wrong_contract", "contract", workload.opening.contract_hash, said.contract_sha256),
        ("proof_wrong_contract", "contract", contract.sha256, said.contract_sha256),
        ("proof_wrong_parameters", "set of parameters", bound.parameters, said.parameters),
        ("proof_wrong_operation", "operation", contract.boundary.operation, target.operation),
        ("proof_wrong_partition", "partition", bound.partition, target.partition),
        ("proof_wrong_method", "profile", contract.profile, core.method.profile),
        ("proof_wrong_method", "extraction", contract.extraction, core.method.extraction),
        ("proof_wrong_workload", "workload", workload.opening.workload_id, said.workload_id),
        ("proof_wrong_plan", "chunk plan", workload.plan_hash, said.plan_sha256),
        ("proof_wrong_chunk", "chunk", attempt.chunk_id, said.chunk_id),
        ("proof_wrong_attempt", "attempt", attempt.attempt_id, said.attempt_id),
        ("proof_wrong_attempt", "attempt", attempt.number, said.number),
    ):
        require_same(code, what, expected, got)
    require_projections(core, bound)
    require_storage(proof, contract.storage)


def require_projections(core: ProofCore, bound: BoundContract) -> None:
    """The contract's keys, and content without its declared exclusions and no others: nobody narrows a projection."""
    declared = bound.contract.projections
    found = {each.projection.name: each.projection for each in core.projections}
    identity, content = found.get(ProjectionName.IDENTITY), found.get(ProjectionName.CONTENT)
    keys = None if identity is None else tuple(sorted(identity.columns))
    excluded = None if content is None else tuple(sorted((gone.column, gone.reason) for gone in content.excluded))
    require_same("proof_wrong_projection", "identity projection", declared.identity, keys)
    require_same("proof_wrong_projection", "content projection", declared.excluded, excluded)


def require_storage(proof: VerifiedProof, declared: Storage) -> None:
    """As the contract has it; a copy of the Steward's own is good for any contract."""
    for each in proof.statements:
        if each.predicate.notary.storage not in (declared, Storage.COPIED):
            got = each.predicate.notary.storage.value
            raise refused("proof_wrong_storage", "the proof is for another storage", declared.value, got)


def check_7_structure(core: ProofCore, metadata: TableMetadata) -> None:
    """Schema, partition spec and format version are those that the rows were verified for."""
    if metadata.format_version not in FORMATS:
        raise refused(
            "format_not_published",
            "tables of this format version are not published to",
            " or ".join(str(each) for each in FORMATS),
            metadata.format_version,
            "migrate the table to format 2 first",
        )
    schema = to_model(metadata.current_schema)
    require_same("proof_wrong_schema", "schema", fingerprint(schema).hex(), core.target.schema_fingerprint)
    require_same("proof_wrong_projection", "set of content columns", set(schema.names), _content(core))
    require_same("proof_wrong_spec", "partition spec", metadata.default_spec_id, core.target.spec_id)
    require_same("proof_wrong_format", "format version", metadata.format_version, core.target.format_version)


def _content(core: ProofCore) -> set[str]:
    """The columns that content covers or leaves out with a reason."""
    content = next(
        (each.projection for each in core.projections if each.projection.name is ProjectionName.CONTENT), None
    )
    return set() if content is None else {*content.columns, *(gone.column for gone in content.excluded)}


def check_8_branch(core: ProofCore, attempt: Attempt, metadata: TableMetadata) -> None:
    """The attempt's branch shows exactly the verified snapshot, which descends from the bound base; so does `main`."""
    staged, base_id = core.staged, core.target.base_snapshot_id
    require_same("proof_wrong_staging", "staging branch", attempt.branch, staged.branch)
    recorded = None if attempt.staged_snapshot_id is None else int(attempt.staged_snapshot_id)
    require_same("proof_wrong_staged", "staged snapshot", recorded, staged.snapshot_id)
    ref = metadata.refs.get(staged.branch)
    head = None if ref is None else ref.snapshot_id
    shown = _ancestors(metadata, metadata.current_snapshot_id)
    # The Steward makes the branch from main's head: where nothing was staged it is still there, or not made at all.
    if head != staged.snapshot_id and not (staged.snapshot_id is None and head in shown):
        raise refused("branch_moved", "the branch is not at the snapshot that was verified", staged.snapshot_id, head)
    if base_id is not None and base_id not in shown:
        raise refused("base_left_main", "main does not show the bound base any more", base_id, "another history")
    if staged.snapshot_id is not None and base_id not in (None, *_ancestors(metadata, staged.snapshot_id)):
        raise refused("proof_wrong_base", "the branch does not descend from the bound base", base_id, head)


def check_9_files(part: Part, core: ProofCore, metadata: TableMetadata, reader: FileReader, vault: Location) -> None:
    """The branch adds and removes exactly the bound files, and the verified manifest lists exactly them."""
    with refusing():
        require_entries(core, metadata, reader)
    require_verified(part, core)
    for file in core.files.added:
        require_home(file, part.attempt, vault)


def check_9_copies(proof: VerifiedProof, vault: Location) -> None:
    """Where a notary says that the Steward's own files are published, none of the producer's is among them."""
    if all(each.predicate.notary.storage is not Storage.COPIED for each in proof.statements):
        return
    for file in proof.core.files.added:
        if not parse_location(file.published_path).is_under(vault):
            raise refused(
                "published_path_outside",
                "a producer's own file would be published where the proof says that the Steward's are",
                f"a file below {vault}",
                file.published_path,
            )


def require_entries(core: ProofCore, metadata: TableMetadata, reader: FileReader) -> None:
    """What the branch's own snapshots did, read from their manifests."""
    head = None if core.staged.snapshot_id is None else metadata.snapshot(core.staged.snapshot_id)
    added: set[str] = set()
    removed: set[str] = set()
    if head is not None:
        _, changes = branch_changes(metadata, head, core.target.base_snapshot_id, reader)
        # Those that it takes away belonged to files that it replaces; which of them go is the Steward's to say.
        new = [entry.data_file.file_path for entry in changes.deletes if entry.is_live]
        if new:
            raise refused("staged_deletes", "the branch adds delete files", "data files only", new[0])
        added = {entry.data_file.file_path for entry in changes.added}
        removed = {entry.data_file.file_path for entry in changes.removed}
    _require_set("proof_wrong_files", "added", {file.staged_path for file in core.files.added}, added)
    _require_set("proof_wrong_removals", "removed", set(core.files.removed), removed)


def require_verified(part: Part, core: ProofCore) -> None:
    """The manifest that verification wrote for this core: its files are what gets published, to the last row."""
    listed = {file.file_path: file for file in part.files}
    bound = {file.published_path: file.published_size_bytes for file in core.files.added}
    sizes = {path: file.file_size_in_bytes for path, file in listed.items()}
    if len(listed) != len(part.files) or sizes != bound:
        raise refused(
            "proof_wrong_files",
            "the verified manifest lists other files than the proof binds",
            f"{len(bound)} bound files",
            f"{len(part.files)} listed ones, of other paths or sizes",
        )
    if any(file.content is not FileContent.DATA for file in part.files):
        raise refused("staged_deletes", "the verified manifest lists a delete file", "data files", "others")
    rows = sum(file.record_count for file in part.files)
    require_same("proof_wrong_rows", "number of rows", rows, core.rows.staged)


def require_home(file: AddedFile, attempt: Attempt, vault: Location) -> None:
    """What is published lies in the attempt's own place, or is the Steward's copy for it; no link leads elsewhere."""
    place = parse_location(file.published_path)
    home = vault.child(attempt.attempt_id) if place.is_under(vault) else parse_location(attempt.prefix)
    link = place.link_below(home)
    if not place.is_under(home) or place == home or link is not None:
        raise refused(
            "published_path_outside",
            "a file to be published lies where it should not",
            f"a file below {home}",
            str(place if link is None else link),
        )


def check_9_boundary(part: Part, core: ProofCore, metadata: TableMetadata, reader: FileReader) -> None:
    """What is removed is exactly what the boundary holds now, with no delete that the verification did not see."""
    head, target = metadata.current_snapshot, core.target
    moved = metadata.current_snapshot_id != target.base_snapshot_id
    if target.operation is Operation.APPEND:
        _require_set("proof_wrong_removals", "removed", set(), set(core.files.removed))
        return
    with refusing(), of_main(but=_OF_THE_BOUNDARY):
        live = boundary_files(
            metadata, metadata.current_snapshot_id, target.operation, target.partition, part.files, reader
        )
    if moved and live != set(core.files.removed):
        raise refused(
            "boundary_moved",
            "main has changed in the part that is overwritten",
            f"{len(core.files.removed)} files, as they were verified",
            f"{len(live)} files",
            "nothing was published; it is verified again",
        )
    _require_set("proof_wrong_removals", "removed", set(live), set(core.files.removed))
    if moved and core.files.removed and head is not None:
        base = None if target.base_snapshot_id is None else metadata.snapshot(target.base_snapshot_id)
        _require_no_newer_deletes(metadata, head, 0 if base is None else base.sequence_number, reader)


def _require_no_newer_deletes(metadata: TableMetadata, head: Snapshot, since: int, reader: FileReader) -> None:
    with of_main():
        newer = next(_deletes_since(metadata, head, since, reader), None)
    if newer is not None:
        raise refused(
            "deletes_newer",
            "rows were deleted on main after the verification",
            f"no delete file after sequence number {since}",
            newer,
            "nothing was published; it is verified again",
        )


def _deletes_since(metadata: TableMetadata, head: Snapshot, since: int, reader: FileReader) -> Iterator[str]:
    for listed in listed_manifests(metadata, head, reader):
        if listed.content is not ManifestContent.DELETES or (listed.sequence_number or 0) <= since:
            continue
        for entry in read_listed(metadata, listed, reader).entries:
            if entry.is_live and (entry.sequence_number or 0) > since:
                yield entry.data_file.file_path


def check_9_apart(cores: Sequence[ProofCore]) -> None:
    """No file is published twice by one publication, under whatever names."""
    seen: set[str] = set()
    for core in cores:
        for file in core.files.added:
            path = str(parse_location(file.published_path))
            if path in seen:
                raise VerificationError(
                    "file_listed_twice", "one file would be published twice", expected="each file once", got=path
                )
            seen.add(path)


def _ancestors(metadata: TableMetadata, snapshot_id: int | None) -> set[int]:
    return set() if snapshot_id is None else {each.snapshot_id for each in metadata.ancestry(snapshot_id)}


def _require_set(code: str, what: str, expected: set[str], got: set[str]) -> None:
    if expected != got:
        other = min(expected ^ got)
        raise refused(
            code, f"the files {what} are not the bound ones", f"{len(expected)} files", f"{len(got)}, such as {other}"
        )
