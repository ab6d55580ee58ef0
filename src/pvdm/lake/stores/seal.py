"""Seals on the prefixes of attempts: the store refuses writes of producers (the jobs), and versions pin the content.

A seal is a Deny statement in the bucket's policy, for the role of producers and one attempt's prefix. It counts as set
once the store has refused a write of that role. It ends later than every session that began before it. After its end
the next seal in the bucket removes it.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from pvdm import fault
from pvdm.errors import Code
from pvdm.lake.paths import Location
from pvdm.lake.stores.roles import Role, Sts, VendingSettings, is_sealed, policy_with_seal, session_policy
from pvdm.lake.stores.s3 import S3Store
from pvdm.lake.stores.s3_client import call_store
from pvdm.lake.stores.stores import Stores

SEAL_MARGIN_SECONDS: Final = 300
"""How much longer a seal lasts than the longest session that may have begun before it."""
SEAL_WAIT_MAX_SECONDS: Final = 30
_PROBE_NAME: Final = ".pvdm-seal"

RunLocked = Callable[[str, Callable[[], None]], None]
"""Runs a function under a lock on the bucket that all Stewards share."""


class Seals:
    """Seals prefixes of object stores. Local files cannot be sealed, nor stores for which no roles are configured."""

    def __init__(self, stores: Stores, vending: VendingSettings | None, run_locked: RunLocked) -> None:
        self._stores = stores
        self._vending = vending
        self._run_locked = run_locked
        self._sts: Sts | None = None

    def require_sealable(self, place: Location) -> VendingSettings:
        """The roles whose sessions are vended. Raises if there are none, or the place is not in a versioned bucket."""
        if place.scheme != "s3":
            raise Code.STORAGE_UNSUPPORTED(reason="seal_impossible", expected="an object store", got=f"{place.scheme}:")
        if self._vending is None:
            expected = "[s3.vending] in steward.toml, since the Steward can only end sessions that it vended"
            raise Code.STORAGE_UNSUPPORTED(reason="seal_impossible", expected=expected, got="none")
        with _translate_errors():
            answer = call_store(self._stores.object_store(place).client.get_bucket_versioning, Bucket=place.authority)
        if answer.get("Status") != "Enabled":
            got, hint = str(answer.get("Status", "never enabled")), f"enable versioning of the bucket {place.authority}"
            raise Code.STORAGE_UNSUPPORTED(reason="bucket_unversioned", got=got, hint=hint)
        return self._vending

    def seal(self, prefix: Location) -> None:
        """Seal the prefix: the store refuses writes of producers below it from now on. Sealing again is allowed."""
        vending = self.require_sealable(prefix)
        role = Role(vending.producer_role)
        with _translate_errors():
            self._run_locked(prefix.authority, lambda: self._add_seal(prefix, role, vending.lifetime_seconds))
            fault.point("lake.seal.after_policy")  # where tests can stop the process
            self._require_in_force(prefix, self._open_as_producer(prefix, role, vending))
            # Uploads from before the seal can no longer be completed.
            self._stores.object_store(prefix).abort_uploads(prefix)

    def versions(self, prefix: Location) -> Mapping[Location, str]:
        """The current version of every object below the prefix."""
        with _translate_errors():
            return self._stores.object_store(prefix).versions(prefix)

    def _add_seal(self, prefix: Location, role: Role, lifetime_seconds: int) -> None:
        """Add the seal to the bucket's policy, unless the prefix has one that has not ended."""
        client, now = self._stores.object_store(prefix).client, int(time.time())
        if is_sealed(self._read_policy(prefix), role, prefix, until=now):
            return
        until = now + lifetime_seconds + SEAL_MARGIN_SECONDS
        policy = policy_with_seal(self._read_policy(prefix), role, prefix, until=until, now=now)
        call_store(client.put_bucket_policy, Bucket=prefix.authority, Policy=policy)
        if not is_sealed(self._read_policy(prefix), role, prefix, until=until):
            raise OSError(errno.EIO, "the bucket's policy does not have the seal")

    def _read_policy(self, prefix: Location) -> str | None:
        try:
            found = call_store(self._stores.object_store(prefix).client.get_bucket_policy, Bucket=prefix.authority)
        except FileNotFoundError:
            return None
        return str(found["Policy"])

    def _require_in_force(self, prefix: Location, producer: S3Store) -> None:
        """Wait until the store refuses a producer's write below the prefix. Raises after `SEAL_WAIT_MAX_SECONDS`."""
        place, deadline = prefix.child(_PROBE_NAME), time.monotonic() + SEAL_WAIT_MAX_SECONDS
        while True:
            try:
                call_store(producer.client.put_object, Bucket=place.authority, Key="/".join(place.parts), Body=b"")
            except PermissionError:
                return
            self._stores.object_store(prefix).remove(place)
            if time.monotonic() > deadline:
                raise Code.SEAL_FAILED(reason="seal_not_in_force", got=f"none for {SEAL_WAIT_MAX_SECONDS} seconds")
            time.sleep(1)

    def _open_as_producer(self, prefix: Location, role: Role, vending: VendingSettings) -> S3Store:
        settings = self._stores.object_store(prefix).settings
        self._sts = self._sts or Sts(settings, vending.sts_endpoint)
        session = self._sts.assume(role, name="pvdm-seal", policy=session_policy(role, write=[prefix], read=[]))
        return S3Store(replace(settings, credentials=session.credentials, profile=None))


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise errors of the store as `seal_failed`."""
    try:
        yield
    except OSError as error:
        raise Code.SEAL_FAILED(reason="seal_unavailable", got=error.strerror or type(error).__name__) from None
