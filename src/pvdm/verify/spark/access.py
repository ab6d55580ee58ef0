"""What the Steward's Spark application may read of an object store: what one job reads, by a credential of its own."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence

from pvdm.errors import Code, InputError
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.roles import Role, Sts, VendingSettings, session_policy
from pvdm.lake.stores.s3_client import S3Settings, credential_config, open_config


class StoreAccess:
    """Local files are reached by their paths; objects only where the store vends sessions that read.

    The Steward's own credentials never leave it: they write.
    """

    def __init__(self, settings: S3Settings | None = None, vending: VendingSettings | None = None) -> None:
        self._settings = settings
        self._vending = vending
        self._lock = threading.Lock()
        self._sts: Sts | None = None

    @property
    def config(self) -> Mapping[str, str] | None:
        """The store's address and manners, in the words of Iceberg; None where nothing is vended."""
        return None if self._settings is None or self._vending is None else open_config(self._settings)

    def reaches(self, *sides: Iterable[str]) -> bool:
        """Whether a session could read all of these locations."""
        found = [[parse_location(each) for each in side] for side in sides]
        if all(each.scheme == "file" for side in found for each in side):
            return True
        if self._vending is None or any(each.scheme not in ("file", "s3") for side in found for each in side):
            return False
        try:
            session_policy(Role(self._vending.consumer_role), write=(), read=_covering(found))
        except InputError:
            return False
        return True

    def vended(self, job_id: str, *sides: Iterable[str]) -> dict[str, str] | None:
        """The store with a session that reads these locations and writes nothing; None where all are local."""
        places = _covering([parse_location(each) for each in side] for side in sides)
        if not places:
            return None
        if self._settings is None or self._vending is None:
            raise Code.STORE_NOT_CONFIGURED(
                "there is no credential by which Spark could read the location",
                expected="[s3.vending] in steward.toml",
                got="none",
            )
        with self._lock:
            if self._sts is None:
                self._sts = Sts(self._settings, self._vending.sts_endpoint)
        role, vending = Role(self._vending.consumer_role), self._vending
        made = self._sts.assume(
            role,
            name=f"pvdm-verify-{hashlib.sha256(job_id.encode()).hexdigest()[:16]}",
            policy=session_policy(role, write=(), read=places),
            seconds=vending.lifetime_seconds,
        )
        return open_config(self._settings) | credential_config(made.credentials)


def _covering(sides: Iterable[Iterable[Location]]) -> list[Location]:
    """Folders that hold all objects of each side, as deep as they can be; a whole bucket is none of them."""
    found: dict[Location, None] = {}
    for side in sides:
        groups: dict[tuple[str, str], list[tuple[str, ...]]] = {}
        for each in side:
            if each.scheme == "file":
                continue
            folder = each.parts[:-1]
            if not folder:
                raise Code.STORE_OBJECT_UNREACHABLE(got=str(each))
            groups.setdefault((each.authority, folder[0]), []).append(folder)
        for (bucket, _), folders in groups.items():
            found[Location("s3", bucket, _shared(folders))] = None
    return list(found)


def _shared(folders: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The parts with which all of them begin."""
    first, last = min(folders), max(folders)
    same = [mine == other for mine, other in zip(first, last, strict=False)]
    return first[: same.index(False) if False in same else len(same)]
