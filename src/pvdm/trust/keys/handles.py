"""Handles of verify jobs. After the freeze (all files are hashed), a worker exchanges a handle for digest keys."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from pvdm import fault
from pvdm.errors import Code, expect
from pvdm.model.projection import ProjectionName
from pvdm.model.secret import DigestKey
from pvdm.model.states import HandleState
from pvdm.trust.keys.context import AttemptContext
from pvdm.trust.keys.service import KeyService

HANDLE_REDEMPTIONS_MAX: Final = 10_000

_HANDLE_BYTES: Final = 16
_HANDLE: Final = re.compile(r"[0-9a-f]{32}")
_NAME: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@dataclass(frozen=True, slots=True)
class HandleRecord:
    """The stored record of a handle, without secrets. At most `redemptions` workers get the keys."""

    handle_sha256: str
    job_id: str
    redemptions: int
    state: HandleState = HandleState.ISSUED
    context: AttemptContext | None = None  # from which the keys are derived; None before the freeze
    workers: frozenset[str] = frozenset()  # the names of the workers that got the keys


class HandleRegistry(Protocol):
    """The storage of handles. A change is one atomic step, also across processes."""

    def add(self, record: HandleRecord) -> None:
        """Store a new handle. Raises `handle_job_taken` if the job has one."""

    def find(self, handle_sha256: str) -> HandleRecord | None:
        """The handle of that hash, if it was ever issued."""

    def find_job(self, job_id: str) -> HandleRecord | None:
        """The handle of that job, if it has one."""

    def change(self, handle_sha256: str, step: Callable[[HandleRecord], HandleRecord]) -> None:
        """Replace the record by the result of `step`, atomically. If `step` raises, nothing changes."""


class Handles:
    """Issues, freezes, redeems and ends handles. The key service derives the keys at each redemption."""

    __slots__ = ("_keys", "_registry")

    def __init__(self, keys: KeyService, registry: HandleRegistry) -> None:
        self._keys = keys
        self._registry = registry

    def issue(self, job_id: str, *, redemptions: int) -> str:
        """Store a new handle for one verify job, and return it: random hex. It gives no keys before the freeze."""
        _require_name("job_id", job_id)
        if isinstance(redemptions, bool) or not 1 <= redemptions <= HANDLE_REDEMPTIONS_MAX:
            limits = f"1 to {HANDLE_REDEMPTIONS_MAX}"
            raise Code.HANDLE_INVALID(reason="handle_redemptions", expected=limits, got=str(redemptions))
        handle = secrets.token_hex(_HANDLE_BYTES)
        self._registry.add(HandleRecord(_hash(handle), job_id, redemptions))
        return handle

    def freeze(self, job_id: str, context: AttemptContext) -> None:
        """Bind the job to the frozen files, so that its handle gives keys. Only the Steward calls this."""
        self._change(job_id, lambda found: _freeze(found, context))

    def redeem(self, handle: str, *, job_id: str, worker: str) -> dict[ProjectionName, DigestKey]:
        """The job's digest keys. Each worker gets them once. A task that runs again counts as another worker."""
        handle_sha256 = _hash(handle) if _matches(handle, _HANDLE) else None
        # An error may be shown with the locals of its frames: the handle must not be among them.
        del handle
        _require_name("worker", worker)
        if handle_sha256 is None:
            raise Code.HANDLE_INVALID(reason="handle_malformed", got="something else")
        record = self._registry.find(handle_sha256)
        if record is None:
            raise Code.HANDLE_UNKNOWN(got="another")
        context = expect(_redeem(record, job_id, worker).context, "a frozen handle has a context")
        # The keys are derived before the redemption is recorded, so that an unreachable key home uses up no redemption.
        # They are returned after it is recorded, so that no keys are given without a record.
        keys = {projection: self._keys.row_hash_key(context, projection) for projection in context.projections}
        fault.point("keys.handle.before_record")
        self._registry.change(handle_sha256, lambda found: _redeem(found, job_id, worker))
        return keys

    def end(self, job_id: str) -> None:
        """End the job. From now on its handle gives no keys. Ending twice is no error."""
        self._change(job_id, lambda found: replace(found, state=HandleState.ENDED))

    def _change(self, job_id: str, step: Callable[[HandleRecord], HandleRecord]) -> None:
        record = self._registry.find_job(job_id)
        if record is None:
            raise Code.HANDLE_UNKNOWN(got="another")
        self._registry.change(record.handle_sha256, step)


def _freeze(record: HandleRecord, context: AttemptContext) -> HandleRecord:
    if record.state is HandleState.ENDED:
        raise Code.HANDLE_REFUSED(reason="handle_ended", got=record.job_id)
    if record.state is HandleState.FROZEN:
        raise Code.HANDLE_REFUSED(reason="handle_frozen_already", got=record.job_id)
    return replace(record, state=HandleState.FROZEN, context=context)


def _redeem(record: HandleRecord, job_id: str, worker: str) -> HandleRecord:
    if record.job_id != job_id:
        raise Code.HANDLE_REFUSED(reason="handle_wrong_job", got=job_id)
    if record.state is HandleState.ENDED:
        raise Code.HANDLE_REFUSED(reason="handle_ended", got=record.job_id)
    if record.state is HandleState.ISSUED:
        raise Code.HANDLE_REFUSED(reason="handle_not_frozen", got="none")
    if worker in record.workers:
        raise Code.HANDLE_REFUSED(reason="handle_redeemed", got=worker)
    if len(record.workers) >= record.redemptions:
        limit = f"at most {record.redemptions} workers"
        raise Code.HANDLE_REFUSED(reason="handle_exhausted", expected=limit, got="one more")
    return replace(record, workers=record.workers | {worker})


def _hash(handle: str) -> str:
    return hashlib.sha256(b"pvdm/handle/v1\0" + handle.encode()).hexdigest()


def _matches(value: object, pattern: re.Pattern[str]) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _require_name(field: str, name: str) -> None:
    if not _matches(name, _NAME):
        message = f"{field} cannot be accepted"
        raise Code.HANDLE_INVALID(message, reason="handle_name", got=repr(name)[:160], field=field)
