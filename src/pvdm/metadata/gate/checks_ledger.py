"""Gate checks 10 to 12 and 14: the bytes, the log, the ledger inside the transaction, and what is shown after it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pvdm.errors import PvdmError, StateUnknownError, VerificationError
from pvdm.lake.file_context import in_file
from pvdm.lake.format.manifest.manifest_list import MANIFEST_LIST_MAX_BYTES
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.read.entries import FileReader
from pvdm.lake.stores.seal import Seals
from pvdm.ledger.unit import Unit
from pvdm.ledger.work import attempts, chunks, claims, nonces, target_sources, workloads
from pvdm.metadata.gate.order import OrderPart
from pvdm.metadata.gate.proposal import Logged, Shown
from pvdm.metadata.gate.target import Base
from pvdm.model.contract import Source
from pvdm.model.filter.claim import Claim
from pvdm.model.statements.core import Operation, ProofCore
from pvdm.model.statements.files import AddedFile
from pvdm.model.states import NonceState, WorkloadState
from pvdm.trust.expectation import require_nonce_unused
from pvdm.trust.log.entry import EntryKind, LogEntry
from pvdm.trust.log.proof_file import LogProofChecker
from pvdm.trust.refusal import refused
from pvdm.verify.fetch import Files

_COMPLETE: Final = "every chunk is published"


def check_10_bytes(added: Sequence[AddedFile], files: Files, *, threads: int) -> None:
    """The bytes to be published are still those that were verified, each read again to its end."""
    with ThreadPoolExecutor(threads) as pool:
        # In the order of the files, so that the first one that does not hold is the one that is named.
        for _ in pool.map(lambda each: _require_bytes(each, files), added):
            pass


def _require_bytes(file: AddedFile, files: Files) -> None:
    with in_file(file.published_path):
        seen = files.hash(file.published_path)
        if (seen.size, seen.sha256) != file.published_bytes:
            raise VerificationError(
                "published_bytes_changed",
                f"a file was changed after it was verified: {file.published_path}",
                expected=f"{file.published_size_bytes} bytes, SHA-256 {file.published_sha256}",
                got=f"{seen.size} bytes, SHA-256 {seen.sha256}",
                hint="nothing was published; with storage `copied` producers cannot reach what is published",
                file=file.published_path,
            )


def check_10_versions(added: Sequence[AddedFile], prefix: Location, seals: Seals | None) -> None:
    """The store refuses the producer, and shows the very versions that were frozen: their bytes cannot be others."""
    if seals is None:
        raise refused("seal_unknown", "a proof says that its files are sealed", "a store that can seal", "none")
    seals.close(prefix)
    shown = seals.versions(prefix)
    for file in added:
        found = shown.get(parse_location(file.published_path))
        if file.version is None or found != file.version:
            raise refused(
                "sealed_version_changed",
                "a sealed file is not the version that was verified",
                f"version {file.version} of {file.published_path}",
                f"version {found}",
                "nothing was published; somebody who is no producer wrote there",
            )


def check_11_logged(logged: Logged, proof_of: Callable[[int], bytes], checker: LogProofChecker) -> None:
    """The statement is in the log, under a checkpoint of the log that the trust root names."""
    leaf = LogEntry(EntryKind(logged.kind), hashlib.sha256(logged.envelope).hexdigest(), logged.at_micros)
    try:
        checker.require_included(leaf.to_bytes(), proof_of(logged.index))
    except PvdmError as error:
        if error.exit_code > 3:
            raise
        raise refused(
            "statement_not_logged", f"the {logged.kind.value} is not in the log", f"entry {logged.index}", error.code
        ) from None


def check_12_nonce(unit: Unit, core: ProofCore) -> None:
    """The nonce pays here and never again."""
    held = nonces.find(unit, core.attempt.nonce)
    require_nonce_unused(core, lambda _: held is None or held.state is not NonceState.RESERVED)


def check_12_once(unit: Unit, part: OrderPart, snapshot_id: str) -> None:
    """(workload, chunk) was not published before: then it is, and its nonce is used up."""
    attempts.publish(unit, part.attempt_id, nonce=part.nonce, snapshot_id=snapshot_id, extent=part.extent)


def check_12_override(unit: Unit, nonce: str, snapshot_id: str) -> None:
    """An override opens the glass once."""
    nonces.commit(unit, nonce, snapshot_id=snapshot_id)


def check_12_source(unit: Unit, workload_id: str, named: Source) -> None:
    """The workload's source is the one that the target published from, or the one that an operator approved."""
    opening = workloads.get(unit, workload_id).opening
    claims.lock(unit, opening.table_uuid)
    target_sources.require_same(unit, opening.table_uuid, named, opening.source)
    target_sources.note(unit, opening.table_uuid, named, opening.source, workload_id=workload_id)


def check_12_claim(unit: Unit, workload_id: str, claim: Claim | None) -> None:
    """What the workload takes nobody else has published to the target, from whatever source."""
    if claim is not None:
        target = workloads.get(unit, workload_id).opening.table_uuid
        claims.take(unit, workload_id, target=target, claim=claim)


def claim_taken(cores: Sequence[ProofCore], claim: Claim) -> Claim | None:
    """What an append takes for itself, which nobody else may have published; overwriting twice shows the rows once.

    A publication without a row takes nothing: late rows can still come under another id, and none comes twice.
    """
    takes = any(core.target.operation is Operation.APPEND and core.rows.staged != 0 for core in cores)
    return claim if takes else None


def complete(unit: Unit, workload_id: str) -> None:
    """With its last chunk the workload is done."""
    if chunks.published_count(unit, workload_id) == chunks.count(unit, workload_id):
        workloads.move(unit, workload_id, WorkloadState.COMPLETE, reason=_COMPLETE)


def check_14_shown(shown: Shown, base: Base, reader: FileReader) -> None:
    """`main` shows the new snapshot, with the bytes that were written for it, to who asks anew."""
    metadata = base.metadata
    current = metadata.current_snapshot_id
    history = {} if current is None else {each.snapshot_id: each for each in metadata.ancestry(current)}
    found = history.get(shown.new_snapshot_id)
    if found is None or found.parent_id != shown.old_snapshot_id or found.manifest_list is None:
        raise _differs(f"snapshot {shown.new_snapshot_id} on {shown.old_snapshot_id}", f"snapshot {current}")
    data = reader.read(found.manifest_list, most=MANIFEST_LIST_MAX_BYTES)
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 != shown.manifest_list_sha256:
        raise _differs(f"a manifest list with SHA-256 {shown.manifest_list_sha256}", sha256)


def _differs(expected: str, got: str) -> StateUnknownError:
    return StateUnknownError(
        "publication_not_shown",
        "the publication was committed, but main does not show it",
        expected=expected,
        got=got,
        hint="no receipt was signed; run an audit of the table",
    )
