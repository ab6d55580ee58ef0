"""Quarantine for operators: what lies in it and whose it is, and its removal once nothing can come of it any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pvdm.catalog.catalog import Catalog
from pvdm.catalog.names import parse_full_name
from pvdm.errors import InputError, NotAllowedError
from pvdm.lake.stores.store import Listed
from pvdm.lake.vault import Vault, VaultKind
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import proofs
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work import attempts, chunks, quarantine, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.quarantine import QUARANTINE_PAGE_MAX_ROWS, Removal
from pvdm.model.states import ATTEMPT, WorkloadState
from pvdm.steward.access import require_attempt, require_domain, scope
from pvdm.steward.cleanup.quarantine_unknown import UnknownFolder, find_unknown
from pvdm.steward.logs import log_event
from pvdm.steward.work.sources import table_name


@dataclass(frozen=True, slots=True)
class Quarantined:
    """What is kept of one failed attempt; `undecided` says why it cannot be removed yet, None where it can.

    An attempt that the ledger does not know has no workload, and `failed_micros` is when its files were written.
    """

    attempt_id: str
    workload_id: str | None
    chunk_id: str | None
    failed_micros: int
    table: str | None
    table_uuid: str
    verdict: str | None
    proof_id: str | None
    age_seconds: int
    files: int
    size_bytes: int
    folder: str
    undecided: str | None


class QuarantineDesk:
    """Lists and removes what failed; the proofs that say what failed, and the receipts, stay for ever."""

    def __init__(self, ledger: Ledger, clock: LedgerClock, catalog: Callable[[], Catalog], vault: Vault | None) -> None:
        """Without a catalog there is no vault, and nothing in quarantine."""
        self._ledger = ledger
        self._clock = clock
        self._catalog = catalog
        self._kept = vault

    def listed(self, grant: Grant, *, table: str | None = None, after: str | None = None) -> list[Quarantined]:
        """A page of what lies in quarantine, oldest first, of the bearer's domain and perhaps of one table.

        Attempts that the ledger does not know come last, by their ids.
        """
        require_attempt(grant, None)
        uuid = None if table is None else self._uuid(grant, table)
        back = self._all_that_came_back(uuid)
        with self._ledger.read() as unit:
            last = None if after is None or attempts.find(unit, after) is not None else after
            found: list[Attempt] = []
            if last is None:
                found = quarantine.page(unit, domain=scope(grant), table_uuid=uuid, after=after, back=back)
            told = [(each, _facts(unit, each)) for each in found]
        now = self._clock.trusted_micros()
        known = [self._describe(attempt, facts, now) for attempt, facts in told]
        room = QUARANTINE_PAGE_MAX_ROWS - len(known)
        unknown = [each for each in self._unknown(grant, uuid) if last is None or each.attempt_id > last]
        return [*known, *(self._describe_unknown(each, now) for each in unknown[:room])]

    def remove(self, grant: Grant, attempt_ids: Sequence[str], reason: str) -> list[Removal]:
        """Remove the files of these attempts for good, and keep a record of it.

        Raises before anything is removed if one of them is not in quarantine, or may still be published.
        """
        require_attempt(grant, None)
        with self._ledger.read() as unit:
            asked = quarantine.unknown_among(unit, attempt_ids)
        lying = self._unknown(grant, None) if asked else []
        unknown = {each.attempt_id: each for each in lying if each.attempt_id in asked}
        known = [each for each in attempt_ids if each not in unknown]
        back = {attempt_id: self._came_back(attempt_id) for attempt_id in known}
        with self._ledger.read() as unit:
            for attempt_id in known:
                _require_removable(unit, grant, attempt_id, back=back[attempt_id])
        removed = [self._removed(grant, attempt_id, reason, back=came) for attempt_id, came in back.items()]
        return [*removed, *(self._removed_unknown(grant, each, reason) for each in unknown.values())]

    def _came_back(self, attempt_id: str) -> bool:
        """Whether files lie there that the ledger has as removed: a clean-up that had stood still wrote them since."""
        with self._ledger.read() as unit:
            removal = quarantine.find_removal(unit, attempt_id)
            if removal is None or not removal.done:
                return False
            uuid = workloads.get(unit, attempts.get(unit, attempt_id).workload_id).opening.table_uuid
        return bool(self._files(uuid, attempt_id))

    def _all_that_came_back(self, table_uuid: str | None) -> list[str]:
        """The attempts of which that is so, of one table or of all, by the folders that there are."""
        if self._kept is None:
            return []
        asked = self._kept.tables() if table_uuid is None else [table_uuid]
        lying = [name for uuid in asked for name in self._kept.folders(uuid, VaultKind.QUARANTINE)]
        with self._ledger.read() as unit:
            removed = quarantine.removed_among(unit, lying)
        return [each for each in removed if self._came_back(each)]

    def _removed(self, grant: Grant, attempt_id: str, reason: str, *, back: bool) -> Removal:
        with self._ledger.read() as unit:
            attempt = attempts.get(unit, attempt_id)
            uuid = workloads.get(unit, attempt.workload_id).opening.table_uuid
            name = table_name(unit, uuid)
        files = self._files(uuid, attempt_id)
        size = sum(each.size for each in files)
        noted = Removal(attempt_id, grant.token_id, grant.name, reason, len(files), size, done=False)

        def begin(unit: Unit) -> Removal:
            # In the transaction that notes it: nothing that was decided is decided otherwise later, so this holds.
            _require_removable(unit, grant, attempt_id, back=back)
            return quarantine.note_again(unit, noted) if back else quarantine.begin_removal(unit, noted)

        begun = self._ledger.transact(begin, at_micros=self._clock.now_micros())
        # Listed anew: who wrote a file and found no removal noted did so before this, and whoever finds it takes his
        # file back.
        for each in self._files(uuid, attempt_id):
            self._vault.remove(str(each.place))
        self._ledger.transact(lambda unit: quarantine.end_removal(unit, attempt_id), at_micros=self._clock.now_micros())
        _log_removed(begun, table=name, table_uuid=uuid, workload_id=attempt.workload_id)
        return begun

    def _removed_unknown(self, grant: Grant, found: UnknownFolder, reason: str) -> Removal:
        noted = Removal(
            found.attempt_id, grant.token_id, grant.name, reason, len(found.files), found.size_bytes, done=True
        )
        self._ledger.transact(lambda unit: quarantine.note_unknown(unit, noted), at_micros=self._clock.now_micros())
        for each in found.files:
            self._vault.remove(str(each.place))
        _log_removed(noted, table=found.table, table_uuid=found.table_uuid, workload_id=None)
        return noted

    def _unknown(self, grant: Grant, table_uuid: str | None) -> list[UnknownFolder]:
        if self._kept is None:
            return []
        return find_unknown(self._ledger, self._kept, domain=scope(grant), table_uuid=table_uuid)

    @property
    def _vault(self) -> Vault:
        if self._kept is None:
            self._catalog()  # says that there is none
            raise AssertionError("who has a catalog has a vault")
        return self._kept

    def _uuid(self, grant: Grant, table: str) -> str:
        *levels, name = parse_full_name(table)
        return self._catalog().tables.load(grant, tuple(levels), name).row.table_uuid

    def _files(self, table_uuid: str, attempt_id: str) -> list[Listed]:
        return self._vault.files(table_uuid, VaultKind.QUARANTINE, attempt_id)

    def _describe(self, attempt: Attempt, facts: _Facts, now: int) -> Quarantined:
        files = self._files(facts.table_uuid, attempt.attempt_id)
        return Quarantined(
            attempt.attempt_id,
            attempt.workload_id,
            attempt.chunk_id,
            attempt.at_micros,
            facts.table,
            facts.table_uuid,
            facts.verdict,
            facts.proof_id,
            max(0, (now - attempt.at_micros) // 1_000_000),
            len(files),
            sum(each.size for each in files),
            self._vault.place(facts.table_uuid, VaultKind.QUARANTINE, attempt.attempt_id),
            facts.undecided,
        )

    def _describe_unknown(self, found: UnknownFolder, now: int) -> Quarantined:
        return Quarantined(
            found.attempt_id,
            None,
            None,
            found.written_micros,
            found.table,
            found.table_uuid,
            verdict=None,
            proof_id=None,
            age_seconds=max(0, (now - found.written_micros) // 1_000_000),
            files=len(found.files),
            size_bytes=found.size_bytes,
            folder=self._vault.place(found.table_uuid, VaultKind.QUARANTINE, found.attempt_id),
            undecided=None,
        )


@dataclass(frozen=True, slots=True)
class _Facts:
    table: str | None
    table_uuid: str
    verdict: str | None
    proof_id: str | None
    undecided: str | None


def _log_removed(removal: Removal, *, table: str | None, table_uuid: str, workload_id: str | None) -> None:
    log_event(
        "quarantine_removed",
        table=table,
        table_uuid=table_uuid,
        workload_id=workload_id,
        attempt_id=removal.attempt_id,
        files=removal.files,
        bytes=removal.size_bytes,
        token_id=removal.token_id,
    )


def _facts(unit: Unit, attempt: Attempt) -> _Facts:
    uuid = workloads.get(unit, attempt.workload_id).opening.table_uuid
    said = proofs.of_attempt(unit, attempt.attempt_id)
    verdict, proof_id = (said[-1].verdict.value, said[-1].proof_id) if said else (None, None)
    return _Facts(table_name(unit, uuid), uuid, verdict, proof_id, _undecided(unit, attempt))


def _undecided(unit: Unit, attempt: Attempt) -> str | None:
    """Why something may still come of the files: an open workload's chunk can be published by break-glass.

    A workload that is complete or abandoned, and a chunk that is published, stay so: what is decided once, is.
    """
    workload = workloads.get(unit, attempt.workload_id)
    if workload.state is not WorkloadState.OPEN:
        return None
    if chunks.publications(unit, attempt.workload_id, [attempt.chunk_id]):
        return None
    return f"workload {attempt.workload_id} is open, and this chunk of it is not published"


def _require_removable(unit: Unit, grant: Grant, attempt_id: str, *, back: bool) -> None:
    """`back` says that files lie there again, or still, though they were removed."""
    attempt = attempts.get(unit, attempt_id)
    require_domain(grant, workloads.get(unit, attempt.workload_id).opening.domain)
    if attempt.state in ATTEMPT.live():
        raise NotAllowedError(
            "quarantine_attempt_live",
            "the attempt has not ended",
            expected="an attempt that failed",
            got=attempt.state,
            hint="nothing was removed; wait for its verdict",
            attempt_id=attempt_id,
        )
    if not back and not quarantine.holds(unit, attempt_id):
        raise InputError(
            "quarantine_unknown",
            "nothing of this attempt is in quarantine",
            got=attempt_id,
            hint="nothing was removed; `pvdm quarantine list` shows what there is",
        )
    undecided = _undecided(unit, attempt)
    if undecided is not None:
        raise NotAllowedError(
            "quarantine_undecided",
            f"what failed may still be published: {undecided}",
            expected="a published chunk, or a workload that is complete or abandoned",
            got=f"attempt {attempt_id}",
            hint="nothing was removed; repair the chunk, or give the workload up with `pvdm abandon`",
            attempt_id=attempt_id,
        )
