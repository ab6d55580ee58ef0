"""Break-glass after a FAIL: the bytes that an override names are brought back from quarantine as a new attempt."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from pvdm.catalog.catalog import Catalog
from pvdm.catalog.commit import Change
from pvdm.errors import ConflictError, InputError, NotAllowedError, VerificationError
from pvdm.lake.format.json.document import Json
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.paths import parse_location
from pvdm.lake.prefix import prefix_at
from pvdm.lake.vault import Vault, VaultKind, quarantine_name
from pvdm.lake.write.next_snapshot import Wanted, next_snapshot
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import events, overrides, proofs, statements
from pvdm.ledger.record.overrides import StoredOverride
from pvdm.ledger.record.proofs import ProofRecord
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work import attempts, chunks, nonces, verified
from pvdm.ledger.work.attempts import ATTEMPTS_MAX, Attempt
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.proof import Proof
from pvdm.model.states import ATTEMPT, AttemptState, NonceState
from pvdm.steward.access import OWN, require_domain
from pvdm.steward.pipeline.verified_files import read_verified
from pvdm.steward.record.overrides import require_over_main, require_usable
from pvdm.steward.work.opening import Workloads, staged_head
from pvdm.steward.work.sources import levels_of
from pvdm.trust.override import disallowing, require_unexpired
from pvdm.trust.statement import read_signed
from pvdm.verify.fetch import Files

_WORD: Final = "break-glass"
_OVERRIDE_ID: Final = re.compile(r"[0-9a-f]{64}")


def find_waiver(unit: Unit, attempt: Attempt, core: ProofCore) -> tuple[StoredOverride, ProofRecord] | None:
    """The unused override that this attempt's FAIL may be published by, and the FAIL that it was signed for.

    An attempt that was opened for an override goes by that one alone, and the gate judges it. Any other attempt at the
    chunk goes by one for exactly its bytes over exactly its base; of several, by the one that expires last.
    """
    wanted = _opened_for(unit, attempt)
    found: list[tuple[int, StoredOverride, ProofRecord]] = []
    for tried in attempts.of_chunk(unit, attempt.workload_id, attempt.chunk_id):
        for record in proofs.of_attempt(unit, tried.attempt_id):
            override_id = overrides.live_of_proof(unit, record.proof_id)
            stored = None if override_id is None else overrides.find(unit, override_id)
            if stored is None or stored.state is not NonceState.RESERVED:
                continue
            said = read_signed(statements.get(unit, stored.record.override_id).envelope, BreakGlass)
            same_base = said.base_snapshot_id == core.target.base_snapshot_id
            given = same_base if wanted is None else stored.record.override_id == wanted
            if given and said.file_hashes == core.files.staged_hashes:
                found.append((said.expires_at, stored, record))
    if not found:
        return None
    _, override, failed = max(found, key=lambda each: each[0])
    return override, failed


def is_waivable(unit: Unit, attempt: Attempt, override: StoredOverride, now: int) -> bool:
    """Whether the attempt goes to the gate by it: one that has expired is left alone, unless it was asked for."""
    return override.record.expires_micros > now or _opened_for(unit, attempt) == override.record.override_id


class Waiving:
    """Stages what an operator has waived the verdict of, as the Steward's own attempt; every other check stands."""

    def __init__(
        self,
        ledger: Ledger,
        clock: LedgerClock,
        catalog: Callable[[], Catalog],
        workloads: Workloads,
        vault: Vault | None,
        files: Files,
        give_up: Callable[[str, str], object],
    ) -> None:
        """`give_up` rolls back an attempt that cannot be staged, for a reason; without a catalog there is no vault."""
        self._ledger = ledger
        self._clock = clock
        self._catalog = catalog
        self._workloads = workloads
        self._kept = vault
        self._files = files
        self._give_up = give_up
        self._turn = threading.Lock()

    def bring_back(self, grant: Grant, override_id: str) -> Attempt:
        """A new attempt with exactly the bytes that the override names, handed in to be verified and published.

        Once more goes on with that one, and gives it as it is when it was published.
        """
        with self._ledger.read() as unit:
            require_domain(grant, _override(unit, override_id).domain)
        # There are few of them: one at a time, so that the same call at the same time finds what the first one made.
        with self._turn:
            with self._ledger.read() as unit:
                override = _override(unit, override_id)
                core = read_signed(proofs.envelope(unit, override.record.fail_proof_id), Proof).core
                attempt = _published(unit, override, core) or _brought_back(unit, core, override_id)
            if attempt is None:
                attempt = self._opened(override, core)
            if attempt.state is not AttemptState.STAGING:
                return attempt
            self._stage(attempt, core)
            return self._workloads.staged(OWN, attempt.attempt_id)

    @property
    def _vault(self) -> Vault:
        if self._kept is None:
            self._catalog()  # says that there is none
            raise AssertionError("who has a catalog has a vault")
        return self._kept

    def _opened(self, override: StoredOverride, core: ProofCore) -> Attempt:
        """A new attempt, once there is something to bring back, and while the override is good."""
        override_id = override.record.override_id
        with self._ledger.read() as unit:
            require_usable(unit, override)
            said = read_signed(statements.get(unit, override_id).envelope, BreakGlass)
        with disallowing():
            require_unexpired(said, self._clock.now_micros())
        require_over_main(said, self._catalog().states.of(self._row(core)).metadata.current_snapshot_id)
        self._verified(core)
        self._require_kept(core)
        told = core.attempt
        try:
            # Not one of the producer's tries: an override is good though they are used up.
            reason = _reason(override_id)
            return self._workloads.next_attempt(OWN, told.workload_id, told.chunk_id, reason, most=ATTEMPTS_MAX)
        except ConflictError as error:
            if error.code != "attempt_live":
                raise
            with self._ledger.read() as unit:
                found = _brought_back(unit, core, override_id)
            if found is None:
                raise
            return found  # by another Steward of this ledger

    def _verified(self, core: ProofCore) -> tuple[DataFile, ...]:
        """The entries that were rebuilt for what failed; a file that could not be read is never published."""
        with self._ledger.read() as unit:
            record = verified.get(unit, core.attempt.nonce)
        if record.location is None:
            raise VerificationError(
                "override_without_files",
                "what failed could not be read as files of the table",
                expected="a FAIL about rows",
                got=", ".join(each.value for each in core.verdict.classes),
                hint="an override waives the verdict and nothing else; stage it anew",
            )
        return read_verified(self._vault, record)

    def _require_kept(self, core: ProofCore) -> None:
        """All of the bytes lie in quarantine; where the contract has failed files deleted there are none."""
        attempt_id = core.attempt.attempt_id
        listed = self._vault.listed(core.target.table.uuid, VaultKind.QUARANTINE, attempt_id)
        kept = {location.rpartition("/")[2] for location in listed}
        missing = set(core.files.staged_hashes) - kept
        if missing:
            raise VerificationError(
                "override_files_gone",
                "the files that failed are not in quarantine",
                expected=f"{len(set(core.files.staged_hashes))} files of attempt {attempt_id}",
                got=f"{len(missing)} of them missing",
                hint="nothing was published; under `on-fail: delete` nothing is kept, so stage the same bytes again",
            )

    def _stage(self, attempt: Attempt, core: ProofCore) -> None:
        """The bytes on the attempt's branch, unless they are there from an earlier call that was stopped."""
        row = self._row(core)
        if staged_head(self._catalog().states.of(row).metadata, attempt.branch) is not None:
            return
        try:
            self._write(attempt, row, core, self._verified(core))
        except ConflictError as error:
            if not error.code.startswith("requirement_ref"):
                raise
            # Another Steward of this ledger was first: what it has staged is what is verified.
        except (InputError, NotAllowedError, VerificationError) as error:
            # Another try would end the same way, and the chunk is not to be kept from other attempts.
            self._give_up(attempt.attempt_id, f"break-glass: {error.code}")
            raise

    def _write(self, attempt: Attempt, row: TableRow, core: ProofCore, files: Sequence[DataFile]) -> None:
        """The bytes from quarantine in the attempt's own folder, and one snapshot of them on its branch."""
        folder = parse_location(attempt.prefix)
        warehouse = parse_location(self._catalog().warehouse)
        table = parse_location(row.location)
        root = warehouse if table.is_under(warehouse) and table != warehouse else table
        prefix = prefix_at(root, folder, self._files.stores)
        hashes = {each.published_path: (each.staged_sha256, each.staged_size_bytes) for each in core.files.added}
        added = []
        for at, file in enumerate(files):
            sha256, size = hashes[file.file_path]
            kept = self._vault.place(
                row.table_uuid, VaultKind.QUARANTINE, quarantine_name(core.attempt.attempt_id, sha256)
            )
            # A name of its own: a try that was stopped half way leaves none that is in the way.
            place = folder.child("data", f"{at:05d}-{secrets.token_hex(8)}.parquet")
            prefix.write(place, self._vault.read(kept, sha256=sha256, most=size))
            # The entry is that of the file which was to be published; of these bytes it may claim no more than rows.
            added.append(
                replace(file, file_path=str(place), file_size_in_bytes=size, column_sizes=None, split_offsets=None)
            )
        metadata = self._catalog().states.of(row).metadata
        made = next_snapshot(
            metadata,
            Wanted(tuple(added), frozenset(core.files.removed), {"pvdm.attempt": attempt.attempt_id}),
            branch=attempt.branch,
            snapshot_id=secrets.randbits(62) + 1,
            now_ms=self._clock.now_micros() // 1_000,
            place=lambda name: str(folder.child("metadata", name)),
            reader=self._files,
        )
        for new in made.files:
            prefix.write(parse_location(new.location), new.data)
        with self._ledger.read() as unit:
            levels = levels_of(unit, row)
        ref = metadata.refs.get(attempt.branch)
        head: Json = None if ref is None else ref.snapshot_id
        # However many are at it, the branch gets one snapshot.
        still: Json = {"type": "assert-ref-snapshot-id", "ref": attempt.branch, "snapshot-id": head}
        self._catalog().commits.commit(OWN, [Change(levels, row.name, [still], list(made.updates))])

    def _row(self, core: ProofCore) -> TableRow:
        with self._ledger.read() as unit:
            row = tables.find_by_uuid(unit, core.target.table.uuid)
        if row is None:
            raise InputError("table_unknown", "the table of the override is gone", got=core.target.table.uuid)
        return row


def _override(unit: Unit, override_id: str) -> StoredOverride:
    found = overrides.find(unit, override_id)
    if found is None:
        raise InputError("override_unknown", "the ledger holds no such override", got=ascii(override_id[:80]))
    return found


def _published(unit: Unit, override: StoredOverride, core: ProofCore) -> Attempt | None:
    """The attempt that the override has published, if it has: the one whose snapshot used its nonce."""
    used = nonces.find(unit, override.record.nonce)
    if used is None or used.state is not NonceState.COMMITTED or used.snapshot_id is None:
        return None
    for each in chunks.publications(unit, core.attempt.workload_id, [core.attempt.chunk_id]):
        if each.snapshot_id == used.snapshot_id:
            return attempts.get(unit, each.attempt_id)
    return None


def _reason(override_id: str) -> str:
    return f"{_WORD} {override_id}"


def _opened_for(unit: Unit, attempt: Attempt) -> str | None:
    """The override that the attempt was opened for; None for one of a producer."""
    first = events.history(unit, "attempts", attempt.attempt_id, count=1)
    reason = str(first[0].new["reason"]) if first and first[0].new is not None else ""
    word, _, override_id = reason.partition(" ")
    return override_id if word == _WORD and _OVERRIDE_ID.fullmatch(override_id) else None


def _brought_back(unit: Unit, core: ProofCore, override_id: str) -> Attempt | None:
    """The live attempt that was opened for this override; one of somebody else is in the way."""
    tried = attempts.of_chunk(unit, core.attempt.workload_id, core.attempt.chunk_id)
    if not tried or tried[-1].state not in ATTEMPT.live():
        return None
    if _opened_for(unit, tried[-1]) == override_id:
        return tried[-1]
    raise ConflictError(
        "attempt_live",
        f"attempt {tried[-1].number} of chunk {core.attempt.chunk_id} has not ended",
        expected="no live attempt",
        got=tried[-1].state,
        attempt_id=tried[-1].attempt_id,
    )
