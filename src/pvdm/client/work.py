"""Calls about workloads: open one, attempt its chunks, say that they are staged, wait for what becomes of them."""

from __future__ import annotations

import math
import random
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pvdm.client.address import segment
from pvdm.client.answers import AttemptToken, read_attempt_identity
from pvdm.client.calls import PAGE_MAX_ROWS, Calls, number_text, page_of, posted, sha256_text
from pvdm.client.quarantine_answers import QuarantinedView, QuarantineRemovalView
from pvdm.client.reading import Reading
from pvdm.client.token import AccessToken
from pvdm.client.wire import Call
from pvdm.client.work_answers import (
    AttemptView,
    ChunkView,
    ListedJob,
    NewestWorkloads,
    OrphanView,
    WorkloadDetail,
    WorkloadView,
)
from pvdm.model.canonical_json import Value
from pvdm.model.token_text import draw_token_text, token_sha256

WAIT_LONGEST_SECONDS: Final = 50
# How long an answer may take beyond the wait that was asked for.
_SPARE_SECONDS: Final = 5
_BREATH_SECONDS: Final = 0.5
_LONGEST_BREATH_SECONDS: Final = 5.0


class WorkCalls(Calls):
    """The part of the client that a producer's job uses."""

    def workloads(self, *, after: str | None = None, limit: int = 100) -> tuple[WorkloadView, ...]:
        """The next workloads of the token's domain after an id."""
        return self._list("/v1/workloads", "workloads", WorkloadView.read, page_of(after, limit))

    def newest_workloads(self, *, limit: int = 100) -> NewestWorkloads:
        """The workloads of the token's domain that were opened or ended last, the latest first."""
        query = (("limit", str(page_of(None, limit)["limit"])),)
        return self._read(Call("GET", "/v1/newest-workloads", query=query), NewestWorkloads.read)

    def workload(
        self, workload_id: str, *, chunks_after: int = 0, limit: int = PAGE_MAX_ROWS, newest: bool = True
    ) -> WorkloadDetail:
        """One workload with the next chunks of its plan after so many, their attempts and what is published of them.

        Without `newest` the Steward does not look where the source stands now.
        """
        page = (
            ("chunks_after", number_text(chunks_after, "place in the plan")),
            ("limit", str(page_of(None, limit)["limit"])),
            *(() if newest else (("newest", "false"),)),
        )
        return self._read(Call("GET", _workload(workload_id), query=page), WorkloadDetail.read)

    def open_workload(self, workload_id: str, table: str, parameters: Mapping[str, str]) -> WorkloadView:
        """Open the workload under the table's contract, or find it open; the same id with other words is an error."""
        asked: dict[str, Value] = {"workload_id": _id(workload_id), "table": table, "parameters": dict(parameters)}
        return self._read(posted("/v1/workloads", asked, repeatable=True, patient=True), WorkloadView.read)

    def chunks(self, workload_id: str, *, after: int = 0, limit: int = PAGE_MAX_ROWS) -> tuple[ChunkView, ...]:
        """The plan's next chunks after so many, each with the last attempt at it."""
        wanted = {"after": number_text(after, "place in the plan"), "limit": page_of(None, limit)["limit"]}
        return self._list(f"{_workload(workload_id)}/chunks", "chunks", ChunkView.read, wanted)

    def next_attempt(self, workload_id: str, chunk_id: str, reason: str) -> AttemptView:
        """A new attempt at the chunk; a live one is the error `attempt_live`, whose details have its `attempt_id`.

        Its id is drawn here: where the answer is lost, the same request finds the attempt that it opened.
        """
        asked: dict[str, Value] = {"chunk_id": chunk_id, "reason": reason, "attempt_id": secrets.token_hex(16)}
        path = f"{_workload(workload_id)}/attempts"
        return self._read(posted(path, asked, repeatable=True, patient=True), AttemptView.read)

    def attempt(self, attempt_id: str, *, wait_seconds: float = 0) -> AttemptView:
        """One attempt; with a wait, as soon as it is settled, or as it is when the wait is over.

        One request waits no longer than the client's own time-outs let it: `await_attempt` asks again.
        """
        limits = self._wire.time_outs
        longest = min(WAIT_LONGEST_SECONDS, limits.read_seconds - _SPARE_SECONDS, limits.total_seconds - _SPARE_SECONDS)
        # Rounded up: else the last part of a second is spent on requests that do not wait.
        seconds = min(math.ceil(min(wait_seconds, longest)), int(longest))
        query = (("wait", str(seconds)),) if seconds > 0 else ()
        return self._read(Call("GET", _attempt(attempt_id), query=query, patient=seconds > 0), AttemptView.read)

    def await_attempt(self, attempt_id: str, *, seconds: float) -> AttemptView:
        """The attempt once it is settled; or as it is when so many seconds are over."""
        ends, breath = time.monotonic() + seconds, _BREATH_SECONDS
        while True:
            asked = time.monotonic()
            found = self.attempt(attempt_id, wait_seconds=max(0.0, ends - asked))
            if found.settled or time.monotonic() >= ends:
                return found
            # A Steward that does not let requests wait answers at once: it is asked less and less often.
            pause = asked + breath * random.uniform(0.5, 1) - time.monotonic()  # noqa: S311 - spreads requests
            time.sleep(max(0.0, min(ends - time.monotonic(), pause)))
            breath = min(2 * breath, _LONGEST_BREATH_SECONDS) if pause > 0 else _BREATH_SECONDS

    def staged(self, attempt_id: str) -> AttemptView:
        """Say that the write is complete: the Steward verifies what is on the branch from now on."""
        call = posted(f"{_attempt(attempt_id)}/staged", {}, repeatable=True, patient=True)
        return self._read(call, AttemptView.read)

    def abort_attempt(self, attempt_id: str, reason: str) -> AttemptView:
        """Give the attempt up; one that was given up stays so."""
        return self._read(
            posted(f"{_attempt(attempt_id)}/abort", {"reason": reason}, repeatable=True), AttemptView.read
        )

    def attempt_token(self, attempt_id: str) -> AttemptToken:
        """A short-lived token for this attempt alone.

        Its text is drawn here and only its hash is sent: where the answer is lost, the same request finds the token.
        """
        token = AccessToken(draw_token_text())
        asked: dict[str, Value] = {"secret_sha256": token_sha256(token.text)}
        call = posted(f"{_attempt(attempt_id)}/tokens", asked, repeatable=True, patient=True)
        return AttemptToken(token, self._read(call, read_attempt_identity))

    def abandon_workload(self, workload_id: str, reason: str) -> WorkloadView:
        """Give the whole workload up; what is published of it stays."""
        path = f"{_workload(workload_id)}/abandon"
        return self._read(posted(path, {"reason": reason}, repeatable=True), WorkloadView.read)

    def publish_branch(
        self, workload_id: str, table: str, branch: str, parameters: Mapping[str, str], reason: str | None = None
    ) -> AttemptView:
        """Have a branch verified and published that was staged before; it is one chunk, and copied.

        After a branch that failed under this id, another try wants a reason.
        """
        asked: dict[str, Value] = {
            "workload_id": _id(workload_id),
            "table": table,
            "branch": branch,
            "parameters": dict(parameters),
        }
        asked |= {} if reason is None else {"reason": reason}
        return self._read(posted("/v1/publications", asked, repeatable=True, patient=True), AttemptView.read)

    def publish_override(self, override_id: str) -> AttemptView:
        """Have exactly the bytes published that a break-glass override names; once more gives the same attempt."""
        path = f"/v1/overrides/{sha256_text(override_id, 'override id')}/publish"
        return self._read(posted(path, {}, repeatable=True), AttemptView.read)

    def jobs(self, *, limit: int = 100) -> tuple[ListedJob, ...]:
        """What the Steward still has to do; failed jobs first, then those that wait for another try."""
        return self._list("/v1/jobs", "jobs", ListedJob.read, {"limit": page_of(None, limit)["limit"]})

    def orphans(self, table: str) -> tuple[OrphanView, ...]:
        """The files that attempts at the table, and jobs of published branches, left behind; nothing refers to them."""
        return self._list("/v1/orphans", "orphans", OrphanView.read, {"table": table}, long=True)

    def remove_orphans(self, table: str) -> tuple[OrphanView, ...]:
        """Remove them; those that were removed."""
        call = replace(posted("/v1/orphans/remove", {"table": table}, repeatable=True), long=True)
        return self._read(call, lambda value: Reading(value, "the list").items("orphans", OrphanView.read))

    def quarantine(self, *, table: str | None = None, after: str | None = None) -> tuple[QuarantinedView, ...]:
        """A page of failed attempts whose files are kept, oldest first; the next one comes after the last one's id."""
        wanted = {"table": table, "after": after}
        return self._list("/v1/quarantine", "quarantine", QuarantinedView.read, wanted)

    def remove_quarantined(self, attempt_ids: Sequence[str], reason: str) -> tuple[QuarantineRemovalView, ...]:
        """Remove the files of these failed attempts for good; nothing goes if one of them may still be published."""
        asked: Value = {"attempt_ids": list(attempt_ids), "reason": reason}
        call = posted("/v1/quarantine/remove", asked, look="`pvdm quarantine list` shows what is left")
        return self._read(call, lambda value: Reading(value, "the list").items("removed", QuarantineRemovalView.read))


def _id(workload_id: str) -> str:
    return segment(workload_id, "workload id")


def _workload(workload_id: str) -> str:
    return f"/v1/workloads/{_id(workload_id)}"


def _attempt(attempt_id: str) -> str:
    return f"/v1/attempts/{segment(attempt_id, 'attempt id')}"
