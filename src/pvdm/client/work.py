"""Calls about workloads: open one, attempt its chunks, stage them and wait for their end."""

from __future__ import annotations

import math
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pvdm import fault
from pvdm.api import leases, work
from pvdm.api.base import PAGE_ROWS_MAX
from pvdm.api.service import AttemptTokenRequest, IssuedToken
from pvdm.client.calls import Calls, build_request, new_post, number_text, page_query, segment, sha256_text, with_reason
from pvdm.client.responses import unreadable
from pvdm.client.token import AttemptToken
from pvdm.client.wire import Call
from pvdm.errors import Code, PvdmError
from pvdm.model.role import AccessToken, draw_token_text, token_sha256

WAIT_LONGEST_SECONDS: Final = 50
_SPARE_SECONDS: Final = 5  # how long a response may take beyond the requested wait
_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 5.0


class WorkCalls(Calls):
    """The part of the client that a producer's job uses."""

    def workloads(self, *, after: str | None = None, limit: int = 100) -> tuple[work.WorkloadView, ...]:
        """Workloads of the token's domain in order of id, after the id `after`."""
        return self._get("/v1/workloads", work.WorkloadList, page_query(after, limit)).workloads

    def newest_workloads(self, *, limit: int = 100) -> work.NewestWorkloads:
        """The workloads of the token's domain that were opened or ended last, the latest first."""
        return self._get("/v1/newest-workloads", work.NewestWorkloads, page_query(None, limit))

    def workload(
        self, workload_id: str, *, chunks_after: int = 0, limit: int = PAGE_ROWS_MAX, look_up_source: bool = True
    ) -> work.WorkloadDetail:
        """One workload with its plan's chunks except the first `chunks_after`, their attempts and publications.

        Without `look_up_source` the Steward does not look up the source's newest snapshot.
        """
        query = page_query(None, limit) | {"chunks_after": number_text(chunks_after, "number of chunks")}
        query["newest"] = None if look_up_source else "false"
        return self._get(_workload_path(workload_id), work.WorkloadDetail, query)

    def open_workload(
        self,
        workload_id: str,
        table: str,
        parameters: Mapping[str, str],
        timeout_seconds: int | None = None,
        *,
        watch: Callable[[work.PlanningView], None] = lambda _: None,
    ) -> work.WorkloadView:
        """Open the workload under the table's contract, or return it if it exists. Raises if its parameters differ.

        `timeout_seconds` is how long after the opening runs may stage chunks. A later call can change it while the
        workload is open. If the Steward has to read the source's rows to make the plan, this waits, and calls `watch`
        at each step. An error that `watch` raises ends the wait; the Steward goes on with the plan.
        """
        workload_id = segment(workload_id, "workload id")
        body = build_request(
            work.OpenWorkloadRequest,
            workload_id=workload_id,
            table=table,
            parameters=dict(parameters),
            timeout_seconds=timeout_seconds,
        )
        while True:
            sent_at = time.monotonic()
            fault.point("client.before_open")
            call = new_post("/v1/workloads", body, repeatable=True, patient=True)
            opened = self._read(call, work.OpenedWorkload)
            fault.point("client.after_open")
            if opened.workload is not None:
                return opened.workload
            if opened.planning is None:
                raise unreadable("planning", "a plan in the making, or a workload", "neither")
            if opened.planning.failed:
                raise _plan_error(opened.planning)
            watch(opened.planning)
            # The Steward waits before it answers. If it answers at once, the client waits.
            time.sleep(max(0.0, sent_at + _PAUSE_SECONDS - time.monotonic()))
            body = body.model_copy(update={"waits": True})

    def chunks(self, workload_id: str, *, after: int = 0, limit: int = PAGE_ROWS_MAX) -> tuple[work.ChunkView, ...]:
        """The plan's chunks except the first `after`, each with the last attempt at it."""
        page = page_query(number_text(after, "number of chunks"), limit)
        return self._get(f"{_workload_path(workload_id)}/chunks", work.ChunkList, page).chunks

    def acquire_lease(self, workload_id: str, request: leases.LeaseRequest) -> leases.LeaseView:
        """Get the lease of an open workload. Raises `workload_leased` while another run has it, unless this takes over.

        A repeated request with the same `run_id` renews and returns the lease that this run has.
        """
        fault.point("client.before_lease")
        call = new_post(f"{_workload_path(workload_id)}/lease", request, repeatable=True, patient=True)
        lease = self._read(call, leases.LeaseView)
        fault.point("client.after_lease")
        return lease

    def renew_lease(self, workload_id: str, run_id: str, lease_number: int) -> leases.LeaseView:
        """Renew the lease. Raises `lease_lost` if it has expired, or another run has a newer one."""
        body = build_request(leases.HeldLeaseRequest, run_id=run_id, lease_number=lease_number)
        fault.point("client.before_renewal")
        call = new_post(f"{_workload_path(workload_id)}/lease/renew", body, repeatable=True)
        lease = self._read(call, leases.LeaseView)
        fault.point("client.after_renewal")
        return lease

    def release_lease(self, workload_id: str, run_id: str, lease_number: int) -> leases.LeaseView:
        """End the lease before its expiry. An ended lease stays as it is. Returns the workload's newest lease."""
        body = build_request(leases.HeldLeaseRequest, run_id=run_id, lease_number=lease_number)
        fault.point("client.before_release")
        call = new_post(f"{_workload_path(workload_id)}/lease/release", body, repeatable=True)
        lease = self._read(call, leases.LeaseView)
        fault.point("client.after_release")
        return lease

    def next_attempt(self, workload_id: str, chunk_id: str, reason: str, lease_number: int) -> work.AttemptView:
        """Open a new attempt at the chunk, under the caller's lease. Raises `attempt_live` if an attempt has not ended.

        The client chooses the new attempt's id: if a response is lost, the repeated request finds the attempt.
        """
        attempt_id = secrets.token_hex(16)
        body = build_request(
            work.OpenAttemptRequest, chunk_id=chunk_id, reason=reason, lease_number=lease_number, attempt_id=attempt_id
        )
        path = f"{_workload_path(workload_id)}/attempts"
        fault.point("client.before_attempt")
        attempt = self._read(new_post(path, body, repeatable=True, patient=True), work.AttemptView)
        fault.point("client.after_attempt")
        return attempt

    def attempt(self, attempt_id: str, *, wait_seconds: float = 0) -> work.AttemptView:
        """One attempt: as soon as it is settled (see `AttemptView.settled`), or after `wait_seconds`.

        One request waits no longer than the client's own time-outs allow; `await_attempt` sends several requests.
        """
        limits = self._wire.time_outs
        longest = min(WAIT_LONGEST_SECONDS, limits.read_seconds - _SPARE_SECONDS, limits.total_seconds - _SPARE_SECONDS)
        # Rounded up to whole seconds: else a wait of less than a second would be sent as 0.
        seconds = min(math.ceil(min(wait_seconds, longest)), int(longest))
        query = (("wait", str(seconds)),) if seconds > 0 else ()
        return self._read(Call("GET", _attempt_path(attempt_id), query=query, patient=seconds > 0), work.AttemptView)

    def await_attempt(self, attempt_id: str, *, seconds: float) -> work.AttemptView:
        """The attempt as soon as it is settled, or after `seconds`. Sends several requests."""
        ends, pause_seconds = time.monotonic() + seconds, _PAUSE_SECONDS
        while True:
            sent_at = time.monotonic()
            found = self.attempt(attempt_id, wait_seconds=max(0.0, ends - sent_at))
            if found.settled or time.monotonic() >= ends:
                return found
            # If the Steward answers at once, without waiting, the client calls it less and less often.
            pause = sent_at + pause_seconds * random.uniform(0.5, 1) - time.monotonic()  # noqa: S311 - spreads requests
            time.sleep(max(0.0, min(ends - time.monotonic(), pause)))
            pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS) if pause > 0 else _PAUSE_SECONDS

    def staged(self, attempt_id: str) -> work.AttemptView:
        """Report that the write is complete: the Steward now verifies what is on the branch."""
        fault.point("client.before_hand_in")
        call = new_post(f"{_attempt_path(attempt_id)}/staged", None, repeatable=True, patient=True)
        attempt = self._read(call, work.AttemptView)
        fault.point("client.after_hand_in")
        return attempt

    def abort_attempt(self, attempt_id: str, reason: str, lease_number: int) -> work.AttemptView:
        """Abort a STAGING attempt, under the caller's lease of the workload; aborting it again changes nothing."""
        body = build_request(work.AbortAttemptRequest, reason=reason, lease_number=lease_number)
        fault.point("client.before_abort")
        call = new_post(f"{_attempt_path(attempt_id)}/abort", body, repeatable=True)
        attempt = self._read(call, work.AttemptView)
        fault.point("client.after_abort")
        return attempt

    def attempt_token(self, attempt_id: str) -> AttemptToken:
        """A short-lived token for this attempt. The client draws it and sends its hash, so the call can be repeated."""
        token = AccessToken(draw_token_text())
        body = build_request(AttemptTokenRequest, secret_sha256=token_sha256(token.text))
        fault.point("client.before_token")
        call = new_post(f"{_attempt_path(attempt_id)}/tokens", body, repeatable=True, patient=True)
        issued = self._read(call, IssuedToken)
        fault.point("client.after_token")
        return AttemptToken(token, issued.identity)

    def abandon_workload(self, workload_id: str, reason: str) -> work.WorkloadView | work.PlanningView:
        """Abandon the workload; its published chunks stay. Returns its plan if the workload is not open yet."""
        call = new_post(f"{_workload_path(workload_id)}/abandon", with_reason(reason), repeatable=True)
        found = self._read(call, work.AbandonedWorkload)
        abandoned = found.workload or found.planning
        if abandoned is None:
            raise unreadable("workload", "a workload, or a plan in the making", "neither")
        return abandoned

    def publish_branch(
        self, workload_id: str, table: str, branch: str, parameters: Mapping[str, str], reason: str | None = None
    ) -> work.AttemptView:
        """Verify and publish a branch that was staged before, as one chunk whose files the Steward copies.

        If a branch has failed under this workload id, the next try needs a reason.
        """
        body = build_request(
            work.PublishBranchRequest,
            workload_id=segment(workload_id, "workload id"),
            table=table,
            branch=branch,
            parameters=dict(parameters),
            reason=reason,
        )
        fault.point("client.before_publish")
        attempt = self._read(new_post("/v1/publications", body, repeatable=True, patient=True), work.AttemptView)
        fault.point("client.after_publish")
        return attempt

    def publish_override(self, override_id: str) -> work.AttemptView:
        """Publish exactly the bytes that an override names. A repeated call returns the live or published attempt."""
        path = f"/v1/overrides/{sha256_text(override_id, 'override id')}/publish"
        return self._read(new_post(path, None, repeatable=True), work.AttemptView)

    def jobs(self, *, limit: int = 100) -> tuple[work.ListedJob, ...]:
        """The jobs that are not done; failed jobs first, then those that wait for another try."""
        return self._get("/v1/jobs", work.JobList, page_query(None, limit)).jobs

    def orphans(self, table: str) -> tuple[work.OrphanView, ...]:
        """The files that attempts and published branches left in the table, and that nothing refers to."""
        return self._get("/v1/orphans", work.OrphanList, {"table": table}, long=True).orphans

    def remove_orphans(self, table: str) -> tuple[work.OrphanView, ...]:
        """Remove the orphans; returns those that were removed."""
        body = build_request(work.RemoveOrphansRequest, table=table)
        return self._read(new_post("/v1/orphans/remove", body, repeatable=True, long=True), work.OrphanList).orphans

    def quarantine(self, *, table: str | None = None, after: str | None = None) -> tuple[work.QuarantinedView, ...]:
        """A page of failed attempts whose files are kept, oldest first; `after` is the last id of the page before."""
        return self._get("/v1/quarantine", work.QuarantinedList, {"table": table, "after": after}).quarantine

    def remove_quarantined(self, attempt_ids: Sequence[str], reason: str) -> tuple[work.QuarantineRemovalView, ...]:
        """Remove the files of these failed attempts for good. Raises if one of them may still be published."""
        body = build_request(work.RemoveQuarantinedRequest, attempt_ids=list(attempt_ids), reason=reason)
        call = new_post("/v1/quarantine/remove", body, lost_hint="`pvdm quarantine list` shows what is left")
        return self._read(call, work.QuarantineRemovalList).removed


def _plan_error(planning: work.PlanningView) -> PvdmError:
    """The error for a plan whose job has failed: the Steward does not run the job again by itself."""
    problem, hint = planning.problem, "run the same workload again when the cause is removed"
    message = f"the Steward cannot make the plan of {planning.workload_id}"
    if problem is None:
        return Code.BUG(message, hint=hint)
    hint = f"{problem.hint}; {hint}" if problem.hint else hint
    message = f"{message}: {problem.message}"
    return PvdmError(problem.reason, message, expected=problem.expected, got=problem.got, hint=hint)


def _workload_path(workload_id: str) -> str:
    return f"/v1/workloads/{segment(workload_id, 'workload id')}"


def _attempt_path(attempt_id: str) -> str:
    return f"/v1/attempts/{segment(attempt_id, 'attempt id')}"
