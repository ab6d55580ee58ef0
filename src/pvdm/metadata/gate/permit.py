"""The permit: only the gate's checks construct it, and only the commit in the same process uses it."""

from __future__ import annotations

from dataclasses import dataclass

from pvdm.errors import Code


@dataclass(frozen=True, slots=True)
class Permit:
    """Permission for one change of `main` of one table: from exactly this metadata file to exactly that one."""

    table_uuid: str
    base_sha256: str
    new_sha256: str

    def require(self, *, table_uuid: str, base_sha256: str, new_sha256: str) -> None:
        """Raise `permit_for_other_commit` unless this permit is for this swap."""
        if (self.table_uuid, self.base_sha256, self.new_sha256) != (table_uuid, base_sha256, new_sha256):
            raise Code.PERMIT_FOR_OTHER_COMMIT(
                expected=f"{self.table_uuid} from {self.base_sha256} to {self.new_sha256}",
                got=f"{table_uuid} from {base_sha256} to {new_sha256}",
            )
