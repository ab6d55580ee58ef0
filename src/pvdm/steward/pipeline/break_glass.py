"""Break-glass after a FAIL: takes the bytes that an operator's override names from quarantine and stages them again."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pvdm.catalog.catalog import Catalog
from pvdm.catalog.commit import Change
from pvdm.errors import Code, ConflictError, InputError, NotAllowedError, VerificationError
from pvdm.lake.format.json_document import Json
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.next_snapshot import SnapshotChange, next_snapshot
from pvdm.lake.paths import parse_location
from pvdm.lake.vault import Vault, VaultKind, quarantine_name
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import proofs, statements
from pvdm.ledger.record.proofs import StoredOverride
from pvdm.ledger.record.tokens import Grant, require_domain
from pvdm.ledger.work import attempts, chunks, nonces, verified
from pvdm.ledger.work.attempts import ATTEMPTS_MAX, Attempt
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.proof import Proof
from pvdm.model.states import ATTEMPT, AttemptState, NonceState
from pvdm.steward.access import STEWARD_GRANT
from pvdm.steward.cleanup.disposal import open_folder
from pvdm.steward.pipeline.proposals import find_override_of, override_reason, read_verified
from pvdm.steward.record.overrides import get_override, require_base_is_main, require_usable
from pvdm.steward.work.opened import staged_head
from pvdm.steward.work.opening import Workloads
from pvdm.steward.work.sources import levels_of
from pvdm.trust.approval import translate_refusals
from pvdm.trust.statement import read_unchecked
from pvdm.trust.verify import require_unexpired
from pvdm.verify.fetch import Files


@dataclass(eq=False)
class OverrideStaging:
    """Stages files whose FAIL an operator has waived, as a new attempt. All checks but the verdict still apply.

    A parameter `core` is the core of the FAIL proof: the part with attempt, target, files and verdict.
    """

    ledger: Ledger
    clock: LedgerClock
    catalog: Catalog
    workloads: Workloads
    vault: Vault
    files: Files
    give_up: Callable[[str, str], object]  # rolls back an attempt that cannot be staged, with a reason
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def stage_override(self, grant: Grant, override_id: str) -> Attempt:
        """Stage exactly the bytes that the override names as a new attempt, to be verified and published.

        A repeated call continues this attempt, or returns it if it was published.
        """
        with self.ledger.read() as unit:
            require_domain(grant, get_override(unit, override_id).domain)
        # One call at a time, so that a second call finds the attempt of the first call.
        with self._lock:
            with self.ledger.read() as unit:
                override = get_override(unit, override_id)
                core = read_unchecked(proofs.get_envelope(unit, override.record.fail_proof_id), Proof).core
                attempt = _find_published(unit, override, core) or _find_live_attempt(unit, core, override_id)
            if attempt is None:
                attempt = self._open_attempt(override, core)
            if attempt.state is not AttemptState.STAGING:
                return attempt
            self._stage(attempt, core)
            return self.workloads.end_staging(STEWARD_GRANT, attempt.attempt_id)

    def _open_attempt(self, override: StoredOverride, core: ProofCore) -> Attempt:
        """Open a new attempt, if the override is valid and its files are in quarantine."""
        override_id = override.record.override_id
        with self.ledger.read() as unit:
            require_usable(unit, override)
            statement = read_unchecked(statements.get(unit, override_id).envelope, BreakGlass)
        with translate_refusals("override"):
            require_unexpired(statement.expires_at, self.clock.now_micros(), "override_expired", "the override")
        require_base_is_main(statement, self.catalog.states.load(self._get_row(core)).metadata.current_snapshot_id)
        self._read_entries(core)  # raises if verification could not read the files
        failed, hashes = core.attempt, set(core.files.staged_hashes)
        # All files must lie in quarantine. With `on-fail: delete` in the contract, no file is there.
        listed = self.vault.finished(core.target.table.uuid, VaultKind.QUARANTINE, failed.attempt_id)
        missing = hashes - {location.rpartition("/")[2] for location in listed}
        if missing:
            expected = f"{len(hashes)} files of attempt {failed.attempt_id}"
            raise Code.OVERRIDE_FILES_GONE(expected=expected, got=f"{len(missing)} of them missing")
        workload_id, chunk_id, reason = failed.workload_id, failed.chunk_id, override_reason(override_id)
        try:
            # The contract's limit is for the producer's attempts, and may be reached already.
            return self.workloads.next_attempt(STEWARD_GRANT, workload_id, chunk_id, reason, failed_max=ATTEMPTS_MAX)
        except ConflictError as error:
            if error.code != Code.ATTEMPT_LIVE:
                raise
            with self.ledger.read() as unit:
                found = _find_live_attempt(unit, core, override_id)
            if found is None:
                raise
            return found  # another Steward of this ledger has opened it meanwhile

    def _read_entries(self, core: ProofCore) -> tuple[DataFile, ...]:
        """The manifest entries of the failed attempt; raises if verification could not read its files."""
        with self.ledger.read() as unit:
            record = verified.get(unit, core.attempt.nonce)
        if record.location is None:
            raise Code.OVERRIDE_WITHOUT_FILES(got=", ".join(each.value for each in core.verdict.classes))
        return read_verified(self.vault, record)

    def _stage(self, attempt: Attempt, core: ProofCore) -> None:
        """Stage the bytes on the attempt's branch, unless an earlier call has."""
        row = self._get_row(core)
        if staged_head(self.catalog.states.load(row).metadata, attempt.branch) is not None:
            return
        try:
            self._write(attempt, row, core, self._read_entries(core))
        except ConflictError as error:
            if not error.reason.startswith("requirement_ref"):
                raise
            # The branch has moved: another Steward of this ledger has staged the bytes first.
        except (InputError, NotAllowedError, VerificationError) as error:
            # A retry would fail the same way, and this attempt would block other attempts at the chunk.
            self.give_up(attempt.attempt_id, f"break-glass: {error.reason}")
            raise

    def _write(self, attempt: Attempt, row: TableRow, core: ProofCore, files: Sequence[DataFile]) -> None:
        """Write the bytes from quarantine into the attempt's folder, and commit one snapshot of them to its branch."""
        folder = parse_location(attempt.prefix)
        prefix = open_folder(self.catalog, self.files, row, folder)
        hash_and_size = {each.published_path: (each.staged_sha256, each.staged_size_bytes) for each in core.files.added}
        added = []
        for number, file in enumerate(files):
            sha256, size = hash_and_size[file.file_path]
            name = quarantine_name(core.attempt.attempt_id, sha256)
            quarantined = self.vault.location(row.table_uuid, VaultKind.QUARANTINE, name)
            # A new name, since an interrupted call may have left a file.
            place = folder.child("data", f"{number:05d}-{secrets.token_hex(8)}.parquet")
            prefix.write(place, self.vault.read(quarantined, sha256=sha256, max_bytes=size))
            # `file` describes the copy that would be published. The staged bytes have other sizes and offsets.
            added.append(
                replace(file, file_path=str(place), file_size_in_bytes=size, column_sizes=None, split_offsets=None)
            )
        metadata = self.catalog.states.load(row).metadata
        snapshot = next_snapshot(
            metadata,
            SnapshotChange(tuple(added), frozenset(core.files.removed), {"pvdm.attempt": attempt.attempt_id}),
            branch=attempt.branch,
            snapshot_id=secrets.randbits(62) + 1,
            now_ms=self.clock.now_micros() // 1_000,
            place=lambda name: str(folder.child("metadata", name)),
            reader=self.files,
        )
        for new in snapshot.files:
            prefix.write(parse_location(new.location), new.data)
        with self.ledger.read() as unit:
            levels = levels_of(unit, row)
        ref = metadata.refs.get(attempt.branch)
        head: Json = None if ref is None else ref.snapshot_id
        # Of concurrent calls, only one can add its snapshot to the branch.
        same_head: Json = {"type": "assert-ref-snapshot-id", "ref": attempt.branch, "snapshot-id": head}
        self.catalog.commits.commit(STEWARD_GRANT, [Change(levels, row.name, [same_head], list(snapshot.updates))])

    def _get_row(self, core: ProofCore) -> TableRow:
        with self.ledger.read() as unit:
            row = tables.find_by_uuid(unit, core.target.table.uuid)
        if row is None:
            raise Code.TABLE_UNKNOWN("the table of the override is gone", got=core.target.table.uuid)
        return row


def _find_published(unit: Unit, override: StoredOverride, core: ProofCore) -> Attempt | None:
    """The attempt that was published by the override: its snapshot is the snapshot that used the override's nonce."""
    used = nonces.find(unit, override.record.nonce)
    if used is None or used.state is not NonceState.COMMITTED or used.snapshot_id is None:
        return None
    published = chunks.list_publications(unit, core.attempt.workload_id, [core.attempt.chunk_id])
    ids = [each.attempt_id for each in published if each.snapshot_id == used.snapshot_id]
    return attempts.get(unit, ids[0]) if ids else None


def _find_live_attempt(unit: Unit, core: ProofCore, override_id: str) -> Attempt | None:
    """The live attempt that was opened for this override; raises `attempt_live` if another attempt is live."""
    of_chunk = attempts.list_by_chunk(unit, core.attempt.workload_id, core.attempt.chunk_id)
    last = of_chunk[-1] if of_chunk else None
    if last is None or last.state not in ATTEMPT.live():
        return None
    if find_override_of(unit, last) == override_id:
        return last
    message = f"attempt {last.number} of chunk {last.chunk_id} has not ended"
    raise Code.ATTEMPT_LIVE(message, got=last.state, attempt_id=last.attempt_id)
