"""Access of the Steward's Spark application to an object store: one read-only credential for each job."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Mapping, Sequence

from pvdm.errors import Code, InputError
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.roles import Role, Sts, VendingSettings, session_policy
from pvdm.lake.stores.s3_client import S3Settings, credential_properties, store_properties


class StoreAccess:
    """Vends read-only sessions for objects, since the Steward's own credentials can write. Local files need none."""

    def __init__(self, settings: S3Settings | None = None, vending: VendingSettings | None = None) -> None:
        self._settings = settings
        self._vending = vending
        self._lock = threading.Lock()
        self._sts: Sts | None = None

    @property
    def config(self) -> Mapping[str, str] | None:
        """The store's address and options as Iceberg properties; None if no sessions are vended."""
        return None if self._settings is None or self._vending is None else store_properties(self._settings)

    def reaches(self, *sides: Sequence[str]) -> bool:
        """Whether a session could read all of these locations, given for each side of the comparison."""
        schemes = {parse_location(each).scheme for side in sides for each in side}
        if schemes <= {"file"}:
            return True
        if self._vending is None or not schemes <= {"file", "s3"}:
            return False
        try:
            session_policy(Role(self._vending.consumer_role), write=(), read=_common_folders(sides))
        except InputError:
            return False
        return True

    def vend(self, job_id: str, *sides: Iterable[str]) -> dict[str, str] | None:
        """The store's properties, with a session that can only read these locations; None if all are local."""
        folders = _common_folders(sides)
        if not folders:
            return None
        if self._settings is None or self._vending is None:
            message = "there is no credential by which Spark could read the location"
            raise Code.STORE_NOT_CONFIGURED(message, expected="[s3.vending] in steward.toml", got="none")
        with self._lock:
            if self._sts is None:
                self._sts = Sts(self._settings, self._vending.sts_endpoint)
        role = Role(self._vending.consumer_role)
        session = self._sts.assume(
            role,
            name=f"pvdm-verify-{hashlib.sha256(job_id.encode()).hexdigest()[:16]}",
            policy=session_policy(role, write=(), read=folders),
            seconds=self._vending.lifetime_seconds,
        )
        return store_properties(self._settings) | credential_properties(session.credentials)


def _common_folders(sides: Iterable[Iterable[str]]) -> list[Location]:
    """For each side, bucket and top folder: the deepest folder with all its objects. Refuses an object in no folder."""
    common: dict[Location, None] = {}
    for side in sides:
        groups: dict[tuple[str, str], list[tuple[str, ...]]] = {}
        for each in map(parse_location, side):
            if each.scheme == "file":
                continue
            folder = each.parts[:-1]
            if not folder:
                raise Code.STORAGE_UNSUPPORTED(reason="store_object_unreachable", got=str(each))
            groups.setdefault((each.authority, folder[0]), []).append(folder)
        for (bucket, _), folders in groups.items():
            shared = os.path.commonprefix(folders)  # noqa: RUF071 - of tuples it compares part by part
            common[Location("s3", bucket, tuple(shared))] = None
    return list(common)
