"""Arms fault points: at a named point of the source, a test makes the process raise, end or call a function."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

from pvdm import fault

# What is true when a process stops at each point, ordered by name. docs/fault-points.md has the same lines.
POINTS: Final = MappingProxyType(
    {
        "catalog.after_metadata_file": "the new metadata file is synced, no pointer names it yet",
        "catalog.after_swap": "the pointer names the new metadata file, the client has no answer yet",
        "catalog.before_answer": "a change of the catalog is made, its answer is not sent yet",
        "catalog.files.after_rename": "a metadata file is in its place, its folder is not synced yet",
        "catalog.files.after_temp": "a metadata file is synced under a temporary name",
        "catalog.files.before_sync": "a metadata file is written under a temporary name, and not synced",
        "client.after_abort": "the attempt is ROLLED_BACK, its run still has the lease",
        "client.after_attempt": "the attempt is STAGING, its run has no token for it yet",
        "client.after_commit": "the commit is made, and its client has the answer",
        "client.after_hand_in": "the attempt is handed in, its run does not wait for the end yet",
        "client.after_lease": "the run has the lease, and does not renew it yet",
        "client.after_load": "the client has the table's metadata",
        "client.after_open": "the workload is open, or the Steward plans it; its run has no lease yet",
        "client.after_publish": "the Steward verifies the branch, its run does not wait for the end yet",
        "client.after_release": "the lease is released",
        "client.after_renewal": "the lease is renewed",
        "client.after_token": "the attempt has a token, nothing is staged",
        "client.before_abort": "staging has failed, the attempt is still STAGING",
        "client.before_attempt": "the chunk has no live attempt, no request to open one is sent",
        "client.before_commit": "the files of a commit are written, the commit is not sent",
        "client.before_hand_in": "everything is staged, the Steward is not told so yet",
        "client.before_lease": "the workload is open, no request for its lease is sent",
        "client.before_load": "no request to load the table is sent",
        "client.before_open": "no request to open the workload is sent",
        "client.before_publish": "a branch is staged without an attempt, no request to publish it is sent",
        "client.before_release": "the run has ended its work, it still has the lease",
        "client.before_renewal": "the run has the lease, its renewal is not sent",
        "client.before_token": "the attempt is STAGING, no request for its token is sent",
        "disposal.after_branch": "the branch is gone (an adopted one only if published), all files are there",
        "disposal.after_files": "files that no snapshot references are gone, the ledger does not say so yet",
        "disposal.after_quarantine": "failed files are in quarantine if the contract keeps them, nothing is removed",
        "gate.after_files": "the Steward's manifests and list are synced, no transaction has begun",
        "gate.after_rehash": "the bytes to be published are hashed again, the table's queue is not entered yet",
        "gate.before_receipt": "the publication is committed and read back, its receipt is not signed yet",
        "keys.after_make": "the keys of a new epoch exist in their key home, the epoch book does not name them yet",
        "keys.disk.after_rename": "a file with secrets has its new content, its folder is not synced yet",
        "keys.disk.after_temp": "the new content of a file with secrets is synced, but only under a temporary name",
        "keys.handle.before_record": "a worker's keys are derived, nothing is recorded or sent",
        "lake.seal.after_policy": "the bucket's policy denies the producer, whether it is in force is not checked yet",
        "lake.vault.after_file": "a file of the vault is in its place and synced, nothing names it yet",
        "lake.vault.after_temp": "a file of the vault is synced under a temporary name",
        "ledger.after_commit": "the ledger has answered the commit, the caller has no answer yet",
        "ledger.before_commit": "every statement of the transaction has run, its commit is not sent",
        "log.disk.after_name": "a file of the archive, or the outside checkpoint, is in its place and not synced there",
        "log.disk.after_temp": "a file of the archive, or the outside checkpoint, is complete, but not in its place",
        "stager.after_file": "a staged file is in its place and synced, no commit names it yet",
        "stager.after_remove": "staging has failed, one of its files is removed",
        "stager.after_temp": "a staged file is synced under a temporary name",
        "stager.after_write": "everything is staged and committed to the branch, and not handed in",
        "stager.before_remove": "staging has failed, one of its files is not removed yet",
        "stager.before_sync": "a staged file is written under a temporary name, and not synced",
        "stager.before_write": "the attempt has a token, no file of its rows is written",
        "steward.after_epoch_step": "the epoch book may have steps of epochs without an entry in the log",
        "steward.after_outside": "the outside checkpoint covers the entries in the ledger, no caller has an answer yet",
        "steward.before_outside": "the entries are in the ledger, the outside checkpoint is not updated yet",
        "steward.restore.after_epoch": "the restore has created its new epoch, the log has no entry for it yet",
        "steward.restore.after_keep": "the old outside checkpoint is saved beside its file, and not replaced yet",
        "steward.restore.after_refill": "the ledger is refilled from the archive and reconciled, nothing is signed yet",
        "steward.restore.before_swap": "the log continues under its new origin, the outside checkpoint has the old one",
        "stores.after_file": "a file from quarantine is in an attempt's folder, no commit names it yet",
        "stores.after_remove": "a file that nothing needs is removed, its folder may not be synced",
        "upstream.after_announce": "the ledger announces a publication, the request to the upstream is not sent yet",
        "upstream.after_commit": "the upstream has made a forwarded commit, the ledger has not recorded it yet",
        "upstream.after_look": "the upstream shows the publication, the ledger has not recorded it yet",
        "upstream.after_swap": "the publication was sent to the upstream, whether `main` shows it is not read yet",
        "upstream.before_commit": "a commit to an upstream's table is checked, the request is not sent yet",
        "upstream.before_fence": "the upstream does not show the publication, no fence against a late commit is set",
        "verify.after_digests": "every digest is computed, none of them is stored",
        "verify.after_freeze": "staged and source files are hashed, no key is derived yet",
        "verify.after_locate": "the wrong rows, if any, are located; nothing of that is stored",
        "verify.after_manifest": "findings and verified manifest, if there is one, are stored; no proof is signed yet",
        "verify.after_proof": "the proof is in the ledger and in the log, the attempt is still VERIFYING",
        "verify.after_verdict": "the attempt is COMMITTING or VERIFICATION_FAILED, nothing is cleaned up yet",
    }
)

EXIT_CODE: Final = 86


@dataclass(frozen=True, slots=True)
class Raise:
    """Raise this exception at the point."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Exit:
    """End the process at once, as a crash would: no `finally`, no `atexit`, no flush."""

    code: int = EXIT_CODE


@dataclass(frozen=True, slots=True)
class Call:
    """Call this function at the point, and continue."""

    function: Callable[[], None]


Action: TypeAlias = Raise | Exit | Call


@dataclass(slots=True)
class _ArmedPoint:
    action: Action
    passes: int  # how many times more the point is passed without effect


_armed_points: dict[str, _ArmedPoint] = {}
_lock = threading.Lock()


def _reach(name: str) -> None:
    """Do the action of the point, if it is armed; `fault.point` calls this."""
    if not _armed_points:
        return
    with _lock:
        entry = _armed_points.get(name)
        if entry is None:
            return
        if entry.passes > 0:
            entry.passes -= 1
            return
    match entry.action:
        case Raise(error):
            raise error
        case Exit(code):
            os._exit(code)
        case Call(function):
            function()


fault.hook = _reach


def kill_on_order(order: Path) -> None:
    """From now on this process removes the file and ends by SIGKILL at the point that the file names."""

    def end_or_reach(name: str) -> None:
        with suppress(FileNotFoundError):
            if order.read_text() == name:
                order.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
                signal.pause()  # nothing more happens here until the signal arrives
        _reach(name)

    fault.hook = end_or_reach


def arm(name: str, action: Action, *, passes: int = 0) -> None:
    """Arm the point: it does the action each time that it is reached, but not the first `passes` times."""
    if name not in POINTS:
        raise LookupError(f"there is no fault point {name}")
    with _lock:
        _armed_points[name] = _ArmedPoint(action, passes)


def disarm(name: str) -> None:
    """Disarm the point: from now on it does nothing."""
    with _lock:
        _armed_points.pop(name, None)


@contextmanager
def armed(name: str, action: Action, *, passes: int = 0) -> Iterator[None]:
    """Arm the point inside the `with` block only."""
    arm(name, action, passes=passes)
    try:
        yield
    finally:
        disarm(name)
