"""Lists the files in quarantine for operators, and removes those that can no longer be published."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pvdm.api.work import QuarantinedView
from pvdm.catalog.catalog import Catalog
from pvdm.errors import Code, PvdmError, UnavailableError
from pvdm.lake.stores.store import ListedFile
from pvdm.lake.vault import Vault, VaultKind
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import proofs
from pvdm.ledger.record.tokens import Grant, require_domain
from pvdm.ledger.work import attempts, chunks, disposals, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.disposals import QUARANTINE_PAGE_MAX_ROWS, Removal
from pvdm.model.statements.verdict import Outcome
from pvdm.model.states import ATTEMPT, WorkloadState
from pvdm.steward.access import STEWARD_GRANT, refuse_attempt_token, visible_domain
from pvdm.steward.logs import log_event, log_warning
from pvdm.steward.work.sources import load_row, table_name

_DAY_SECONDS: Final = 86_400
_SWEEP_INTERVAL_SECONDS: Final = _DAY_SECONDS
_ATTEMPT_ID: Final = re.compile(r"[0-9a-f]{32}")


class QuarantineFiles:
    """Lists and removes files of failed attempts. The attempts' proofs stay."""

    def __init__(self, ledger: Ledger, clock: LedgerClock, catalog: Catalog, vault: Vault) -> None:
        self._ledger = ledger
        self._clock = clock
        self._catalog = catalog
        self._vault = vault

    def list_page(self, grant: Grant, *, table: str | None = None, after: str | None = None) -> list[QuarantinedView]:
        """A page of the attempts with files in quarantine, of the caller's domain or of one table, oldest first.

        Attempts that the ledger lacks (unknown attempts) come last, by their ids.
        """
        refuse_attempt_token(grant)
        only_uuid = None if table is None else load_row(self._catalog, grant, table).table_uuid
        unexpected = self._find_unexpected(only_uuid)
        with self._ledger.read() as unit:
            # If the page before ended with an unknown attempt, only unknown attempts are left.
            after_unknown = None if after is None or attempts.find(unit, after) is not None else after
            found: list[Attempt] = []
            if after_unknown is None:
                found = disposals.page_quarantined(
                    unit, domain=visible_domain(grant), table_uuid=only_uuid, after=after, unexpected=unexpected
                )
            with_facts = [(each, *_read_facts(unit, each)) for each in found]
        views = [
            self._make_view(each.attempt_id, uuid, each.at_micros, self._list_files(uuid, each.attempt_id), facts)
            for each, uuid, facts in with_facts
        ]
        unknown = self._list_unknown(grant, only_uuid)
        unknown = [each for each in unknown if after_unknown is None or each.attempt_id > after_unknown]
        no_facts: dict[str, str | None] = dict.fromkeys(("workload_id", "chunk_id", "verdict", "proof_id", "undecided"))
        for each in unknown[: QUARANTINE_PAGE_MAX_ROWS - len(views)]:
            facts = no_facts | {"table": each.table}
            written_micros = int(max(file.modified_seconds for file in each.files) * 1_000_000)
            views.append(self._make_view(each.attempt_id, each.table_uuid, written_micros, each.files, facts))
        return views

    def remove(self, grant: Grant, attempt_ids: Sequence[str], reason: str) -> list[Removal]:
        """Remove the files of these attempts, and record each removal.

        Raises, before anything is removed, if one attempt is not in quarantine or may still be published.
        """
        refuse_attempt_token(grant)
        with self._ledger.read() as unit:
            unknown_ids = disposals.find_unknown_attempts(unit, attempt_ids)
        listed = self._list_unknown(grant, None) if unknown_ids else []
        unknown = {each.attempt_id: each for each in listed if each.attempt_id in unknown_ids}
        known = [each for each in attempt_ids if each not in unknown]
        unexpected = {attempt_id: self._is_unexpected(attempt_id) for attempt_id in known}
        with self._ledger.read() as unit:
            for attempt_id in known:
                _require_removable(unit, grant, attempt_id, unexpected=unexpected[attempt_id])
        removed = [
            self._remove_known(grant, attempt_id, reason, unexpected=is_unexpected)
            for attempt_id, is_unexpected in unexpected.items()
        ]
        return [*removed, *(self._remove_unknown(grant, each, reason) for each in unknown.values())]

    def _is_unexpected(self, attempt_id: str) -> bool:
        """Whether the attempt has files in quarantine although, by the ledger, it has none there.

        A delayed clean-up may have written these files after a removal. Or the ledger was restored from a backup that
        is older than the attempt's failure.
        """
        with self._ledger.read() as unit:
            if not disposals.find_unexpected(unit, [attempt_id]):
                return False
            uuid = workloads.get(unit, attempts.get(unit, attempt_id).workload_id).opening.table_uuid
        return bool(self._list_files(uuid, attempt_id))

    def _find_unexpected(self, table_uuid: str | None) -> list[str]:
        """The attempts with unexpected files (`_is_unexpected`), of one table or of all."""
        uuids = self._vault.tables() if table_uuid is None else [table_uuid]
        folders = [name for uuid in uuids for name in self._vault.folders(uuid, VaultKind.QUARANTINE)]
        with self._ledger.read() as unit:
            unexpected = disposals.find_unexpected(unit, folders)
        return [each for each in unexpected if self._is_unexpected(each)]

    def _remove_known(self, grant: Grant, attempt_id: str, reason: str, *, unexpected: bool) -> Removal:
        with self._ledger.read() as unit:
            attempt = attempts.get(unit, attempt_id)
            uuid = workloads.get(unit, attempt.workload_id).opening.table_uuid
            name = table_name(unit, uuid)
        files = self._list_files(uuid, attempt_id)
        size = sum(each.size for each in files)
        removal = Removal(attempt_id, grant.token_id, grant.name, reason, len(files), size, done=False)

        def begin(unit: Unit) -> Removal:
            # Checked again in this transaction. Files that cannot be published now cannot be published later either.
            _require_removable(unit, grant, attempt_id, unexpected=unexpected)
            earlier = disposals.find_removal(unit, attempt_id)
            if earlier is not None and earlier.done:  # files came back after their removal
                return disposals.add_removal_event(unit, removal, known=True)
            return disposals.begin_removal(unit, removal)

        begun = self._ledger.transact(begin, at_micros=self._clock.now_micros())
        # Listed again, to get every file that was written before the removal was recorded. A clean-up that writes a
        # file later finds the record, and removes the file itself.
        for each in self._list_files(uuid, attempt_id):
            self._vault.remove(str(each.place))
        self._ledger.transact(lambda unit: disposals.end_removal(unit, attempt_id), at_micros=self._clock.now_micros())
        _log_removed(begun, table=name, table_uuid=uuid, workload_id=attempt.workload_id)
        return begun

    def _remove_unknown(self, grant: Grant, found: UnknownFolder, reason: str) -> Removal:
        size = sum(each.size for each in found.files)
        removal = Removal(found.attempt_id, grant.token_id, grant.name, reason, len(found.files), size, done=True)
        self._ledger.transact(
            lambda unit: disposals.add_removal_event(unit, removal, known=False), at_micros=self._clock.now_micros()
        )
        for each in found.files:
            self._vault.remove(str(each.place))
        _log_removed(removal, table=found.table, table_uuid=found.table_uuid, workload_id=None)
        return removal

    def _list_unknown(self, grant: Grant, table_uuid: str | None) -> list[UnknownFolder]:
        """The folders of unknown attempts, of one table or of all, by attempt id.

        A token of one domain gets only the folders of its existing tables, because a dropped table's domain is unknown.
        """
        domain = visible_domain(grant)
        found: list[UnknownFolder] = []
        for uuid in self._vault.tables() if table_uuid is None else [table_uuid]:
            folder_names = list(filter(_ATTEMPT_ID.fullmatch, self._vault.folders(uuid, VaultKind.QUARANTINE)))
            if not folder_names:
                continue
            with self._ledger.read() as unit:
                row = tables.find_by_uuid(unit, uuid)
                if domain is not None and (row is None or row.domain != domain):
                    continue
                unknown, name = disposals.find_unknown_attempts(unit, folder_names), table_name(unit, uuid)
            folders = [UnknownFolder(each, uuid, name, tuple(self._list_files(uuid, each))) for each in unknown]
            found += [each for each in folders if each.files]
        return sorted(found, key=lambda each: each.attempt_id)

    def _list_files(self, table_uuid: str, attempt_id: str) -> list[ListedFile]:
        return self._vault.files(table_uuid, VaultKind.QUARANTINE, attempt_id)

    def _make_view(
        self,
        attempt_id: str,
        table_uuid: str,
        failed_micros: int,
        files: Sequence[ListedFile],
        facts: Mapping[str, str | None],
    ) -> QuarantinedView:
        return QuarantinedView(
            attempt_id=attempt_id,
            table_uuid=table_uuid,
            failed_at=failed_micros,
            age_seconds=max(0, (self._clock.trusted_micros() - failed_micros) // 1_000_000),
            files=len(files),
            bytes=sum(each.size for each in files),
            folder=self._vault.location(table_uuid, VaultKind.QUARANTINE, attempt_id),
            **facts,
        )


class QuarantineRetention:
    """Removes the files of failed attempts from quarantine after `kept_days`.

    The rules of an operator's removal apply: files that may still be published stay, and the step log notes each
    removal. Files of attempts that the ledger lacks stay until an operator removes them.
    """

    def __init__(self, files: QuarantineFiles, kept_days: int) -> None:
        self._files = files
        self._kept_days = kept_days
        self._swept_at = 0.0

    def sweep(self) -> int:
        """Remove the files that are old enough, at most once a day. Returns how many attempts' files it removed."""
        now = time.time()
        if now - self._swept_at < _SWEEP_INTERVAL_SECONDS:
            return 0
        removed = sum(self._remove(each.attempt_id) for each in self._list_old() if each.undecided is None)
        self._swept_at = now
        return removed

    def _list_old(self) -> Iterator[QuarantinedView]:
        """The attempts whose files were kept for `kept_days`, oldest first."""
        after: str | None = None
        while page := self._files.list_page(STEWARD_GRANT, after=after):
            for each in page:
                is_known, is_old = each.workload_id is not None, each.age_seconds >= self._kept_days * _DAY_SECONDS
                if not is_known or not is_old:
                    return  # all further attempts are younger, or unknown
                yield each
            after = page[-1].attempt_id

    def _remove(self, attempt_id: str) -> bool:
        try:
            self._files.remove(STEWARD_GRANT, [attempt_id], f"kept for {self._kept_days} days ([retention])")
        except PvdmError as error:
            if isinstance(error, UnavailableError):
                raise
            # Another Steward or an operator has removed the files since the attempt was listed.
            log_warning("quarantine_kept", attempt_id=attempt_id, code=error.reason)
            return False
        return True


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


def _read_facts(unit: Unit, attempt: Attempt) -> tuple[str, dict[str, str | None]]:
    """The UUID of the attempt's table, and the facts for the attempt's view that the ledger has."""
    uuid = workloads.get(unit, attempt.workload_id).opening.table_uuid
    attempt_proofs = proofs.list_by_attempt(unit, attempt.attempt_id)
    return uuid, {
        "workload_id": attempt.workload_id,
        "chunk_id": attempt.chunk_id,
        "table": table_name(unit, uuid),
        "verdict": attempt_proofs[-1].verdict.value if attempt_proofs else None,
        "proof_id": attempt_proofs[-1].proof_id if attempt_proofs else None,
        "undecided": _why_undecided(unit, attempt),
    }


def _why_undecided(unit: Unit, attempt: Attempt) -> str | None:
    """Why the files may still be needed, or None: break-glass can publish a failed chunk of an open workload."""
    workload = workloads.get(unit, attempt.workload_id)
    published = chunks.list_publications(unit, attempt.workload_id, [attempt.chunk_id])
    has_passed = any(each.verdict is Outcome.PASS for each in proofs.list_by_attempt(unit, attempt.attempt_id)[-1:])
    if workload.state is not WorkloadState.OPEN or published or has_passed:
        return None
    return f"workload {attempt.workload_id} is open, and this chunk of it is not published"


def _require_removable(unit: Unit, grant: Grant, attempt_id: str, *, unexpected: bool) -> None:
    """Raise if the files may still be published, or are neither in quarantine by the ledger nor `unexpected`."""
    attempt = attempts.get(unit, attempt_id)
    require_domain(grant, workloads.get(unit, attempt.workload_id).opening.domain)
    if attempt.state in ATTEMPT.live():
        raise Code.QUARANTINE_ATTEMPT_LIVE(got=attempt.state, attempt_id=attempt_id)
    if not unexpected and not disposals.is_in_quarantine(unit, attempt_id):
        raise Code.RECORD_UNKNOWN(reason="quarantine_unknown", got=attempt_id)
    undecided = _why_undecided(unit, attempt)
    if undecided is not None:
        raise Code.QUARANTINE_UNDECIDED(
            f"what failed may still be published: {undecided}", got=f"attempt {attempt_id}", attempt_id=attempt_id
        )


@dataclass(frozen=True, slots=True)
class UnknownFolder:
    """Files in quarantine of an attempt that the ledger lacks, for example after a restore from a backup.

    They cannot be published. No running attempt is unknown: the ledger has it before its first file is in quarantine.
    """

    attempt_id: str
    table_uuid: str
    table: str | None
    files: tuple[ListedFile, ...]
