"""The seal on an attempt's prefix: the store itself refuses its producer from then on, and versions say what it holds.

A seal is a Deny statement in the bucket's policy, for the role whose sessions producers get, on exactly that prefix.
It is believed once a session of that role was refused there, and left out once every session it was for has ended.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from pvdm import fault
from pvdm.errors import Code, InputError
from pvdm.lake.paths import Location
from pvdm.lake.stores.policies import Role, is_sealed, sealed, session_policy
from pvdm.lake.stores.s3 import S3Store
from pvdm.lake.stores.s3_client import asked
from pvdm.lake.stores.stores import Stores
from pvdm.lake.stores.sts import Sts, VendingSettings

SEAL_MARGIN_SECONDS: Final = 300
SEAL_WAIT_MAX_SECONDS: Final = 30
_PROBE: Final = ".pvdm-seal"

Alone = Callable[[str, Callable[[], None]], None]
"""Does something while nobody else, of any Steward, does the same for that bucket."""


class Seals:
    """Seals prefixes of object stores; local files cannot be sealed, and no store without roles to vend."""

    def __init__(self, stores: Stores, vending: VendingSettings | None, alone: Alone) -> None:
        self._stores = stores
        self._vending = vending
        self._alone = alone
        self._sts: Sts | None = None

    def require_able(self, place: Location) -> None:
        """Whether something there could be sealed: an object store with versions, and producers by vended sessions."""
        if place.scheme != "s3":
            raise _unable("an object store", f"{place.scheme}:")
        if self._vending is None:
            raise _unable("[s3.vending] in steward.toml: only a credential that the Steward gave can it end", "none")
        with _reached():
            answer = asked(self._store(place).client.get_bucket_versioning, Bucket=place.authority)
        if answer.get("Status") != "Enabled":
            raise Code.BUCKET_UNVERSIONED(
                got=str(answer.get("Status", "never enabled")),
                hint=f"enable versioning of the bucket {place.authority}",
            )

    def close(self, prefix: Location) -> None:
        """From here on the store refuses producers below the prefix; once more does no harm."""
        self.require_able(prefix)
        if self._vending is None:
            raise AssertionError("what can be sealed has roles")
        role = Role(self._vending.producer_role)
        with _reached():
            self._alone(prefix.authority, lambda: self._deny(prefix, role))
            fault.point("lake.seal.after_policy")
            self._require_in_force(prefix, role)
            self._abort_uploads(prefix)

    def versions(self, prefix: Location) -> Mapping[Location, str]:
        """The version of every object below the prefix that is shown now."""
        with _reached():
            return self._store(prefix).versions(prefix)

    def _deny(self, prefix: Location, role: Role) -> None:
        client, bucket, now = self._store(prefix).client, prefix.authority, int(time.time())
        if is_sealed(self._policy(prefix), role, prefix, until=now):
            return
        lifetime = 0 if self._vending is None else self._vending.lifetime_seconds
        until = now + lifetime + SEAL_MARGIN_SECONDS
        policy = sealed(self._policy(prefix), role, prefix, until=until, now=now)
        asked(client.put_bucket_policy, Bucket=bucket, Policy=policy)
        if not is_sealed(self._policy(prefix), role, prefix, until=until):
            raise OSError(errno.EIO, "the store does not show the seal that was put")

    def _policy(self, prefix: Location) -> str | None:
        try:
            found = asked(self._store(prefix).client.get_bucket_policy, Bucket=prefix.authority)
        except FileNotFoundError:
            return None
        return str(found["Policy"])

    def _require_in_force(self, prefix: Location, role: Role) -> None:
        """A session as producers have it is refused below the prefix; a policy that no server obeys is no seal."""
        producer = self._producer(prefix, role)
        place, deadline = prefix.child(_PROBE), time.monotonic() + SEAL_WAIT_MAX_SECONDS
        while True:
            try:
                asked(producer.client.put_object, Bucket=place.authority, Key="/".join(place.parts), Body=b"")
            except PermissionError:
                return
            self._store(prefix).remove(place)
            if time.monotonic() > deadline:
                raise Code.SEAL_FAILED(reason="seal_not_in_force", got=f"none for {SEAL_WAIT_MAX_SECONDS} seconds")
            time.sleep(1)

    def _producer(self, prefix: Location, role: Role) -> S3Store:
        settings, vending = self._store(prefix).settings, self._vending
        if vending is None:
            raise AssertionError("what can be sealed has roles")
        policy = session_policy(role, write=[prefix], read=[])
        self._sts = self._sts or Sts(settings, vending.sts_endpoint)
        session = self._sts.assume(role, name="pvdm-seal", policy=policy, seconds=900)
        return S3Store(replace(settings, credentials=session.credentials, profile=None))

    def _abort_uploads(self, prefix: Location) -> None:
        """An upload in parts that was begun before must not lie there for ever; to complete it is refused already."""
        self._store(prefix).abort_uploads(prefix)

    def _store(self, place: Location) -> S3Store:
        return self._stores.object_store(place)


@contextlib.contextmanager
def _reached() -> Iterator[None]:
    """What the store does not do is told as that."""
    try:
        yield
    except OSError as error:
        raise Code.SEAL_FAILED(reason="seal_unavailable", got=error.strerror or type(error).__name__) from None


def _unable(expected: str, got: str) -> InputError:
    return InputError(
        Code.SEAL_IMPOSSIBLE,
        "files there cannot be sealed",
        expected=expected,
        got=got,
        hint="use storage `copied`, or see docs/stores.md",
    )
