"""Holds the lease of a workload while a run works on it: acquires it, renews it in a thread, and releases it."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pvdm.api.leases import RUNNER_MAX_CHARACTERS, LeaseRequest, LeaseView
from pvdm.client import StewardClient
from pvdm.errors import Code, ConflictError, PvdmError

RENEWALS_PER_LEASE: Final = 3
_RETRY_SECONDS: Final = 1.0
_IDENTITY_PARTS: Final = 4
_START_TIME_FIELD: Final = 19  # of /proc/PID/stat, counted from the field after the process's name
_LOSSES: Final = frozenset({Code.LEASE_LOST, Code.WORKLOAD_TIMED_OUT, Code.WORKLOAD_MOVED})
_runs_here: set[str] = set()  # the ids of the runs of this process that have not ended


class HeldLease:
    """A lease of this run. `lease_number` grows with each new lease of the workload."""

    def __init__(self, client: StewardClient, workload_id: str, run_id: str, lease: LeaseView) -> None:
        # Not patient: while a thread waits for a Steward that restarts, it could not end with the run.
        self._client = client.with_patience(patient=False)
        self._workload_id = workload_id
        self._run_id = run_id
        self._seconds = lease.seconds / RENEWALS_PER_LEASE
        self._ended = threading.Event()
        self._lost: PvdmError | None = None
        self._thread = threading.Thread(target=self._renew_repeatedly, name="pvdm lease", daemon=True)
        self.lease_number = lease.lease_number

    def start(self) -> None:
        """Start to renew the lease."""
        self._thread.start()

    def require(self) -> None:
        """Raise the Steward's error if it has refused to renew the lease, for example `lease_lost`."""
        if self._lost is not None:
            raise self._lost

    def find_loss(self, error: PvdmError) -> PvdmError:
        """Try to renew the lease. If the Steward refuses because the lease is lost, return its error; else `error`.

        The new error replaces one of the catalog, which has no hint and may be outdated.
        """
        try:
            self._client.renew_lease(self._workload_id, self._run_id, self.lease_number)
        except PvdmError as refusal:
            return refusal if refusal.code in _LOSSES else error
        return error

    def release(self) -> None:
        """Stop the renewals, and release the lease, so that another run can begin before its expiry."""
        self._ended.set()
        if self._lost is None:
            with contextlib.suppress(PvdmError):
                self._client.release_lease(self._workload_id, self._run_id, self.lease_number)

    def _renew_repeatedly(self) -> None:
        wait_seconds = self._seconds
        while not self._ended.wait(wait_seconds):
            try:
                self._client.renew_lease(self._workload_id, self._run_id, self.lease_number)
                wait_seconds = self._seconds
            except PvdmError as error:
                if error.code in _LOSSES:
                    self._lost = error
                    return
                # The Steward restarts or is busy, or the token is being replaced. The lease may still be live.
                wait_seconds = min(_RETRY_SECONDS, self._seconds)


@contextlib.contextmanager
def hold_lease(
    client: StewardClient, workload_id: str, *, seconds: int, take_over_from: int | None
) -> Iterator[HeldLease]:
    """Acquire the lease of an open workload, and renew it until the end of the block.

    Raises `workload_leased` while another run has the lease, unless the lease's number is `take_over_from`. If the
    other run was on this host and has ended, its lease is taken over at once.
    """
    run_id = secrets.token_hex(16)
    _runs_here.add(run_id)
    try:
        acquired = _acquire(client, workload_id, run_id, seconds, take_over_from)
        held = HeldLease(client, workload_id, run_id, acquired)
        held.start()
        try:
            yield held
        finally:
            held.release()
    finally:
        _runs_here.discard(run_id)


def _acquire(
    client: StewardClient, workload_id: str, run_id: str, seconds: int, take_over_from: int | None
) -> LeaseView:
    runner = f"process {os.getpid()} on {socket.gethostname()}"[:RUNNER_MAX_CHARACTERS]
    process = process_identity(os.getpid())
    request = LeaseRequest(
        run_id=run_id,
        runner=runner,
        process=None if process is None else f"{process} {run_id}",
        seconds=seconds,
        take_over_from=take_over_from,
    )
    while True:
        try:
            return client.acquire_lease(workload_id, request)
        except ConflictError as error:
            process_and_run = str(error.details.pop("process", ""))  # internal, so not shown to the user
            if error.code != Code.WORKLOAD_LEASED or not _has_ended(process_and_run):
                raise
            # Other runs may find this too. The Steward gives the lease to the first of them, and refuses the others.
            request = request.model_copy(update={"take_over_from": int(str(error.details["lease_number"]))})


def _has_ended(process_and_run: str) -> bool:
    """Whether this run, with the identity of its process, was on this host and has ended."""
    process, _, run_id = process_and_run.rpartition(" ")
    if process == process_identity(os.getpid()):
        return run_id not in _runs_here
    return has_ended(process)


def process_identity(pid: int) -> str | None:
    """A text that no other process has: boot, process namespace, id and start time. None if one of them is unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - the text of the link, which names no file
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    is_over = fields[0] in {"Z", "X"}  # it has ended, but its parent has not read its exit status
    return f"{boot} {namespace} {pid} {'ended' if is_over else fields[_START_TIME_FIELD]}"


def has_ended(process: str) -> bool:
    """Whether the process with this identity (`process_identity`) ran on this host, and has ended."""
    here, parts = process_identity(os.getpid()), process.split(" ")
    if here is None or len(parts) != _IDENTITY_PARTS or parts[:2] != here.split(" ")[:2]:
        return False
    pid = parts[2]
    if not pid.isdecimal():
        return False
    found = process_identity(int(pid))
    return not _exists(int(pid)) if found is None else found != process


def _exists(pid: int) -> bool:
    """Whether a process with this id exists, even if `/proc` hides it from this user (`hidepid`)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
